import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image
from torch import nn

from browser import browser, screenshots
from igos import cli
from igos.experiments.bench import Bench
from igos.problem import Problem
from small import NET_FILE, Run, TinyNet, random, single

__all__ = ["browser", "screenshots"]  # fixtures of another file, for whoever asks

# The same examples every time, and no timing that decides a test.
settings.register_profile("igos", deadline=None, derandomize=True, database=None)
settings.load_profile("igos")


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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and photos, made the current one."""
    (tmp_path / "net.py").write_text(NET_FILE)
    pixels = np.full((40, 40, 3), 20, np.uint8)
    pixels[5:20, 5:20] = (240, 10, 10)
    Image.fromarray(pixels).save(tmp_path / "red.png")
    Image.fromarray(pixels[..., ::-1].copy()).save(tmp_path / "blue.jpg")
    (tmp_path / "text.jpg").write_text("hello")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: exit code, stdout, stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["igos", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        output = capsys.readouterr()
        code = caught.value.code
        return code if isinstance(code, int) else 0, output.out, output.err

    return call


QUICK = {
    "igos-paper": {"max_iterations": 2, "path_steps": 2},
    "igos": {"max_iterations": 2, "path_steps": 2},
    "igos-two-sided": {"max_iterations": 1, "path_steps": 2},
    "igos++": {"max_iterations": 1, "path_steps": 2},
    "mask": {"max_iterations": 2},
    "mask-paper": {"max_iterations": 3},
    "rise": {"masks": 10},
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments whose methods take fewer iterations."""
    maker = Bench.maker

    def few(self: Bench, name: str, **settings: str | float) -> object:
        return maker(self, name, **{**QUICK.get(name, {}), **settings})

    monkeypatch.setattr(Bench, "maker", few)
