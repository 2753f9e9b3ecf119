"""Deletion and insertion: is what the heatmap marks what the model looks at?

Deletion takes away the most important pixels first and should lose the class at once (a small
area under the curve); insertion starts from the baseline, reveals them, and should find the class
at once (a large area).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from igos.errors import IgosError
from igos.image import blur, phi, up
from igos.problem import Problem


@dataclass(frozen=True, eq=False)
class Curve:
    """The score of one image as a growing fraction of its pixels is changed."""

    fraction: Tensor  # (P,) from 0 to 1
    score: Tensor  # (P,)

    @property
    def auc(self) -> float:
        """The area under the curve, by the trapezoid rule.

        >>> Curve(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([1.0, 0.5, 0.0])).auc
        0.5
        """
        return float(torch.trapezoid(self.score.double(), self.fraction.double()))


@dataclass(frozen=True)
class CurveProtocol:
    """How pixels are counted, and what takes the place of a missing one.

    `resample` makes the map whose pixels are ranked, given the heatmap and the image's size.
    The two baselines are functions of the problem; both curves use every pixel of the map.
    """

    name: str
    pixels_a_step: Callable[[int, int], int]  # (h, w) -> N
    resample: Callable[[Tensor, tuple[int, int]], Tensor]
    deletion_baseline: Callable[[Problem], Tensor]
    insertion_baseline: Callable[[Problem], Tensor]


# The heatmap's own pixels, in at most 50 steps, towards and from the problem's baseline.
PAPER_CURVES = CurveProtocol(
    name="paper",
    pixels_a_step=lambda h, w: math.ceil(h * w / 50),
    resample=lambda heatmap, _: heatmap,
    deletion_baseline=lambda problem: problem.baseline,
    insertion_baseline=lambda problem: problem.baseline,
)

# Petsiuk et al. 2018: the image's pixels, one row's number a step; grey for deletion, a weaker
# blur (kernel 11, σ 5) for insertion.
RISE_CURVES = CurveProtocol(
    name="rise",
    pixels_a_step=lambda _, w: w,
    resample=up,
    deletion_baseline=lambda problem: torch.zeros_like(problem.image),
    insertion_baseline=lambda problem: blur(problem.image, kernel=11, sigma=5.0),
)


MASKS_A_PASS = 16  # masks made at once for each image of a pass: few bytes, but not all of them
PROTOCOLS = {protocol.name: protocol for protocol in (PAPER_CURVES, RISE_CURVES)}


def deletion(
    problem: Problem, heatmap: Tensor, *, protocol: CurveProtocol = PAPER_CURVES
) -> list[Curve]:
    """One curve for each image: from the whole image to the baseline."""
    baseline = protocol.deletion_baseline(problem)
    return _curves(problem, heatmap, protocol, start=problem.image, end=baseline)


def insertion(
    problem: Problem, heatmap: Tensor, *, protocol: CurveProtocol = PAPER_CURVES
) -> list[Curve]:
    """One curve for each image: from the baseline to the whole image."""
    baseline = protocol.insertion_baseline(problem)
    return _curves(problem, heatmap, protocol, start=baseline, end=problem.image)


def rank(heatmap: Tensor) -> Tensor:
    """Each pixel's place, 0 for the most important: (..., h, w) long.

    Equal pixels are ranked from the top left, row by row.

    >>> rank(torch.tensor([[0.1, 0.7], [0.7, 0.9]])).tolist()
    [[3, 1], [2, 0]]
    """
    order = heatmap.flatten(-2).argsort(dim=-1, descending=True, stable=True)
    return order.argsort(dim=-1).view(heatmap.shape)


def changed(start: Tensor, end: Tensor, ranks: Tensor, counts: Tensor) -> Tensor:
    """`start` with the first n pixels of the map taken from `end`, for each of K counts n.

    (B, 3, H, W), ranks (B, 1, h, w), counts (K,) -> (B, K, 3, H, W).
    """
    return phi(start[:, None], end[:, None], _kept(ranks, counts).to(start.dtype))


def _kept(ranks: Tensor, counts: Tensor) -> Tensor:
    """The pixels that are left when the first n have gone: (B, K, 1, h, w) bool."""
    return ranks[:, None] >= counts.view(-1, 1, 1, 1)


def _curves(
    problem: Problem, heatmap: Tensor, protocol: CurveProtocol, *, start: Tensor, end: Tensor
) -> list[Curve]:
    if heatmap.ndim != 4 or heatmap.shape[:2] != (len(problem.image), 1):
        raise IgosError(
            f"heatmap of shape {tuple(heatmap.shape)}: give ({len(problem.image)}, 1, h, w), one "
            "for each image"
        )
    ranks = rank(protocol.resample(heatmap, problem.size))
    total = ranks.shape[-2] * ranks.shape[-1]
    each = protocol.pixels_a_step(ranks.shape[-2], ranks.shape[-1])
    counts = torch.tensor([*range(0, total, each), total], device=ranks.device)
    way = replace(problem, image=start, baseline=end)
    at_once = max(1, MASKS_A_PASS * problem.chunk // len(start))
    with torch.no_grad():
        ends = way.score(torch.stack([start, end], dim=1))  # exactly: no mask is applied
        points = [
            way.score_masked(_kept(ranks, some).to(start.dtype))
            for some in torch.split(counts[1:-1], at_once)
            if len(some) > 0  # a heatmap of one pixel has nothing between its ends
        ]
    scores = torch.cat([ends[:, :1], *points, ends[:, 1:]], dim=1).cpu()  # (B, P)
    fraction = counts.cpu() / total
    return [Curve(fraction, score) for score in scores]
