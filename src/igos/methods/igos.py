"""I-GOS: optimise a mask with integrated gradients (Qi, Khorram and Li, AAAI 2020).

    heatmap = IGOS(resolution=28)(problem)

Algorithm 1 is `descend` with the direction `total_gradient` (Eq. 6) and the step rule `Armijo`
(Eq. 8), from a mask of ones. This file holds the settings.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from igos.descent import Armijo, Step, descend, total_gradient
from igos.errors import IgosError
from igos.image import check_resolution, heatmap_of
from igos.methods.base import (
    check_counts,
    check_fits,
    check_not_negative,
    check_seed,
    check_step_rule,
)
from igos.methods.regularisation import Regularisation, interpolate
from igos.problem import Objective, Problem

# Measured with benchmarks/tune.py on EfficientNet-Lite0, `first` on a ResNet50, too:
# docs/deviations.md.
MEASURED = {
    7: Regularisation(lambda1=0.9, lambda2=3.0, noise=0.0, first=0.5),
    14: Regularisation(lambda1=0.9, lambda2=1.5, noise=0.0, first=0.5),
    28: Regularisation(lambda1=0.9, lambda2=4.0, noise=0.01, first=0.4),
    112: Regularisation(lambda1=2.7, lambda2=3.0, noise=0.01, first=0.1),
    224: Regularisation(lambda1=10.8, lambda2=20.0, noise=0.03),
}
# Likewise, docs/two_sided.md.
TWO_SIDED = {
    7: Regularisation(lambda1=2.7, lambda2=0.4, noise=0.0, first=0.3),
    14: Regularisation(lambda1=3.0, lambda2=0.25, noise=0.0, first=0.1),
    28: Regularisation(lambda1=4.0, lambda2=0.175, noise=0.0, first=0.1),
    112: Regularisation(lambda1=2.7, lambda2=2.0, noise=0.01, first=0.1),
    224: Regularisation(lambda1=2.7, lambda2=3.5, noise=0.02, first=0.1),
}
# Ours, docs/deviations.md: steps in units that fit any mask, and a least one that leads somewhere.
SEARCH = Armijo(alpha_upper=100.0, alpha_lower=1.0, scaled=True)


@dataclass(frozen=True, kw_only=True)
class IGOS:
    """I-GOS with our measured defaults.

    λ₁, λ₂, noise and `first` that are `None` have the values measured for the resolution.
    """

    resolution: int | tuple[int, int] = 28
    lambda1: float | None = None
    lambda2: float | None = None
    noise: float | None = None
    path_steps: int = 10  # S; ours, docs/deviations.md
    max_iterations: int = 10  # ours, docs/deviations.md; the paper's Table 3: 15
    tolerance: float = 0.003  # ours, docs/deviations.md
    patience: int = 10  # ours, docs/deviations.md
    reveal: float = 0.0  # w of the two-sided objective; 0: the paper's
    average: bool = True  # the mean of all masks, not the last; ours, docs/deviations.md
    first: float | None = None  # share of the first direction in the heatmap; ours, likewise
    step_rule: Armijo = SEARCH
    seed: int = 0

    @classmethod
    def paper(cls, *, resolution: int | tuple[int, int] = 28, seed: int = 0) -> Self:
        """I-GOS with the paper's settings and, where it gives none, its authors' code's."""
        return cls(
            resolution=resolution,
            lambda1=1.0,
            lambda2=20.0,
            noise=0.045,
            path_steps=20,
            max_iterations=15,
            tolerance=0.003,  # the paper does not say when it stops
            patience=8,
            average=False,
            first=0.0,
            step_rule=Armijo(),
            seed=seed,
        )

    @classmethod
    def two_sided(cls, *, resolution: int | tuple[int, int] = 28, seed: int = 0) -> Self:
        """Hiding what the heatmap marks loses the class, and showing it alone brings it back."""
        return cls(
            resolution=resolution,
            max_iterations=15,
            reveal=1.0,
            step_rule=replace(SEARCH, alpha_upper=64.0, eta=0.5),  # finer, docs/two_sided.md
            seed=seed,
        )

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        check_counts(self, "path_steps", "max_iterations", "patience")
        check_not_negative(self, "lambda1", "lambda2", "noise", "tolerance", "reveal", "first")
        if self.first is not None and self.first > 1:
            raise IgosError(f"first {self.first!r}: it is a share, give at most 1")
        if not isinstance(self.average, bool):
            raise IgosError(f"average {self.average!r}: give True or False")
        check_step_rule(self.step_rule)
        check_seed(self.seed)

    @property
    def regularisation(self) -> Regularisation:
        """What depends on the resolution and is in force: as set, or as measured."""
        table = MEASURED if self.reveal == 0 else TWO_SIDED
        measured = interpolate(table, check_resolution(self.resolution))
        return measured.but(
            lambda1=self.lambda1, lambda2=self.lambda2, noise=self.noise, first=self.first
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting in force, as plain values: the method's identity."""
        return {
            **asdict(self),
            **asdict(self.regularisation),
            "resolution": list(check_resolution(self.resolution)),
        }

    def steps(self, problem: Problem) -> Iterator[Step]:
        """Algorithm 1, one `Step` an iteration."""
        shape = check_resolution(self.resolution)
        check_fits(shape, problem.size)
        weights = self.regularisation
        objective = Objective(problem, weights.lambda1, weights.lambda2, self.reveal)
        # One stream, broadcast: each image meets the noise that it would meet alone.
        generator = torch.Generator(problem.image.device).manual_seed(self.seed)

        def direction(mask: Tensor) -> Tensor:
            noise = problem.noise(self.path_steps, weights.noise, generator)
            return total_gradient(objective, mask, path_steps=self.path_steps, noise=noise)

        return descend(
            objective,
            problem.image.new_ones(len(problem.image), 1, *shape),
            direction=direction,
            step_rule=self.step_rule,
            max_iterations=self.max_iterations,
            tolerance=self.tolerance,
            patience=self.patience,
        )

    def __call__(self, problem: Problem) -> Tensor:
        """The heatmap, (B, 1, h, w)."""
        (last,) = deque(self.steps(problem), maxlen=1)  # the steps before are not kept
        return self.heatmap(last)

    def heatmap(self, step: Step) -> Tensor:
        """What the heatmap is if the descent ends with this step.

        Below 0, where `first` counts, are pixels whose hiding raises the score.
        """
        heatmap = heatmap_of(step.mean_mask if self.average else step.mask)
        share = self.regularisation.first
        if share == 0:
            return heatmap
        assert step.first_direction is not None
        return (1 - share) * _to_one(heatmap) + share * _to_one(step.first_direction)


def _to_one(heatmap: Tensor) -> Tensor:
    """Each image's heatmap scaled so that its largest absolute value is 1; zeros stay zeros."""
    top = heatmap.abs().amax(dim=(1, 2, 3), keepdim=True)
    return heatmap / torch.where(top > 0, top, 1)
