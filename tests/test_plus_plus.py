"""iGOS++ against its formulas, one image, one mask and one pass of the model after another."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from igos.errors import IgosError
from igos.image import phi, up
from igos.methods.plus_plus import EDGE, IGOSPlusPlus, bilateral_tv
from igos.problem import Problem
from small import random, single

FAST = IGOSPlusPlus(
    resolution=(6, 5), lambda1=0.01, lambda2=0.05, noise=0.05, path_steps=3, max_iterations=3
)


def naive_bilateral_tv(mask: Tensor, image: Tensor, std: tuple[float, ...]) -> Tensor:
    """Pixel by pixel, for a mask (1, h, w) and an image (3, H, W)."""
    pixels = image * torch.tensor(std, dtype=image.dtype)[:, None, None]
    (height, width), large = image.shape[-2:], up(mask, (image.shape[-2], image.shape[-1]))
    sums = torch.zeros((), dtype=image.dtype)
    for small in (mask, large):
        rows, columns = small.shape[-2:]
        for dy, dx in ((1, 0), (0, 1)):
            steps = []
            for i in range(rows - dy):
                for j in range(columns - dx):
                    step = (small[0, i + dy, j + dx] - small[0, i, j]) ** 2
                    if small is large:
                        edge = ((pixels[:, i + dy, j + dx] - pixels[:, i, j]) ** 2).mean()
                        step = step * torch.exp(-edge / EDGE)
                    steps.append(step)
            sums = sums + torch.stack(steps).mean()
    assert (height, width) == large.shape[-2:]
    return sums / 2


def test_bilateral_tv_is_a_loop_over_pixels(problem: Problem) -> None:
    masks = random(3, 2, 1, 6, 5).sigmoid()
    found = bilateral_tv(masks, problem)
    for b in range(3):
        for k in range(2):
            expected = naive_bilateral_tv(masks[b, k], problem.image[b], problem.std)
            torch.testing.assert_close(found[b, k], expected)


def by_hand(problem: Problem, method: IGOSPlusPlus) -> Tensor:
    image, baseline = problem.image[0], problem.baseline[0]
    std = torch.tensor(problem.std, dtype=torch.float64)[:, None, None]
    assert isinstance(problem.target, Tensor)
    target, steps, weights = problem.target[0], method.path_steps, method.regularisation

    def score(mask: Tensor, at: Tensor) -> Tensor:
        found: Tensor = problem.model(phi(at, baseline, mask)[None]).softmax(dim=1)[0, target]
        return found

    def g(x: Tensor, y: Tensor) -> Tensor:
        btv = naive_bilateral_tv(x * y, image, problem.std)
        return weights.lambda1 * (1 - x * y).abs().mean() + weights.lambda2 * btv

    def total(x: Tensor, y: Tensor) -> float:
        both = score(x * y, image) - score(1 - x * y, image)
        return (score(x, image) - score(1 - y, image) + both + g(x, y)).item()

    def integrated(mask: Tensor, noise: Tensor, *, show: bool) -> Tensor:
        """∇ᴵᴳ of f(Φ(m)), or of −f(Φ(1 − m))."""
        found = torch.zeros_like(mask)
        for s in range(1, steps + 1):
            point = (s / steps * mask).requires_grad_()
            noisy = image + method.noise * noise[s - 1] / std
            value = -score(1 - point, noisy) if show else score(point, noisy)
            found += torch.autograd.grad(value, point)[0] / steps
        return found

    generator = torch.Generator().manual_seed(method.seed)
    x = y = torch.ones(1, 6, 5, dtype=torch.float64)
    for _ in range(method.max_iterations):
        noise = torch.empty(steps, *image.shape, dtype=torch.float64).normal_(generator=generator)
        both = integrated(x * y, noise, show=False) + integrated(x * y, noise, show=True)
        tx = (integrated(x, noise, show=False) + both * y) / 2
        ty = (integrated(y, noise, show=True) + both * x) / 2
        here = [one.clone().requires_grad_() for one in (x, y)]
        gx, gy = torch.autograd.grad(g(*here), here)
        tx, ty = tx + gx, ty + gy
        squared = float(tx.square().sum() + ty.square().sum())
        before, rule = total(x, y), method.step_rule
        for alpha in rule.trials():
            moved = [(one - alpha * t).clamp(0, 1) for one, t in ((x, tx), (y, ty))]
            if total(*moved) - before <= -alpha * rule.beta * squared:
                break
        x, y = moved
    return (1 - x * y).detach()


def test_it_is_its_formulas(problem: Problem) -> None:
    together = FAST(problem)
    for at in range(3):
        expected = by_hand(single(problem, at), FAST)
        assert expected.std() > 0.01  # something was found
        torch.testing.assert_close(together[at], expected)


def test_published_settings() -> None:
    settings = IGOSPlusPlus(resolution=224).settings
    assert (settings["lambda1"], settings["lambda2"]) == (10, 20)
    assert (settings["path_steps"], settings["max_iterations"]) == (20, 20)
    assert IGOSPlusPlus().settings["lambda1"] == 1
    assert replace(FAST, lambda2=3.0).settings["lambda2"] == 3


def test_wrong_settings_are_named(one: Problem) -> None:
    for wrong, message in (
        ({"path_steps": 0}, "path_steps 0"),
        ({"lambda1": -1.0}, "lambda1 -1.0"),
        ({"seed": -1}, "seed -1"),
        ({"step_rule": "armijo"}, "step_rule 'armijo'"),
    ):
        with pytest.raises(IgosError, match=message):
            replace(FAST, **wrong)  # type: ignore[arg-type]
    with pytest.raises(IgosError, match="resolution 12×12: the image is 12×10"):
        IGOSPlusPlus(resolution=12)(one)
