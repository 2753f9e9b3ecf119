"""The method as a whole: Algorithm 1 from settings to heatmap."""

import json
import math
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from igos.descent import REACH, Armijo
from igos.errors import IgosError
from igos.image import l1, phi, tv
from igos.methods import METHODS, adjust, make
from igos.methods.igos import IGOS, MEASURED, SEARCH, TWO_SIDED
from igos.methods.regularisation import interpolate
from igos.problem import Problem
from reference_loop import reference
from small import random, single

FAST = IGOS(resolution=6, lambda1=0.01, lambda2=0.05, noise=0.05, path_steps=3, max_iterations=4)


def algorithm_1(problem: Problem, method: IGOS) -> Tensor:
    """Algorithm 1 for one image, one pass of the model after another, as the paper writes it."""
    image, baseline = problem.image[0], problem.baseline[0]
    std = torch.tensor(problem.std, dtype=torch.float64)[:, None, None]
    weights = method.regularisation
    rule = method.step_rule
    assert isinstance(method.resolution, int)
    assert isinstance(rule, Armijo)
    assert isinstance(problem.target, Tensor)
    target = problem.target[0]
    steps = method.path_steps

    def score(mask: Tensor, at: Tensor) -> Tensor:
        found: Tensor = problem.model(phi(at, baseline, mask)[None]).softmax(dim=1)[0, target]
        return found

    def f(mask: Tensor, at: Tensor) -> Tensor:
        hidden = score(mask, at)
        return hidden - method.reveal * score(1 - mask, at) if method.reveal else hidden

    def g(mask: Tensor) -> Tensor:
        return weights.lambda1 * l1(mask) + weights.lambda2 * tv(mask)

    def total(mask: Tensor) -> float:
        return (f(mask, image) + g(mask)).item()

    generator = torch.Generator().manual_seed(method.seed)
    mask = torch.ones(1, method.resolution, method.resolution, dtype=torch.float64)
    masks, directions = [], []
    for _ in range(method.max_iterations):
        noise = torch.empty(steps, *image.shape, dtype=torch.float64).normal_(generator=generator)
        tg = torch.zeros_like(mask)
        for s in range(1, steps + 1):
            point = (s / steps * mask).requires_grad_()
            noisy = image + weights.noise * noise[s - 1] / std
            tg += torch.autograd.grad(f(point, noisy), point)[0] / steps
        here = mask.clone().requires_grad_()
        tg += torch.autograd.grad(g(here), here)[0]
        directions.append(tg)
        unit = REACH / float(tg.abs().max()) if rule.scaled else 1.0
        alpha, least = rule.alpha_upper * unit, rule.alpha_lower * unit
        before, squared = total(mask), float(tg.square().sum())
        while alpha > least:
            moved = (mask - alpha * tg).clamp(0, 1)
            if total(moved) - before <= -alpha * rule.beta * squared:
                break
            alpha *= rule.eta
        mask = (mask - max(alpha, least) * tg).clamp(0, 1)
        masks.append(mask)
    heatmap = 1 - (torch.stack(masks).mean(dim=0) if method.average else mask)
    if weights.first == 0:
        return heatmap
    return (1 - weights.first) * heatmap / heatmap.max() + (
        weights.first * directions[0] / directions[0].abs().max()
    )


@pytest.mark.parametrize("step_rule", [Armijo(), SEARCH])
@pytest.mark.parametrize(
    ("average", "first"), [(False, 0.0), (True, 0.0), (True, 0.3), (False, 1.0)]
)
def test_igos_is_algorithm_1(
    problem: Problem, average: bool, first: float, step_rule: Armijo
) -> None:
    method = replace(FAST, tolerance=0.0, average=average, first=first, step_rule=step_rule)
    together = method(problem)
    for at in range(3):
        expected = algorithm_1(single(problem, at), method)
        assert expected.std() > 0.01  # something was found
        torch.testing.assert_close(together[at], expected.detach())


@pytest.mark.parametrize("reveal", [0.5, 1.0])
def test_two_sided_is_algorithm_1_on_its_own_objective(problem: Problem, reveal: float) -> None:
    method = replace(FAST, tolerance=0.0, reveal=reveal)
    together = method(problem)
    one_sided = FAST(problem)
    for at in range(3):
        expected = algorithm_1(single(problem, at), method)
        torch.testing.assert_close(together[at], expected.detach())
        assert not torch.allclose(together[at], one_sided[at], atol=0.01)


