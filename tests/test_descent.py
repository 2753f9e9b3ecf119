"""Eq. 4, 6 and 8, and Algorithm 1's loop, against theory and naive loops."""

import math
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from igos.descent import REACH, Armijo, Step, descend, path_gradient, total_gradient
from igos.errors import IgosError
from igos.image import l1, phi, tv
from igos.problem import Objective, Problem
from small import random, single


class Quadratic:
    """f(M) = xᵀAx + bᵀx with x = M − optimum; stands in for an Objective."""

    def __init__(self, size: int, *, optimum: float, b: float = 0.0) -> None:
        self.a = random(size, size, seed=3)
        self.b = b * random(size, seed=4)
        self.optimum = optimum

    def __call__(self, masks: Tensor) -> Tensor:
        x = masks.flatten(2) - self.optimum  # (B, K, n)
        return torch.einsum("bki,ij,bkj->bk", x, self.a, x) + x @ self.b

    def gradient(self, mask: Tensor) -> Tensor:
        x = mask.flatten(1) - self.optimum
        return (x @ (self.a + self.a.T) + self.b).view(mask.shape)


@pytest.mark.parametrize("steps", [1, 2, 7, 20])
def test_proposition_integrated_gradient_of_a_quadratic(steps: int) -> None:
    """Supplement I: with the baseline (M = 0) at the optimum, ∇ᴵᴳf = (S+1)/(2S)·∇f."""
    f = Quadratic(12, optimum=0.0)
    mask = random(2, 1, 3, 4)
    integrated = path_gradient(f, mask, path_steps=steps)
    expected = (steps + 1) / (2 * steps) * f.gradient(mask)
    assert (integrated - expected).abs().max() < 1e-5
    torch.testing.assert_close(integrated, expected)


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_integrated_gradient_of_a_quadratic_with_another_baseline(steps: int) -> None:
    """The supplement's equation before the last: the baseline's own gradient remains."""
    f = Quadratic(12, optimum=0.4, b=2.0)
    mask = random(2, 1, 3, 4)
    expected = (steps + 1) * f.gradient(mask) + (steps - 1) * f.gradient(0 * mask)
    torch.testing.assert_close(path_gradient(f, mask, path_steps=steps), expected / (2 * steps))


def test_total_gradient_is_a_naive_loop_over_path_points(problem: Problem) -> None:
    """Eq. 4 with noise n_s on I₀, plus ∇g: Eq. 6, one image and one point after another."""
    mask, noise = random(3, 1, 6, 5).sigmoid(), 0.1 * random(4, 3, 12, 10, seed=9)
    objective = Objective(problem, lambda1=0.5, lambda2=2.0)
    ours = total_gradient(objective, mask, path_steps=4, noise=noise)
    std = torch.tensor(problem.std, dtype=torch.float64)[:, None, None]
    assert isinstance(problem.target, Tensor)
    for b in range(3):
        expected = torch.zeros_like(mask[b])
        for s in range(1, 5):
            point = (s / 4 * mask[b]).requires_grad_()
            composed = phi(problem.image[b] + noise[s - 1] / std, problem.baseline[b], point)
            score = problem.model(composed[None]).softmax(dim=1)[0, problem.target[b]]
            expected += torch.autograd.grad(score, point)[0] / 4
        here = mask[b].clone().requires_grad_()
        expected += torch.autograd.grad(0.5 * l1(here) + 2.0 * tv(here), here)[0]
        torch.testing.assert_close(ours[b], expected)


def test_gradients_can_be_taken_where_gradients_are_off() -> None:
    with torch.no_grad():
        gradient = path_gradient(Quadratic(4, optimum=0.0), random(1, 1, 2, 2), path_steps=2)
    assert gradient.abs().sum() > 0


def line_search(rule: Armijo, f: Callable[[Tensor], float], mask: Tensor, tg: Tensor) -> float:
    """The paper's three numbered steps, word for word."""
    lower, upper = rule.alpha_lower, rule.alpha_upper
    if rule.scaled:
        lower, upper = (alpha * REACH / float(tg.abs().max()) for alpha in (lower, upper))
    alpha = upper  # (1)
    while True:  # (2)
        moved = (mask - alpha * tg).clamp(0, 1)
        enough = f(moved) - f(mask) <= -alpha * rule.beta * float((tg * tg).sum())
        if enough or alpha <= lower:
            break
        alpha = alpha * rule.eta
    return lower if alpha <= lower else alpha  # (3)


