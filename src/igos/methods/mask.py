"""Mask: the same objective by plain gradients and Adam (Fong and Vedaldi, ICCV 2017).

    heatmap = Mask(resolution=28)(problem)

What I-GOS is compared with: F_c of Eq. 9 is the same, the direction is ∇F_c in place of Eq. 6, and
the step is Adam's in place of a line search.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor

from igos.descent import Step
from igos.image import check_resolution, heatmap_of
from igos.methods.base import check_counts, check_fits, check_not_negative
from igos.methods.regularisation import Regularisation, interpolate
from igos.problem import Objective, Problem

# Measured on EfficientNet-Lite0 (benchmarks/tune.py, docs/deviations.md).
MEASURED = {
    7: Regularisation(lambda1=0.03, lambda2=0.2),
    28: Regularisation(lambda1=0.3, lambda2=1.0),
    224: Regularisation(lambda1=3.0, lambda2=20.0),
}


@dataclass(frozen=True, kw_only=True)
class Mask:
    """Mask, at its best: plain gradients and Adam on the objective of I-GOS."""

    resolution: int | tuple[int, int] = 28
    lambda1: float | None = None  # None: the value measured for the resolution
    lambda2: float | None = None
    learning_rate: float = 1.0  # ours, docs/deviations.md; Fong and Vedaldi's code: 0.1
    max_iterations: int = 250  # ours, docs/deviations.md; the paper: up to 500
    average: bool = True  # the mean of all masks, as our I-GOS takes it; docs/deviations.md

    @classmethod
    def paper(cls, *, resolution: int | tuple[int, int] = 28) -> Self:
        """Mask with the settings that the I-GOS paper found best for it, and the last mask."""
        return cls(
            resolution=resolution,
            lambda1=0.01,
            lambda2=0.2,
            learning_rate=0.1,
            max_iterations=500,
            average=False,
        )

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        check_counts(self, "max_iterations")
        check_not_negative(self, "lambda1", "lambda2", "learning_rate")

    @property
    def regularisation(self) -> Regularisation:
        """λ₁ and λ₂ in force: as set, or as measured."""
        measured = interpolate(MEASURED, check_resolution(self.resolution))
        return measured.but(lambda1=self.lambda1, lambda2=self.lambda2)

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting in force, as plain values: the method's identity."""
        weights = self.regularisation
        return {
            **asdict(self),
            "resolution": list(check_resolution(self.resolution)),
            "lambda1": weights.lambda1,
            "lambda2": weights.lambda2,
        }

    def steps(self, problem: Problem) -> Iterator[Step]:
        """Adam from a mask of ones, one `Step` an iteration.

        Adam treats every element by itself, so the images of a batch are independent.
        """
        shape = check_resolution(self.resolution)
        check_fits(shape, problem.size)
        weights = self.regularisation
        objective = Objective(problem, weights.lambda1, weights.lambda2)
        count = len(problem.image)
        mask = problem.image.new_ones(count, 1, *shape, requires_grad=True)
        mean_mask = torch.zeros_like(mask)
        adam = torch.optim.Adam([mask], lr=self.learning_rate)
        for iteration in range(self.max_iterations + 1):
            # The gradient's pass gives F_c of the mask that the step before has made.
            with torch.enable_grad():
                loss = objective(mask[:, None])[:, 0]
                (mask.grad,) = torch.autograd.grad(loss.sum(), mask)
            if iteration > 0:
                now = mask.detach().clone()
                mean_mask = mean_mask + (now - mean_mask) / iteration
                yield self._step(iteration, now, mean_mask, loss.detach())
            adam.step()
            with torch.no_grad():
                mask.clamp_(0, 1)

    def _step(self, iteration: int, mask: Tensor, mean_mask: Tensor, loss: Tensor) -> Step:
        return Step(
            iteration,
            mask,
            mean_mask,
            loss,
            alpha=torch.full_like(loss, self.learning_rate),
            iterations=torch.full_like(loss, iteration, dtype=torch.long),
            converged=torch.zeros_like(loss, dtype=torch.bool),
        )

    def heatmap(self, step: Step) -> Tensor:
        return heatmap_of(step.mean_mask if self.average else step.mask)

    def __call__(self, problem: Problem) -> Tensor:
        """The heatmap 1 − M, (B, 1, h, w)."""
        (last,) = deque(self.steps(problem), maxlen=1)  # hundreds of masks are not kept
        return self.heatmap(last)