@pytest.mark.parametrize("reveal", [0.0, 1.0])
@pytest.mark.parametrize("lambda1", [0.01, 0.1, 1.0])
def test_a_rounding_error_stays_one(problem: Problem, lambda1: float, reveal: float) -> None:
    method = replace(FAST, noise=0.0, max_iterations=8, lambda1=lambda1, reveal=reveal)
    exact = method(problem)
    for seed in range(8):
        rounded = problem.image * (1 + 1e-14 * random(*problem.image.shape, seed=seed))
        torch.testing.assert_close(method(replace(problem, image=rounded)), exact)


@pytest.mark.parametrize("step_rule", [Armijo(), SEARCH])
def test_the_plain_loop_of_the_benchmarks_is_the_same_algorithm(
    one: Problem, step_rule: Armijo
) -> None:
    method = replace(FAST, tolerance=0.0, average=False, first=0.0, step_rule=step_rule)
    assert isinstance(one.model, nn.Module)
    assert isinstance(one.target, Tensor)
    plain = reference(
        one.model,
        one.image,
        one.baseline,
        int(one.target),
        method,
        std=one.std,
        search_on_path=False,
    )
    torch.testing.assert_close(plain, method(one))


class Sure(nn.Module):
    """Of its class as long as half of the photo is there."""

    def forward(self, x: Tensor) -> Tensor:
        evidence = 80 * (x.mean(dim=(1, 2, 3)) - 0.5)
        return torch.stack([evidence, -evidence], dim=1)


def test_our_search_leaves_a_photo_that_the_network_is_sure_of() -> None:
    """Every step raises F_c there: hiding a little loses nothing of the class, and L1 grows."""
    image = torch.ones(1, 3, 4, 4, dtype=torch.float64)
    problem = Problem(Sure().double(), image, torch.zeros_like(image), 0)
    method = IGOS(resolution=4, lambda1=1.5, lambda2=0.0, noise=0.0, max_iterations=1, first=0.0)
    assert method(problem).min() > 0.99
    assert replace(method, step_rule=Armijo())(problem).max() < 1e-5


def test_a_heatmap_of_nothing_stays_nothing(one: Problem) -> None:
    """Where the score does not move and λ₁ is 0, both parts of the heatmap are zero."""
    flat = replace(one, target=lambda output: 0 * output.sum(dim=1))
    method = replace(FAST, lambda1=0.0, first=0.3)
    assert method(flat).abs().max() == 0


class OneSpot(nn.Module):
    """Sure of class 0 when it sees either of two spots; the left one is brighter."""

    def forward(self, images: Tensor) -> Tensor:
        left, right = images[:, 0, 2, 2], images[:, 0, 2, 6]
        seen = 6 * left.maximum(right) - 3
        return torch.stack([seen, -seen], dim=1)


def test_two_sided_shows_what_is_enough() -> None:
    """One of two spots is enough to bring the class back; both must go to lose it.

    Hiding alone must mark both. So must the two-sided objective; but for showing, a single pixel
    counts, so nothing else is marked.
    """
    image = torch.zeros(1, 3, 5, 9, dtype=torch.float64)
    image[0, 0, 2, 2], image[0, 0, 2, 6] = 1.0, 0.9
    problem = Problem(OneSpot(), image, 0 * image, 0)
    heatmap = IGOS(
        resolution=(5, 9), lambda1=0.1, lambda2=0.0, noise=0.0, reveal=1.0, max_iterations=30
    )(problem)[0, 0]
    spots = {(2, 2), (2, 6)}
    marked = {(int(row), int(column)) for row, column in (heatmap > 0.1).nonzero()}
    assert marked == spots
    assert heatmap[2, 2] > 0.8  # the brighter spot alone brings the class back


def test_a_batch_is_its_images_alone(problem: Problem) -> None:
    together = FAST(problem)
    for at in range(3):
        torch.testing.assert_close(together[at], FAST(single(problem, at))[0])


