"""Gradient methods and occlusion against loops, plain autograd and rules written by hand."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from igos.errors import IgosError
from igos.methods.base import Native, UnsuitedError
from igos.methods.gradients import (
    Deconvnet,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    Occlusion,
    PixelMethod,
    Saliency,
    SmoothGrad,
)
from igos.problem import Problem
from small import TinyNet, single
from small_layers import LayerNet, layer_problem, unchanged

ALL = (
    Saliency(),
    InputXGradient(),
    IntegratedGradients(path_steps=5),
    SmoothGrad(samples=5),
    GuidedBackprop(),
    Deconvnet(),
    Occlusion(window=0.4, stride=0.2),
)


def each(method: object) -> str:
    return type(method).__name__


def gradient(problem: Problem, images: Tensor, *, score: str = "logit") -> Tensor:
    """∂score/∂image, image by image."""
    assert isinstance(problem.target, Tensor)
    found = []
    for image, target in zip(images, problem.target, strict=True):
        x = image[None].detach().clone().requires_grad_()
        logits = problem.model(x)[0]
        value = (logits.softmax(dim=0) if score == "probability" else logits)[target]
        found.append(torch.autograd.grad(value, x)[0])
    return torch.cat(found)


@pytest.mark.parametrize("score", ["logit", "probability"])
def test_saliency_is_the_largest_magnitude_of_the_gradient(score: str) -> None:
    problem = layer_problem()
    expected = gradient(problem, problem.image, score=score).abs().max(dim=1, keepdim=True).values
    torch.testing.assert_close(Saliency(link=score)(problem), expected)


def test_input_x_gradient() -> None:
    problem = layer_problem()
    product = problem.image * gradient(problem, problem.image)
    torch.testing.assert_close(InputXGradient().attributions(problem), product)
    torch.testing.assert_close(InputXGradient()(problem), product.abs().sum(dim=1, keepdim=True))


def test_integrated_gradients_are_the_mean_gradient_on_the_line() -> None:
    """The midpoint rule with many points, and Gauss and Legendre's with 50, find one integral."""
    problem = layer_problem(nn.Softplus())  # smooth, so that both are exact
    points = 400
    mean = torch.zeros_like(problem.image)
    for at in range(points):
        alpha = (at + 0.5) / points
        line = problem.baseline + alpha * (problem.image - problem.baseline)
        mean += gradient(problem, line) / points
    expected = (problem.image - problem.baseline) * mean
    method = IntegratedGradients()
    torch.testing.assert_close(method.attributions(problem), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        method(problem), expected.abs().sum(dim=1, keepdim=True), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("score", ["logit", "probability"])
def test_integrated_gradients_are_complete(score: str) -> None:
    problem = layer_problem(nn.Softplus())
    sums = IntegratedGradients(link=score).attributions(problem).sum(dim=(1, 2, 3))
    with torch.no_grad():
        outputs = [problem.model(images) for images in (problem.image, problem.baseline)]
    if score == "probability":
        outputs = [output.softmax(dim=1) for output in outputs]
    assert isinstance(problem.target, Tensor)
    difference = (outputs[0] - outputs[1])[torch.arange(3), problem.target]
    torch.testing.assert_close(sums, difference, rtol=1e-5, atol=1e-7)


def test_smoothgrad_is_the_mean_gradient_of_noisy_images() -> None:
    problem = layer_problem()
    method = SmoothGrad(samples=5, noise=0.3, seed=11)
    expected = torch.zeros_like(problem.image)
    generator = torch.Generator().manual_seed(11)
    spread = problem.image.amax(dim=(1, 2, 3)) - problem.image.amin(dim=(1, 2, 3))
    for _ in range(5):
        noise = torch.empty(3, 8, 6, dtype=torch.float64).normal_(generator=generator)
        noisy = problem.image + 0.3 * spread.view(3, 1, 1, 1) * noise
        expected += gradient(problem, noisy) / 5
    torch.testing.assert_close(method.attributions(problem), expected)
    torch.testing.assert_close(method(problem), expected.abs().sum(dim=1, keepdim=True))
    torch.testing.assert_close(method(replace(problem, chunk=5)), method(problem))
    assert not torch.allclose(replace(method, seed=12)(problem), method(problem))


def test_smoothgrad_without_noise_is_the_gradient() -> None:
    problem = layer_problem()
    smooth = SmoothGrad(samples=3, noise=0.0).attributions(problem)
    torch.testing.assert_close(smooth, gradient(problem, problem.image))


def test_occlusion_is_how_far_the_score_falls() -> None:
    """Windows of 4×3 px every 2×1: the mean fall over the windows that cover a pixel."""
    problem = layer_problem()
    assert isinstance(problem.target, Tensor)
    height, width = problem.size
    (tall, wide), (down, right) = (4, 3), (2, 1)
    for at in range(3):
        image, baseline = problem.image[at], problem.baseline[at]
        fall, covered = torch.zeros(2, height, width, dtype=torch.float64)
        with torch.no_grad():
            whole = problem.model(image[None])[0, problem.target[at]]
            for top in range(0, height - tall + 1, down):
                for left in range(0, width - wide + 1, right):
                    there = (..., slice(top, top + tall), slice(left, left + wide))
                    hidden = image.clone()
                    hidden[there] = baseline[there]
                    fall[there] += whole - problem.model(hidden[None])[0, problem.target[at]]
                    covered[there] += 1
        heatmap = Occlusion(window=0.5, stride=0.2)(problem)
        torch.testing.assert_close(heatmap[at, 0], fall / covered, rtol=1e-5, atol=1e-7)


class Rule(torch.autograd.Function):
    """A rectifier from 0 to `top`, with the gradient of the method written out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, top: float, guided: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.top, ctx.guided = top, guided
        return x.clamp(0, top)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        positive = upstream * (upstream > 0)
        active = (x > 0) & (x < ctx.top)
        return positive * active if ctx.guided else positive, None, None


def by_hand(problem: Problem, top: float, guided: bool) -> Tensor:
    """LayerNet with the rule in the place of its rectifiers."""
    net = problem.model
    assert isinstance(net, LayerNet)
    assert isinstance(problem.target, Tensor)

    def act(x: Tensor) -> Tensor:
        found: Tensor = Rule.apply(x, top, guided)
        return found

    image = problem.image.clone().requires_grad_()
    x = act(net.conv2(act(net.conv1(image))))
    logits = net.fc(act(net.hidden(x.mean(dim=(2, 3)))))
    return torch.autograd.grad(logits[torch.arange(3), problem.target].sum(), image)[0]


@pytest.mark.parametrize("rectifier", [nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(inplace=True)])
@pytest.mark.parametrize("guided", [True, False])
def test_guided_backprop_and_deconvnet_follow_their_rules(
    rectifier: nn.Module, guided: bool
) -> None:
    problem = layer_problem(rectifier)
    top = 6.0 if isinstance(rectifier, nn.ReLU6) else float("inf")
    expected = by_hand(problem, top, guided)
    method = GuidedBackprop() if guided else Deconvnet()
    torch.testing.assert_close(method.attributions(problem), expected)
    torch.testing.assert_close(method(problem), expected.abs().sum(dim=1, keepdim=True))
    plain = gradient(problem, problem.image)
    assert not torch.allclose(expected, plain)  # the trap: without a rule it is the gradient
    if top == 6.0 and guided:  # deconvnet does not ask which units were active
        assert not torch.allclose(expected, by_hand(problem, float("inf"), guided))


class Shared(nn.Module):
    """One rectifier on two branches, one of whose inputs goes elsewhere too."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            self.left, self.right = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
            self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU()

    def features(self, x: Tensor, act: Callable[[Tensor], Tensor]) -> Tensor:
        left, right = self.left(x), self.right(x)
        both = 2 * act(left) - 3 * act(right) + left
        logits: Tensor = self.fc(both.mean(dim=(2, 3)))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.features(x, self.act)


@pytest.mark.parametrize("guided", [True, False])
def test_a_rule_changes_the_gradient_of_its_own_rectifier_alone(guided: bool) -> None:
    problem = replace(layer_problem(), model=Shared().double())
    assert isinstance(problem.model, Shared)
    assert isinstance(problem.target, Tensor)
    image = problem.image.clone().requires_grad_()
    logits = problem.model.features(image, lambda x: Rule.apply(x, float("inf"), guided))
    (expected,) = torch.autograd.grad(logits[torch.arange(3), problem.target].sum(), image)
    method = GuidedBackprop() if guided else Deconvnet()
    torch.testing.assert_close(method.attributions(problem), expected)


class Functional(LayerNet):
    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.conv2(self.act(self.conv1(x))))
        logits: Tensor = self.fc(self.hidden(x.mean(dim=(2, 3))).clamp(min=0))
        return logits


