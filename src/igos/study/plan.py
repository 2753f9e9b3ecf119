"""What a study asks, of which configurations: all that stays the same from photo to photo."""

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import igos
from igos.answer import device_of
from igos.errors import IgosError
from igos.explainer import find_baseline
from igos.image import BASELINES, Baseline
from igos.methods.base import Maker, Method, Native, UnsuitedError, check_fits
from igos.models.classifier import Classifier
from igos.models.fast import MOST
from igos.problem import Problem
from igos.study.store import Store


@dataclass(frozen=True)
class Question:
    """What is asked of every photo: with the configuration, the identity of a result."""

    model: str
    weights: str = ""  # digest of the model's code and parameters
    target: str = "predicted"  # or "label"
    baseline: str = "blur"
    score: str = "probability"
    curves: str = "paper"
    precision: str = "own"  # of the model's passes

    def identity(self) -> dict[str, str]:
        """With the content of a baseline's file: another picture is another question."""
        if self.baseline in BASELINES:
            return vars(self)
        return {**vars(self), "baseline": f"file {file_digest(Path(self.baseline))}"}


@dataclass(frozen=True, eq=False)
class Configuration:
    """A method with its settings at one resolution, and its number in the store."""

    number: int
    name: str
    method: Method
    resolution: tuple[int, int]

    @property
    def title(self) -> str:
        h, w = self.resolution
        return f"{self.name} {h}×{w}"


@dataclass(frozen=True, eq=False)
class Study:
    """Everything that stays the same from photo to photo."""

    store: Store
    classifier: Classifier
    question: Question
    number: int  # of the question, in the store
    configurations: tuple[Configuration, ...]
    unsuited: tuple[tuple[str, str], ...]  # methods left out, and why
    baseline: Baseline
    size: torch.Size  # (3, H, W) of every image
    min_probability: float
    batch: int
    keep_heatmaps: bool

    @property
    def device(self) -> torch.device:
        return device_of(self.classifier)


def plan(
    store: Store,
    classifier: Classifier,
    question: Question,
    methods: dict[str, Maker],
    resolutions: Sequence[tuple[int, int]],
    *,
    min_probability: float = 0.0,
    batch: int | None = None,
    keep_heatmaps: bool = True,
    native: bool = False,
) -> Study:
    """Number the question and, for every method, the resolutions that it can produce.

    `native`: a method with a resolution of its own runs at that, whether it is asked for or not.
    """
    if question.target not in ("predicted", "label"):
        raise IgosError(f"target {question.target!r}: give predicted or label")
    if not 0 <= min_probability <= 1:
        raise IgosError(f"minimum probability {min_probability}: give one from 0 to 1")
    if batch is not None and batch < 1:
        raise IgosError(f"batch {batch}: give a whole number from 1 up")
    baseline = find_baseline(question.baseline, classifier)
    device = device_of(classifier)
    example = classifier.example().to(device)
    problem = Problem(classifier.module, example[None], example[None], 0)
    found: list[tuple[str, Method, tuple[int, int]]] = []
    unsuited = []
    for name, make in methods.items():
        try:
            found += [(name, *pair) for pair in _producible(make, problem, resolutions, native)]
        except UnsuitedError as error:
            unsuited.append((name, str(error)))
    number = store.question(question.identity())
    configurations = [
        Configuration(
            store.configuration(number, name, resolution, method.settings), name, method, resolution
        )
        for name, method, resolution in found
    ]
    return Study(
        store=store,
        classifier=classifier,
        question=question,
        number=number,
        configurations=tuple(configurations),
        unsuited=tuple(unsuited),
        baseline=baseline,
        size=example.shape,
        min_probability=min_probability,
        batch=batch or _photos_at_once(classifier, device),
        keep_heatmaps=keep_heatmaps,
    )


def _producible(
    make: Maker, problem: Problem, resolutions: Sequence[tuple[int, int]], native: bool
) -> list[tuple[Method, tuple[int, int]]]:
    method = make(None)
    if not isinstance(method, Native):
        for resolution in resolutions:
            check_fits(resolution, problem.size)
        return [(make(resolution), resolution) for resolution in resolutions]
    own = method.native_resolution(problem)
    if own not in resolutions and not native:
        raise UnsuitedError(
            f"makes heatmaps of {own[0]}×{own[1]} for this model, which is not among the "
            "resolutions asked for"
        )
    return [(method, own)]


def _photos_at_once(classifier: Classifier, device: torch.device) -> int:
    """As many as a pass has images, so that one mask for each fills it; on the CPU one."""
    if device.type == "cpu":
        return 1  # a batch is no faster there, and photos come one by one
    return classifier.chunk or MOST.get(device.type, MOST["mps"])


def file_digest(path: Path) -> str:
    """The identity of a file: where it lies does not matter."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def environment(classifier: Classifier) -> dict[str, str]:
    """What the seconds and the last digits of a result depend on."""
    device, fast = device_of(classifier), classifier.fast
    return {
        "igos": igos.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "compiled": "yes" if fast is not None and fast.compiled is not None else "no",
        "threads": str(torch.get_num_threads()),
    }
