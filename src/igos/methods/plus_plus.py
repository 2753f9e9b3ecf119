"""iGOS++: two masks, one to hide and one to show (Khorram, Lawson and Li, CHIL 2021).

    heatmap = IGOSPlusPlus(resolution=28)(problem)

What two-sided I-GOS is compared with. The mask x hides, y shows; both begin as ones. Minimised is

    F(x, y) = f(Φ(x)) − f(Φ(1 − y)) + f(Φ(xy)) − f(Φ(1 − xy)) + λ₁‖1 − xy‖₁ + λ₂BTV(xy)

with path-integrated gradients, halved, for the scores and the plain gradient for the rest, and with
the line search of I-GOS over both masks at once. The heatmap is 1 − xy. Written from the paper.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from igos.descent import Armijo, Step, descend, gradient, path_gradient
from igos.image import check_resolution, heatmap_of, l1, tv, up
from igos.methods.base import (
    check_counts,
    check_fits,
    check_not_negative,
    check_seed,
    check_step_rule,
)
from igos.methods.regularisation import Regularisation, interpolate
from igos.problem import Problem

# Published with it, for ResNet50 and VGG19.
PUBLISHED = {
    28: Regularisation(lambda1=1.0, lambda2=20.0),
    224: Regularisation(lambda1=10.0, lambda2=20.0),
}
EDGE = 0.01  # σ of bilateral TV: a step between pixels of more than 0.1 is an edge; published


@dataclass(frozen=True, kw_only=True)
class IGOSPlusPlus:
    """iGOS++ with its published settings."""

    resolution: int | tuple[int, int] = 28
    lambda1: float | None = None  # None: as published for the resolution
    lambda2: float | None = None
    noise: float = 0.045  # its authors' code: 0.2 at a standard deviation of 0.225
    path_steps: int = 20  # S; published
    max_iterations: int = 20  # published
    step_rule: Armijo = field(default_factory=Armijo)
    seed: int = 0

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        check_counts(self, "path_steps", "max_iterations")
        check_not_negative(self, "lambda1", "lambda2", "noise")
        check_step_rule(self.step_rule)
        check_seed(self.seed)

    @property
    def regularisation(self) -> Regularisation:
        """λ₁ and λ₂ in force: as set, or as published."""
        published = interpolate(PUBLISHED, check_resolution(self.resolution))
        return published.but(lambda1=self.lambda1, lambda2=self.lambda2, noise=self.noise)

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting in force, as plain values: the method's identity."""
        weights = self.regularisation
        return {
            **asdict(self),
            "lambda1": weights.lambda1,
            "lambda2": weights.lambda2,
            "resolution": list(check_resolution(self.resolution)),
        }

    def steps(self, problem: Problem) -> Iterator[Step]:
        """The descent, one `Step` an iteration; its masks are (B, 2, h, w), x and y."""
        shape = check_resolution(self.resolution)
        check_fits(shape, problem.size)
        objective = _Objective(problem, self.regularisation)
        generator = torch.Generator(problem.image.device).manual_seed(self.seed)

        def direction(mask: Tensor) -> Tensor:
            noise = problem.noise(self.path_steps, self.noise, generator)
            return objective.total_gradient(mask, path_steps=self.path_steps, noise=noise)

        return descend(
            objective,
            problem.image.new_ones(len(problem.image), 2, *shape),
            direction=direction,
            step_rule=self.step_rule,
            max_iterations=self.max_iterations,
            tolerance=0.0,
            patience=self.max_iterations,
        )

    def __call__(self, problem: Problem) -> Tensor:
        """The heatmap 1 − xy, (B, 1, h, w)."""
        (last,) = deque(self.steps(problem), maxlen=1)  # the steps before are not kept
        return self.heatmap(last)

    def heatmap(self, step: Step) -> Tensor:
        return heatmap_of(_product(step.mask))


@dataclass(frozen=True, eq=False)
class _Objective:
    """F(x, y) of K pairs of masks of each image, (B, K, 2, h, w) -> (B, K)."""

    problem: Problem
    weights: Regularisation

    def f(self, masks: Tensor, noise: Tensor | None = None) -> Tensor:
        """The four scores, from x, y and their product, (B, K, 3, h, w)."""
        x, y, xy = masks.split(1, dim=2)
        hide, show = torch.cat([x, xy], dim=1), 1 - torch.cat([y, xy], dim=1)
        twice = None if noise is None else torch.cat([noise, noise])
        scores = self.problem.score_masked(hide, twice) - self.problem.score_masked(show, twice)
        return scores[:, : x.shape[1]] + scores[:, x.shape[1] :]

    def g(self, masks: Tensor) -> Tensor:
        xy = _product(masks)
        sparse, smooth = self.weights.lambda1, self.weights.lambda2
        return sparse * l1(xy) + smooth * bilateral_tv(xy, self.problem)

    def __call__(self, masks: Tensor) -> Tensor:
        return self.f(torch.cat([masks, _product(masks)], dim=2)) + self.g(masks)

    def total_gradient(self, mask: Tensor, *, path_steps: int, noise: Tensor | None) -> Tensor:
        """½∇ᴵᴳf + ∇g, (B, 2, h, w). The product's path is straight, too: (s/S)·xy."""
        three = torch.cat([mask, _product(mask)], dim=1)
        path = path_gradient(lambda m: self.f(m, noise), three, path_steps=path_steps)
        own, product = path.split([2, 1], dim=1)
        scores: Tensor = own + product * mask.flip(1)  # ∂xy/∂x = y, ∂xy/∂y = x
        return scores / 2 + gradient(self.g, mask[:, None])[:, 0]


def _product(masks: Tensor) -> Tensor:
    """xy: (..., 2, h, w) -> (..., 1, h, w)."""
    # Not `prod`: its derivative counts zeros, and waits for the GPU to know.
    return masks.narrow(-3, 0, 1) * masks.narrow(-3, 1, 1)


def bilateral_tv(masks: Tensor, problem: Problem) -> Tensor:
    """½(TV(M) + TV of up(M) that counts little across the image's edges): (B, K, …) -> (B, K)."""
    large = up(masks, problem.size)
    total = tv(masks)
    for dim in (-2, -1):
        step = problem.in_pixels(problem.image.diff(dim=dim))
        edge = step.square().mean(dim=1, keepdim=True)  # (B, 1, H, W)
        weight = (-edge / EDGE).exp()[:, None]
        total = total + (weight * large.diff(dim=dim).square()).mean(dim=(-3, -2, -1))
    return total / 2