@pytest.mark.parametrize("method", [GuidedBackprop(), Deconvnet()], ids=each)
def test_rectifiers_out_of_reach_are_refused(method: PixelMethod) -> None:
    smooth = layer_problem(nn.SiLU())
    with unchanged(smooth), pytest.raises(UnsuitedError, match="runs no module of that kind"):
        method(smooth)
    hidden = replace(smooth, model=Functional(nn.ReLU()).double())
    with unchanged(hidden), pytest.raises(UnsuitedError, match="2 of this model's are function"):
        method(hidden)
    with pytest.raises(UnsuitedError, match="a function has none"):
        method(replace(smooth, model=lambda x: x.mean(dim=(2, 3))))


class Normalised(LayerNet):
    """F.normalize clamps a length at 1e-12, which is no rectifier."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(super().forward(x))


def test_a_clamp_that_is_no_rectifier_is_let_pass() -> None:
    problem = replace(layer_problem(), model=Normalised(nn.ReLU()).double())
    assert GuidedBackprop()(problem).shape == (3, 1, 8, 6)


@pytest.mark.parametrize("method", ALL, ids=each)
def test_a_batch_is_its_images(method: PixelMethod) -> None:
    problem = layer_problem()
    assert isinstance(method, Native)
    assert method.native_resolution(problem) == (8, 6)
    together = method(problem)
    assert together.shape == (3, 1, 8, 6)
    assert together.dtype == torch.float64
    for at in range(3):
        torch.testing.assert_close(together[at : at + 1], method(single(problem, at)))


class Watched(LayerNet):
    """Counts the images of each pass."""

    def forward(self, x: Tensor) -> Tensor:
        passes.append(len(x))
        return super().forward(x)


passes: list[int] = []


@pytest.mark.parametrize("method", ALL, ids=each)
def test_no_pass_has_more_images_than_a_chunk(method: PixelMethod) -> None:
    passes.clear()
    method(replace(layer_problem(), model=Watched(nn.ReLU()).double(), chunk=2))
    assert max(passes) == 2


@pytest.mark.parametrize("method", ALL, ids=each)
def test_the_model_is_not_changed(method: PixelMethod) -> None:
    problem = layer_problem()
    assert isinstance(problem.model, nn.Module)
    problem.model.train()
    next(problem.model.parameters()).requires_grad_(False)
    with unchanged(problem):
        method(problem)
    with unchanged(problem), pytest.raises(IgosError, match="class index 9"):
        method(replace(problem, target=9))

    def fail(*_: object) -> None:
        raise RuntimeError("in the middle")

    problem.model.get_submodule("fc").register_forward_pre_hook(fail)
    with unchanged(problem), pytest.raises(IgosError, match="in the middle"):
        method(problem)


@pytest.mark.parametrize("method", ALL, ids=each)
def test_the_model_runs_in_evaluation_mode(method: PixelMethod) -> None:
    problem = layer_problem()
    assert isinstance(problem.model, LayerNet)
    problem.model.pool = nn.Sequential(nn.Dropout(0.5), problem.model.pool)  # type: ignore[assignment]
    expected = method(problem)
    problem.model.train()
    torch.testing.assert_close(method(problem), expected)


@pytest.mark.parametrize("method", ALL, ids=each)
def test_a_target_function_is_what_is_explained(method: PixelMethod) -> None:
    """`score` is not asked then."""
    problem = layer_problem()
    function = replace(problem, target=lambda logits: logits[:, 1])
    expected = method(replace(problem, target=1))
    torch.testing.assert_close(method(function), expected)
    torch.testing.assert_close(replace(method, link="probability")(function), expected)


def test_a_model_without_gradient_is_refused() -> None:
    problem = replace(layer_problem(), model=lambda x: x.detach().mean(dim=(2, 3)), target=0)
    with pytest.raises(IgosError, match="no gradient"):
        Saliency()(problem)
    assert Occlusion()(problem).shape == (3, 1, 8, 6)  # needs none


def test_batch_norms_and_float32(problem: Problem) -> None:
    """TinyNet has batch norms and functional rectifiers; it is explained in float32 as well."""
    expected = Saliency()(problem)
    single_precision = replace(
        problem,
        model=TinyNet().eval(),
        image=problem.image.float(),
        baseline=problem.baseline.float(),
    )
    found = Saliency()(single_precision)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected.float(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (Saliency, {"link": "logits"}, "unknown link 'logits': did you mean 'logit'"),
        (IntegratedGradients, {"path_steps": 0}, "path_steps 0: give a whole number"),
        (SmoothGrad, {"samples": 2.5}, "samples 2.5: give a whole number"),
        (SmoothGrad, {"noise": -1}, "noise -1: give a number from 0 up"),
        (SmoothGrad, {"seed": -1}, "seed -1: give a whole number"),
        (Occlusion, {"window": 0.0}, "window 0.0: give a share"),
        (Occlusion, {"stride": 1.5}, "stride 1.5: give a share"),
        (Occlusion, {"stride": 0.5}, "stride 0.5: give at most the window"),
    ],
)
def test_settings_are_checked(
    method: Callable[..., object], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(IgosError, match=message):
        method(**settings)


def test_captum_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(IgosError, match=r"method Saliency needs captum: pip install 'igos\[comp"):
        Saliency()(layer_problem())