@given(
    seed=st.integers(0, 10**6),
    upper=st.sampled_from([1e-6, 0.5, 8.0, 1000.0]),
    lower=st.sampled_from([1e-5, 0.01, 0.5]),
    beta=st.sampled_from([1e-4, 0.1, 0.9]),
    eta=st.sampled_from([0.2, 0.5, 0.9]),
    scaled=st.booleans(),
    at_once=st.sampled_from([None, 1, 2, 5, 1000]),
)
def test_armijo_is_the_papers_loop(
    seed: int,
    upper: float,
    lower: float,
    beta: float,
    eta: float,
    scaled: bool,
    at_once: int | None,
) -> None:
    """Whatever number of trials shares a pass, each image gets the scalar loop's step."""
    rule = Armijo(alpha_upper=upper, alpha_lower=lower, beta=beta, eta=eta, scaled=scaled)
    f = Quadratic(6, optimum=0.3, b=1.0)
    mask = random(4, 1, 2, 3, seed=seed).sigmoid()
    tg = f.gradient(mask) + random(4, 1, 2, 3, seed=seed + 1)  # not quite the gradient: like TG
    tg[3] = -tg[3]  # uphill: nothing but α_l will do
    loss = f(mask[:, None])[:, 0]
    alpha, moved, moved_loss = rule(f, mask, loss, tg, at_once=at_once)  # type: ignore[arg-type]
    for b in range(4):
        expected = line_search(rule, lambda m: float(f(m[None, None])), mask[b], tg[b])
        assert alpha[b].item() == pytest.approx(expected, rel=1e-12)
        torch.testing.assert_close(moved[b], (mask[b] - expected * tg[b]).clamp(0, 1))
        assert moved_loss[b].item() == pytest.approx(float(f(moved[b][None, None])))


def test_armijo_trials() -> None:
    rule = Armijo(alpha_upper=8.0, alpha_lower=0.1, eta=0.25)
    assert rule.trials() == [8.0, 2.0, 0.5, 0.125, 0.1]
    assert Armijo(alpha_upper=8.0, alpha_lower=2.0, eta=0.5).trials() == [8.0, 4.0, 2.0]
    assert Armijo(alpha_upper=0.01, alpha_lower=0.1).trials() == [0.1]
    for wrong in (
        {"eta": 1.0},
        {"eta": 0.0},
        {"eta": 0.99999},
        {"alpha_lower": 0.0},
        {"alpha_upper": -1.0},
        {"alpha_upper": math.inf},
        {"beta": math.nan},
    ):
        with pytest.raises(IgosError, match="eta"):
            Armijo(**wrong)  # type: ignore[arg-type]


def test_armijo_takes_the_first_step_that_holds_with_equality() -> None:
    f, mask = Quadratic(4, optimum=0.0), random(1, 1, 2, 2).sigmoid()
    alpha, *_ = Armijo()(f, mask, f(mask[:, None])[:, 0], torch.zeros_like(mask))  # type: ignore[arg-type]
    assert alpha.item() == 1000.0


@given(seed=st.integers(0, 10**6), power=st.integers(-20, 20))
def test_scaled_steps_do_not_depend_on_the_size_of_the_gradient(seed: int, power: int) -> None:
    f = Quadratic(6, optimum=0.3, b=1.0)
    mask = random(2, 1, 2, 3, seed=seed).sigmoid()
    tg = f.gradient(mask)
    rule = Armijo(alpha_upper=16.0, alpha_lower=0.5, beta=1e-30, eta=0.5, scaled=True)
    loss = f(mask[:, None])[:, 0]
    _, one, _ = rule(f, mask, loss, tg)  # type: ignore[arg-type]
    _, other, _ = rule(f, mask, loss, 2.0**power * tg)  # type: ignore[arg-type]
    assert torch.equal(one, other)  # a power of two rounds nothing


def test_a_scaled_step_of_one_moves_the_steepest_element_all_the_way() -> None:
    def rising(masks: Tensor) -> Tensor:  # nothing meets Eq. 8
        return 1 - masks.mean(dim=(2, 3, 4))

    mask = torch.ones(2, 1, 1, 2)
    tg = torch.tensor([[0.1, 0.05], [0.0, 0.0]]).view(2, 1, 1, 2)
    rule = Armijo(alpha_upper=8.0, alpha_lower=1.0, scaled=True)
    alpha, moved, _ = rule(rising, mask, torch.zeros(2), tg)  # type: ignore[arg-type]
    half = 1 - REACH / 2
    torch.testing.assert_close(moved.flatten(1), torch.tensor([[0.0, half], [1.0, 1.0]]))
    assert alpha[0].item() == pytest.approx(10.0 * REACH)


