from collections.abc import Iterator

import pytest
import torch
from torch import nn

from igos.problem import Problem
from small import TinyNet, random, single


@pytest.fixture
def net() -> nn.Module:
    return TinyNet().double().eval()


@pytest.fixture
def problem(net: nn.Module) -> Problem:
    """Three images of 12×10 px, in float64 so that rounding decides nothing.

    Each is explained by the class that it has and its baseline has not.
    """
    image = random(3, 3, 12, 10)
    baseline = 0.1 * image.flip(0)
    with torch.no_grad():
        targets = (net(image).softmax(dim=1) - net(baseline).softmax(dim=1)).argmax(dim=1)
    return Problem(net, image, baseline, targets, std=(0.5, 0.25, 0.2), chunk=7)


@pytest.fixture
def one(problem: Problem) -> Problem:
    return single(problem, 0)


@pytest.fixture(autouse=True)
def _same_random_state() -> Iterator[None]:
    """No test, and so nothing a test calls, may move the global random state."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
