"""Mask, RISE and the random control, against naive loops."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from igos.errors import IgosError
from igos.image import l1, phi, tv
from igos.methods.control import Random
from igos.methods.mask import Mask
from igos.methods.rise import RISE
from igos.problem import Objective, Problem
from small import single

MASK = Mask(resolution=5, lambda1=0.02, lambda2=0.1, learning_rate=0.1, max_iterations=6)
RISEN = RISE(masks=9, cells=3, keep=0.4)


def score(problem: Problem, images: Tensor, at: int) -> Tensor:
    assert isinstance(problem.target, Tensor)
    scores: Tensor = problem.model(images).softmax(dim=1)[:, problem.target[at]]
    return scores


@pytest.mark.parametrize("average", [False, True])
def test_mask_is_adam_on_the_objective(problem: Problem, average: bool) -> None:
    """Adam by hand (Kingma and Ba, Algorithm 1), one image after another."""
    together = replace(MASK, average=average)(problem)
    for at in range(3):
        mask = torch.ones(1, 5, 5, dtype=torch.float64)
        first, second, masks = torch.zeros_like(mask), torch.zeros_like(mask), []
        for step in range(1, 7):
            here = mask.clone().requires_grad_()
            composed = phi(problem.image[at], problem.baseline[at], here)[None]
            loss = score(problem, composed, at)[0] + 0.02 * l1(here) + 0.1 * tv(here)
            (gradient,) = torch.autograd.grad(loss, here)
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            change = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
            mask = (mask - 0.1 * change).clamp(0, 1)
            masks.append(mask)
        expected = 1 - (torch.stack(masks).mean(dim=0) if average else mask)
        assert expected.std() > 0.05
        torch.testing.assert_close(together[at], expected)


def test_masks_steps_tell_the_loss_of_their_mask(problem: Problem) -> None:
    objective = Objective(problem, 0.02, 0.1)
    steps = list(MASK.steps(problem))
    assert [step.iteration for step in steps] == [1, 2, 3, 4, 5, 6]
    for step in steps:
        torch.testing.assert_close(step.loss, objective(step.mask[:, None])[:, 0])
    assert steps[-1].iterations.tolist() == [6, 6, 6]


def rise_by_hand(problem: Problem, method: RISE, at: int) -> Tensor:
    """One mask after another, its cells kept or not, upsampled, shifted, weighted."""
    generator = torch.Generator().manual_seed(method.seed)
    (height, width), s = problem.size, method.cells
    cells = (math.ceil(height / s), math.ceil(width / s))
    total = torch.zeros(1, height, width, dtype=torch.float64)
    for _ in range(method.masks):
        drawn = torch.rand(s * s + 2, generator=generator)
        grid = torch.tensor(
            [[float(drawn[2 + s * i + j] < method.keep) for j in range(s)] for i in range(s)]
        )
        size = ((s + 1) * cells[0], (s + 1) * cells[1])
        large = F.interpolate(grid[None, None], size, mode="bilinear", align_corners=False)[0]
        y, x = int(drawn[0] * cells[0]), int(drawn[1] * cells[1])
        mask = large[:, y : y + height, x : x + width].double()
        assert mask.shape == (1, height, width)
        total += score(problem, problem.image[at : at + 1] * mask, at).detach() * mask
    return total / (method.masks * method.keep)


def test_rise_is_a_naive_loop_over_masks(problem: Problem) -> None:
    together = RISEN(problem)
    for at in range(3):
        torch.testing.assert_close(together[at], rise_by_hand(problem, RISEN, at))


def test_rises_masks_do_not_depend_on_how_many_come_at_once(problem: Problem) -> None:
    one_by_one = RISEN(replace(problem, chunk=1))
    torch.testing.assert_close(one_by_one, RISEN(replace(problem, chunk=100)))
    torch.testing.assert_close(one_by_one[1:2], RISEN(single(problem, 1)))


def test_rise_keeps_the_share_asked_for() -> None:
    method = RISE(cells=7, keep=0.3)
    drawn = method.draw(400, torch.Generator().manual_seed(1))
    masks = method.enlarge(drawn, (40, 30))
    assert masks.shape == (400, 1, 40, 30)
    assert ((masks >= 0) & (masks <= 1 + 1e-6)).all()  # rounding of the interpolation
    # 400 × 49 cells with standard deviation √(0.3·0.7): 4 standard errors
    assert masks.mean().item() == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / (400 * 49)))


def test_random_maps_differ_by_photo_and_seed_and_nothing_else(problem: Problem) -> None:
    maps = Random(resolution=(4, 6))(problem)
    assert maps.shape == (3, 1, 4, 6)
    torch.testing.assert_close(maps[2:], Random(resolution=(4, 6))(single(problem, 2)))
    assert not torch.equal(maps[0], maps[1])
    assert not torch.equal(maps, Random(resolution=(4, 6), seed=1)(problem))


@pytest.mark.parametrize(
    ("method", "wrong", "message"),
    [
        (Mask, {"resolution": 0}, "resolution 0"),
        (Mask, {"max_iterations": 0}, "max_iterations 0"),
        (Mask, {"lambda2": -1.0}, "lambda2 -1"),
        (Mask, {"learning_rate": math.inf}, "learning_rate inf"),
        (RISE, {"masks": 0}, "masks 0"),
        (RISE, {"masks": 1e4}, "masks 10000.0"),
        (RISE, {"cells": -1}, "cells -1"),
        (RISE, {"keep": 1.0}, "keep 1.0"),
        (Random, {"resolution": (3, -1)}, "resolution"),
        (Random, {"seed": 2**63}, "seed 9223372036854775808"),
        (RISE, {"seed": -1}, "seed -1"),
    ],
)
def test_wrong_settings_are_named(method: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(IgosError, match=message):
        method(**wrong)


def test_finer_than_the_image_is_refused(one: Problem) -> None:
    for method in (Mask(resolution=12), Random(resolution=12)):
        with pytest.raises(IgosError, match="resolution 12×12: the image is 12×10"):
            method(one)


def test_measured_settings() -> None:
    """What docs/deviations.md justifies; a change here needs new measurements there."""
    assert Mask(resolution=28).settings == {
        "resolution": [28, 28],
        "lambda1": 0.3,
        "lambda2": 1.0,
        "learning_rate": 1.0,
        "max_iterations": 250,
        "average": True,
    }
    assert Mask.paper(resolution=28).settings == {
        "resolution": [28, 28],
        "lambda1": 0.01,
        "lambda2": 0.2,
        "learning_rate": 0.1,
        "max_iterations": 500,
        "average": False,
    }
    assert RISE().settings == {"masks": 4000, "keep": 0.25, "cells": 7, "seed": 0}