@given(
    seed=st.integers(0, 10**6),
    sign=st.sampled_from([-1, 1]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_rounding_does_not_decide_where_a_scaled_step_ends(
    seed: int, sign: int, dtype: torch.dtype
) -> None:
    """At 1 exactly ‖1 − M‖₁ has no slope, just below it has."""
    mask = torch.full((1, 1, 3, 3), 1.0 if sign > 0 else 0.0, dtype=dtype)
    tg = sign * random(1, 1, 3, 3, seed=seed).abs().to(dtype)
    rule = Armijo(alpha_upper=1.0, alpha_lower=1.0, scaled=True)
    _, moved, _ = rule(lambda m: m.mean(dim=(2, 3, 4)), mask, torch.zeros(1, dtype=dtype), tg)  # type: ignore[arg-type]
    steepest = tg.abs() == tg.abs().max()
    assert torch.equal(moved[steepest], 1 - mask[steepest])


def test_on_the_cpu_no_trial_is_made_after_the_step_is_found() -> None:
    tried = []

    def falling(masks: Tensor) -> Tensor:
        tried.append(masks.shape[1])
        return masks.mean(dim=(2, 3, 4))

    mask = torch.ones(2, 1, 2, 2)
    rule = Armijo(alpha_upper=8.0, alpha_lower=1e-3)
    rule(falling, mask, torch.ones(2), torch.ones_like(mask))  # type: ignore[arg-type]
    assert tried == [1]
    tried.clear()
    rule(falling, mask, torch.ones(2), torch.ones_like(mask), at_once=100)  # type: ignore[arg-type]
    assert tried == [len(rule.trials())]


def test_a_search_with_one_step_is_a_fixed_step() -> None:
    """Also where it raises the loss."""
    f = Quadratic(4, optimum=0.0)
    mask, tg = random(2, 1, 2, 2).sigmoid(), 5 * random(2, 1, 2, 2, seed=1)
    rule = Armijo(alpha_upper=0.5, alpha_lower=0.5)
    before = f(mask[:, None])[:, 0]
    alpha, moved, loss = rule(f, mask, before, tg)  # type: ignore[arg-type]
    assert (loss > before).any()
    assert alpha.tolist() == [0.5, 0.5]
    torch.testing.assert_close(moved, (mask - 0.5 * tg).clamp(0, 1))
    torch.testing.assert_close(loss, f(moved[:, None])[:, 0])


def scripted(losses: list[list[float]], *, tolerance: float, patience: int) -> list[Step]:
    """A descent whose objective falls as written, one row for each iteration."""
    rows = iter(losses[1:])

    def objective(_: Tensor) -> Tensor:
        return torch.tensor(losses[0], dtype=torch.float64)[:, None]

    def rule(_: object, mask: Tensor, loss: Tensor, __: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.ones_like(loss), mask + 1, torch.tensor(next(rows), dtype=torch.float64)

    return list(
        descend(
            objective,  # type: ignore[arg-type]
            torch.zeros(len(losses[0]), 1, 1, 1, dtype=torch.float64),
            direction=torch.zeros_like,
            step_rule=rule,
            max_iterations=len(losses) - 1,
            tolerance=tolerance,
            patience=patience,
        )
    )


def test_images_stop_independently_when_they_stop_improving() -> None:
    """Image 0 gains 0.01 in its iterations 2 and 3 (less than 10 % of 1): it stops after 3."""
    first, second = [1.0, 0.5, 0.495, 0.49, 0.1, 0.1], [1.0, 0.9, 0.7, 0.5, 0.3, 0.1]
    steps = scripted(
        [list(row) for row in zip(first, second, strict=True)], tolerance=0.1, patience=2
    )
    assert [step.converged.tolist() for step in steps] == [
        [False, False],
        [False, False],
        [True, False],
        [True, False],
        [True, False],
    ]
    assert steps[-1].mask.flatten().tolist() == [3.0, 5.0]
    assert steps[-1].mean_mask.flatten().tolist() == [2.0, 3.0]  # of 1, 2, 3 and of 1 … 5
    assert steps[-1].loss.tolist() == [0.49, 0.1]
    assert steps[-1].iterations.tolist() == [3, 5]
    assert [step.alpha.tolist()[0] for step in steps] == [1, 1, 1, 0, 0]


def test_descent_ends_when_all_have_converged_and_never_at_tolerance_zero() -> None:
    flat = [[1.0]] * 8
    assert len(scripted(flat, tolerance=0.01, patience=3)) == 3
    assert len(scripted(flat, tolerance=0.0, patience=3)) == 7


def test_the_tolerance_is_relative_to_the_first_loss() -> None:
    falling = [[100.0 - k] for k in range(6)]
    assert len(scripted(falling, tolerance=0.02, patience=1)) == 1
    assert len(scripted(falling, tolerance=0.005, patience=1)) == 5
    below = [[-100.0 - k] for k in range(6)]
    assert len(scripted(below, tolerance=0.02, patience=1)) == 1
    assert len(scripted(below, tolerance=0.01, patience=1)) == 5  # a gain of just 1 % is enough


def test_a_batch_descends_like_its_images_alone(problem: Problem) -> None:
    def last(of: Problem) -> Step:
        objective = Objective(of, 0.1, 1.0)
        *_, step = descend(
            objective,
            torch.ones(len(of.image), 1, 4, 4, dtype=torch.float64),
            direction=lambda mask: total_gradient(objective, mask, path_steps=3),
            step_rule=Armijo(),
            max_iterations=6,
            tolerance=0.01,
            patience=2,
        )
        return step

    together = last(problem)
    for at in range(3):
        alone = last(single(problem, at))
        torch.testing.assert_close(together.mask[at], alone.mask[0])
        assert together.iterations[at] == alone.iterations[0]
        assert together.converged[at] == alone.converged[0]
