"""The settings that depend on a mask's resolution, from a table of measured ones."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class Regularisation:
    """The settings that depend on the mask's resolution."""

    lambda1: float
    lambda2: float
    noise: float = 0.0  # standard deviation of n_s, in pixel units (0..1)
    first: float = 0.0  # share of the first direction in the heatmap

    def but(self, **given: float | None) -> Self:
        """With what is given in place of what was measured; `None` is not given."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def interpolate(table: Mapping[int, Regularisation], resolution: tuple[int, int]) -> Regularisation:
    """The table's settings, interpolated in the logarithm of the mask's mean side.

    λ₁ and λ₂ are interpolated in their logarithm, the others linearly; outside the measured range
    the nearest end holds.
    """
    side = min(max(math.sqrt(resolution[0] * resolution[1]), min(table)), max(table))
    below = max(known for known in table if known <= side)
    above = min(known for known in table if known >= side)
    low, high = table[below], table[above]
    weight = math.log(side / below) / math.log(above / below) if above > below else 0.0

    def geometric(a: float, b: float) -> float:
        return float(a ** (1 - weight) * b**weight)

    def linear(a: float, b: float) -> float:
        return (1 - weight) * a + weight * b

    return Regularisation(
        lambda1=geometric(low.lambda1, high.lambda1),
        lambda2=geometric(low.lambda2, high.lambda2),
        noise=linear(low.noise, high.noise),
        first=linear(low.first, high.first),
    )
