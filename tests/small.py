"""Small models and problems whose answers can be worked out another way."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from igos.problem import Problem

Run = Callable[..., tuple[int, str, str]]  # exit code, stdout, stderr of the command line

NET_FILE = """
import os, time
import numpy as np, torch
from torch import nn
from igos import Classifier, Normalisation

CALLS = []

class Net(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(gain))
    def forward(self, x):
        time.sleep(float(os.environ.get("IGOS_TEST_DELAY", 0)))
        CALLS.append(len(x))
        if len(CALLS) == int(os.environ.get("IGOS_TEST_STALL", 0)):
            time.sleep(600)
        red = self.gain * (x[:, 0] - x[:, 2]).mean(dim=(1, 2))
        return torch.stack([red, -red, torch.full_like(red, 4.0)], dim=1)

def classifier(gain=60.0):
    def preprocess(photo):
        return torch.tensor(np.asarray(photo.resize((32, 32)))).permute(2, 0, 1) / 255
    return Classifier("net", Net(gain), preprocess, Normalisation(), ("red", "blue", "neither"))

def broken():
    made = classifier()
    def fail(module, args):
        raise RuntimeError("broken")
    made.module.register_forward_pre_hook(fail)
    return made

def leaves():
    raise SystemExit(7)

def loud():
    print("loud")
    return classifier()

def nan():
    return classifier(float("nan"))
"""


class TinyNet(nn.Module):
    """Convolutions, batch norms and a classifier, with random weights from a fixed seed."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
            self.bn1 = nn.BatchNorm2d(8)
            self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(8)
            self.fc = nn.Linear(8, classes)
            for norm in (self.bn1, self.bn2):
                nn.init.uniform_(norm.running_mean, -0.5, 0.5)  # type: ignore[arg-type]
                nn.init.uniform_(norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]
                nn.init.uniform_(norm.weight, 0.5, 2.0)
            nn.init.normal_(self.fc.weight, std=2.0)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def single(problem: Problem, at: int) -> Problem:
    """The problem of one image of the batch."""
    assert isinstance(problem.target, Tensor)
    return Problem(
        problem.model,
        problem.image[at : at + 1],
        problem.baseline[at : at + 1],
        problem.target[at : at + 1],
        link=problem.link,
        std=problem.std,
        chunk=problem.chunk,
    )
