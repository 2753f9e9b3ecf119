"""Deletion and insertion against a naive loop over pixels, and curves computed by hand."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from igos.errors import IgosError
from igos.image import blur, phi, up
from igos.metrics.curves import (
    PAPER_CURVES,
    RISE_CURVES,
    Curve,
    CurveProtocol,
    deletion,
    insertion,
    rank,
)
from igos.problem import Problem
from small import TinyNet, random


def naive(
    problem: Problem, heatmap: Tensor, *, at: int, each: int, start: Tensor, end: Tensor
) -> tuple[list[float], list[float]]:
    """Change pixel after pixel of the heatmap, the largest first, and score every `each`."""
    h, w = heatmap.shape[-2:]
    values = {(i, j): float(heatmap[at, 0, i, j]) for i in range(h) for j in range(w)}
    order = sorted(values, key=lambda pixel: (-values[pixel], pixel))
    keep = torch.ones(1, h, w, dtype=torch.float64)
    assert isinstance(problem.target, Tensor)
    fractions, scores = [], []
    for count in range(h * w + 1):
        if count > 0:
            keep[0][order[count - 1]] = 0
        if count % each == 0 or count == h * w:
            composed = phi(start[at], end[at], keep)[None]
            score = problem.model(composed).softmax(dim=1)[0, problem.target[at]]
            fractions.append(count / (h * w))
            scores.append(score.item())
    return fractions, scores


@pytest.mark.parametrize(("h", "w"), [(4, 5), (12, 10), (1, 3)])
def test_the_papers_curves_are_a_naive_loop_over_pixels(problem: Problem, h: int, w: int) -> None:
    heatmap = random(3, 1, h, w, seed=7).mul(3).round()  # with many equal values
    each = math.ceil(h * w / 50)
    for curves, start, end in (
        (deletion(problem, heatmap), problem.image, problem.baseline),
        (insertion(problem, heatmap), problem.baseline, problem.image),
    ):
        for at in range(3):
            fractions, scores = naive(problem, heatmap, at=at, each=each, start=start, end=end)
            torch.testing.assert_close(curves[at].fraction.tolist(), fractions, atol=1e-6, rtol=0)
            torch.testing.assert_close(curves[at].score.tolist(), scores)


def test_first_and_last_points_are_exactly_the_scores_of_both_images(problem: Problem) -> None:
    heatmap = random(3, 1, 5, 5)
    ends = problem.score(torch.stack([problem.image, problem.baseline], dim=1))
    for at, (gone, come) in enumerate(
        zip(deletion(problem, heatmap), insertion(problem, heatmap), strict=True)
    ):
        assert [gone.score[0], gone.score[-1]] == [ends[at, 0], ends[at, 1]]
        assert [come.score[0], come.score[-1]] == [
            *problem.score(torch.stack([problem.baseline, problem.image], dim=1))[at]
        ]
        assert gone.fraction[[0, -1]].tolist() == [0, 1]


class Counting(nn.Module):
    """The probability of class 0 is the mean of the image: curves can be done by hand."""

    def forward(self, images: Tensor) -> Tensor:
        p = images.mean(dim=(1, 2, 3)).clamp(1e-9, 1 - 1e-9)
        return torch.stack([p.log(), (1 - p).log()], dim=1)


def counting(side: int = 4) -> Problem:
    image = torch.zeros(1, 3, side, side, dtype=torch.float64)
    image[..., : side // 2] = 1  # the left half counts
    return Problem(Counting(), image, 0 * image, 0)


def test_curves_done_by_hand() -> None:
    problem = counting()
    good = problem.image[:, :1].clone()  # marks just the half that counts
    gone, come = deletion(problem, good)[0], insertion(problem, good)[0]
    # From 1/2 to 0 over the first half of the pixels, then 0; and the other way round.
    assert gone.auc == pytest.approx(0.5 * 0.5 / 2, abs=1e-6)
    assert come.auc == pytest.approx(0.5 * 0.5 / 2 + 0.5 * 0.5, abs=1e-6)
    assert deletion(problem, 1 - good)[0].auc == pytest.approx(0.5 * 0.5 + 0.5 * 0.5 / 2, abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9), st.integers(0, 99))
def test_auc_is_the_trapezoid_rule(scores: list[float], seed: int) -> None:
    inner = sorted(random(len(scores) - 2, seed=seed).sigmoid().tolist())
    fractions = [0.0, *inner, 1.0]
    area = sum(
        (fractions[i + 1] - fractions[i]) * (scores[i] + scores[i + 1]) / 2
        for i in range(len(scores) - 1)
    )
    curve = Curve(torch.tensor(fractions).double(), torch.tensor(scores).double())
    assert curve.auc == pytest.approx(area, abs=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5))
def test_rank_is_a_permutation_that_sorts_with_ties_from_the_top_left(
    seed: int, h: int, w: int
) -> None:
    heatmap = random(h, w, seed=seed).round()
    ranks = rank(heatmap)
    order = sorted(range(h * w), key=lambda at: (-heatmap.flatten()[at].item(), at))
    assert [ranks.flatten()[at].item() for at in order] == list(range(h * w))


@pytest.mark.parametrize("shape", [(4, 5), (1, 4, 5), (3, 3, 4, 5), (1, 1, 4, 5)])
def test_a_heatmap_of_another_shape_is_named(problem: Problem, shape: tuple[int, ...]) -> None:
    assert shape != (len(problem.image), 1, 4, 5)
    for metric in (deletion, insertion):
        with pytest.raises(IgosError, match=r"heatmap of shape .*: give \(\d, 1, h, w\)"):
            metric(problem, torch.zeros(shape))


def test_a_monotone_change_of_the_heatmap_changes_nothing(problem: Problem) -> None:
    heatmap = random(3, 1, 6, 6)
    for a, b in zip(deletion(problem, heatmap), deletion(problem, heatmap.exp()), strict=True):
        assert torch.equal(a.score, b.score)


def test_rises_protocol() -> None:
    """A row's number of pixels a step, at the image's size; grey and a weaker blur."""
    net = TinyNet().double().eval()
    image = random(2, 3, 14, 12)
    targets = net(image).argmax(dim=1)
    problem = Problem(net, image, blur(image), targets)
    heatmap = random(2, 1, 7, 6, seed=3)
    large = up(heatmap, (14, 12))
    weak = blur(image, 11, 5.0)
    for curves, start, end in (
        (deletion(problem, heatmap, protocol=RISE_CURVES), image, torch.zeros_like(image)),
        (insertion(problem, heatmap, protocol=RISE_CURVES), weak, image),
    ):
        for at in range(2):
            _, scores = naive(problem, large, at=at, each=12, start=start, end=end)
            assert len(scores) == 15
            torch.testing.assert_close(curves[at].score.tolist(), scores)
            published = (sum(scores) - scores[0] / 2 - scores[-1] / 2) / (len(scores) - 1)
            assert curves[at].auc == pytest.approx(published, abs=1e-6)


@pytest.mark.parametrize(
    ("protocol", "side", "points"),
    [
        (PAPER_CURVES, 224, 51),
        (PAPER_CURVES, 28, 50),
        (PAPER_CURVES, 7, 50),
        (RISE_CURVES, 224, 225),
    ],
)
def test_numbers_of_points(protocol: CurveProtocol, side: int, points: int) -> None:
    problem = counting(224)
    assert len(deletion(problem, random(1, 1, side, side), protocol=protocol)[0].score) == points