def test_the_seed_decides_the_noise_and_nothing_else_does(one: Problem) -> None:
    assert torch.equal(FAST(one), FAST(one))
    assert not torch.equal(FAST(one), replace(FAST, seed=1)(one))
    silent = replace(FAST, noise=0.0)
    assert torch.equal(silent(one), replace(silent, seed=1)(one))


def test_the_heatmap_marks_what_the_model_looks_at() -> None:
    """A model that adds up one patch: the patch, and nothing else, must be marked."""

    class Patch(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            inside = images[:, :, 8:12, 4:8].mean(dim=(1, 2, 3))
            return torch.stack([8 * inside, torch.full_like(inside, 4.0)], dim=1)

    image = torch.ones(1, 3, 16, 16)
    problem = Problem(Patch(), image, 0 * image, 0)
    heatmap = IGOS(resolution=16, lambda1=0.1, lambda2=0.1, noise=0.0)(problem)[0, 0]
    inside = heatmap[8:12, 4:8]
    outside = heatmap.clone()
    outside[6:14, 2:10] = 0
    assert inside.min() > 2 * outside.max()


@pytest.mark.parametrize("resolution", [1, 12, (12, 10), (3, 7), (1, 10)])
def test_any_resolution_up_to_the_images(one: Problem, resolution: int | tuple[int, int]) -> None:
    if resolution == 12:
        with pytest.raises(IgosError, match="resolution 12×12: the image is 12×10"):
            replace(FAST, resolution=resolution)(one)
        return
    shape = (resolution, resolution) if isinstance(resolution, int) else resolution
    heatmap = replace(FAST, resolution=resolution)(one)
    assert heatmap.shape == (1, 1, *shape)
    share = IGOS(resolution=resolution).regularisation.first  # of what may be negative
    assert ((heatmap >= -share) & (heatmap <= 1)).all()


def test_the_papers_settings() -> None:
    settings = IGOS.paper(resolution=28).settings
    assert (settings["path_steps"], settings["max_iterations"]) == (20, 15)
    assert (settings["lambda1"], settings["lambda2"]) == (1.0, 20.0)
    assert settings["noise"] == pytest.approx(0.2 * 0.225)  # σ 0.2 at ImageNet's std
    assert settings["step_rule"]["beta"] == 1e-4
    assert not settings["step_rule"]["scaled"]
    assert not settings["average"]
    assert settings["first"] == 0


def test_two_sided_has_settings_of_its_own() -> None:
    method = IGOS.two_sided(resolution=7)
    assert (method.reveal, method.max_iterations) == (1, 15)
    assert method.step_rule == Armijo(64.0, 1.0, eta=0.5, scaled=True)
    assert method.step_rule.trials() == [64, 32, 16, 8, 4, 2, 1]
    assert method.regularisation == TWO_SIDED[7]
    assert IGOS(resolution=7).regularisation == MEASURED[7]


def test_our_settings() -> None:
    """What docs/deviations.md justifies; a change here needs new measurements there."""
    assert IGOS().settings == {
        "resolution": [28, 28],
        "lambda1": 0.9,
        "lambda2": 4.0,
        "noise": 0.01,
        "first": 0.4,
        "path_steps": 10,
        "max_iterations": 10,
        "tolerance": 0.003,
        "patience": 10,
        "reveal": 0.0,
        "average": True,
        "step_rule": {
            "alpha_upper": 100.0,
            "alpha_lower": 1.0,
            "beta": 1e-4,
            "eta": 0.2,
            "scaled": True,
        },
        "seed": 0,
    }


def test_trials_of_our_search() -> None:
    assert SEARCH.trials() == pytest.approx([100, 20, 4, 1])


@given(st.floats(7, 224))
def test_defaults_between_measured_resolutions_lie_between_them(side: float) -> None:
    below = max(known for known in MEASURED if known <= side)
    above = min(known for known in MEASURED if known >= side)
    between = interpolate(MEASURED, (round(side), round(side)))
    for name in ("lambda1", "lambda2", "noise", "first"):
        ends = sorted([getattr(MEASURED[below], name), getattr(MEASURED[above], name)])
        value = getattr(between, name)
        assert ends[0] * (1 - 1e-9) <= value <= ends[1] * (1 + 1e-9) or round(side) in (
            below,
            above,
        )


def test_defaults_at_and_beyond_the_measured_resolutions() -> None:
    for side, known in MEASURED.items():
        assert interpolate(MEASURED, (side, side)) == known
    assert interpolate(MEASURED, (3, 3)) == MEASURED[7]
    assert interpolate(MEASURED, (600, 500)) == MEASURED[224]
    halfway = interpolate(MEASURED, (14, 56))  # its mean side is 28
    assert halfway.lambda2 == pytest.approx(MEASURED[28].lambda2)
    middle = interpolate(MEASURED, (56, 56))  # half of the way from 28 to 112, in logarithms
    expected = math.sqrt(MEASURED[28].lambda2 * MEASURED[112].lambda2)
    assert middle.lambda2 == pytest.approx(expected)
    expected = math.sqrt(MEASURED[28].lambda1 * MEASURED[112].lambda1)
    assert middle.lambda1 == pytest.approx(expected)
    assert middle.noise == pytest.approx((MEASURED[28].noise + MEASURED[112].noise) / 2)


def test_settings_are_plain_and_tell_methods_apart() -> None:
    def identity(method: IGOS) -> str:
        return json.dumps(method.settings, sort_keys=True)

    assert identity(IGOS()) == identity(IGOS(lambda1=MEASURED[28].lambda1))
    others = [IGOS(resolution=14), IGOS(seed=1), IGOS(step_rule=Armijo()), IGOS.paper()]
    assert len({identity(method) for method in [IGOS(), *others]}) == 5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resolution": 0}, "resolution 0"),
        ({"path_steps": 0}, "path_steps 0"),
        ({"max_iterations": -1}, "max_iterations -1"),
        ({"patience": 0}, "patience 0"),
        ({"path_steps": 2.5}, "path_steps 2.5"),
        ({"lambda1": "1"}, "lambda1 '1'"),
        ({"step_rule": None}, "step_rule None"),
        ({"average": 1}, "average 1"),
        ({"first": 1.5}, "first 1.5"),
        ({"first": -0.1}, "first -0.1"),
        ({"seed": -1}, "seed -1"),
        ({"lambda1": -1.0}, "lambda1 -1"),
        ({"tolerance": -0.1}, "tolerance -0.1"),
        ({"noise": math.nan}, "noise nan"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(IgosError, match=message):
        IGOS(**wrong)


def test_every_method_is_made_by_its_name() -> None:
    for name in METHODS:
        method = make(name, resolution=(6, 5), seed=3)
        assert method.settings.get("seed", 3) == 3
        assert method.settings.get("resolution", [6, 5]) == [6, 5]
    with pytest.raises(IgosError, match="unknown method 'igoss': did you mean 'igos'"):
        make("igoss")


def test_settings_from_text() -> None:
    method = adjust(
        IGOS(), {"lambda1": "0.5", "path_steps": "7", "step_rule.eta": "0.5", "noise": 0.1}
    )
    assert adjust(IGOS(), {"average": "False"}) == IGOS(average=False)
    rule = replace(SEARCH, eta=0.5)
    assert method == IGOS(lambda1=0.5, path_steps=7, step_rule=rule, noise=0.1)
    for key, value, message in (
        ("lambda3", "1", "unknown setting 'lambda3': did you mean 'lambda2' or 'lambda1'"),
        ("lambda1", "big", "setting lambda1=big: give a number"),
        ("path_steps", "2.5", "setting path_steps=2.5: give a whole number"),
        ("step_rule", "2", r"give step_rule\.SETTING=VALUE"),
        ("lambda1.x", "2", "give lambda1=VALUE"),
        ("average", "1", "setting average=1: give true or false"),
        ("step_rule.gamma", "2", "unknown setting 'gamma'"),
    ):
        with pytest.raises(IgosError, match=message):
            adjust(IGOS(), {key: value})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_same_on_a_gpu(problem: Problem) -> None:
    assert isinstance(problem.model, nn.Module)
    assert isinstance(problem.target, Tensor)
    there = Problem(
        problem.model.cuda(),
        problem.image.cuda(),
        problem.baseline.cuda(),
        problem.target.cuda(),
        std=problem.std,
    )
    silent = replace(FAST, noise=0.0)  # the devices' random streams differ
    ours = silent(there).cpu()
    problem.model.cpu()
    torch.testing.assert_close(ours, silent(problem))
