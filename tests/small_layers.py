"""A small network of modules, for methods that look into layers."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from igos.problem import Problem
from small import random


class LayerNet(nn.Module):
    """Two convolutions, a rectifier module used twice, pooling, and two linear layers."""

    def __init__(self, rectifier: nn.Module) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
            self.conv2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
            self.act = rectifier
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.hidden = nn.Linear(8, 7)
            self.act2 = copy.deepcopy(rectifier)
            self.fc = nn.Linear(7, 4)
            nn.init.normal_(self.conv1.weight, std=1.0)  # so large that ReLU6 is at its top
            nn.init.normal_(self.conv2.weight, std=0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.conv1(x))
        x = self.act(self.conv2(x))
        x = self.act2(self.hidden(self.pool(x).flatten(1)))
        logits: Tensor = self.fc(x)
        return logits


def layer_problem(rectifier: nn.Module | None = None) -> Problem:
    """Three images of 8×6 px in float64; each has a class of its own."""
    net = LayerNet(rectifier or nn.ReLU(inplace=True)).double().eval()
    image = random(3, 3, 8, 6)
    return Problem(net, image, 0.1 * image.flip(0), torch.tensor([2, 0, 3]), chunk=2)


def state(model: nn.Module) -> dict[str, Any]:
    """All that a method might change in a model."""
    modules = dict(model.named_modules())
    return {
        "values": {key: value.clone() for key, value in model.state_dict().items()},
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "grad": [p.grad is None for p in model.parameters()],
        "mode": {name: module.training for name, module in modules.items()},
        "kinds": {name: type(module) for name, module in modules.items()},
        "hooks": {
            name: [len(hooks) for key, hooks in vars(module).items() if "hooks" in key and hooks]
            for name, module in modules.items()
        },
        "attributes": {name: sorted(vars(module)) for name, module in modules.items()},
    }


@contextmanager
def unchanged(problem: Problem) -> Iterator[None]:
    """The problem's model, image and baseline are as before, also after an exception."""
    assert isinstance(problem.model, nn.Module)
    before = state(problem.model)
    image, baseline = problem.image.clone(), problem.baseline.clone()
    try:
        yield
    finally:
        after = state(problem.model)
        values, values_after = before.pop("values"), after.pop("values")
        assert after == before
        assert values.keys() == values_after.keys()
        assert all(torch.equal(values[key], values_after[key]) for key in values)
        assert torch.equal(problem.image, image)
        assert torch.equal(problem.baseline, baseline)
        assert not problem.image.requires_grad
        assert not problem.baseline.requires_grad
