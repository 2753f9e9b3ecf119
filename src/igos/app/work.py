"""What the page asks of the model: one thing at a time, step by step, until it is told to stop."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

from torch import Tensor, nn

from igos.answer import classified, device_of, tried
from igos.data import SAMPLE, read_photo, sample_photo
from igos.descent import Step
from igos.errors import IgosError
from igos.explainer import explain
from igos.explanation import Explanation
from igos.methods import make
from igos.methods.base import Iterative, Native
from igos.models.classifier import Classifier

FRAMES_A_SECOND = 8  # a heatmap that grows; more only costs the optimiser time


class StoppedError(IgosError):
    """The visitor has asked for an end. An `IgosError`, so that it passes where those pass."""


@dataclass(frozen=True, eq=False)
class Question:
    """A photo as the model sees it; the file itself is not kept."""

    photo: str  # its name
    image: Tensor  # (3, H, W), on the CPU
    probabilities: Tensor  # (C,)


@dataclass(frozen=True)
class Choice:
    """What is asked about the photo."""

    target: int
    method: str
    resolution: int
    baseline: str
    seed: int


@dataclass(frozen=True, eq=False)
class Answered:
    """What was asked, and the answer."""

    choice: Choice
    explanation: Explanation


@dataclass(frozen=True, eq=False)
class Frame:
    """The state of a run after an iteration."""

    iteration: int
    total: int
    loss: float
    heatmap: Tensor  # (h, w)


class Worker:
    """A classifier that serves one request after another, whatever becomes of those who asked.

    Its one thread does all the work: nothing runs at once, and memory does not grow with threads.
    """

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier
        self._thread = ThreadPoolExecutor(1, "igos-worker")

    def close(self) -> None:
        """Wait for what is still at work; told to stop, it takes no longer than a pass."""
        self._thread.shutdown()

    def look(self, photo: str, name: str) -> Question:
        """Read a file, or the sample, and classify it."""
        return self._thread.submit(self._look, photo, name).result()

    def _look(self, photo: str, name: str) -> Question:
        picture = sample_photo() if photo == SAMPLE else read_photo(photo)
        image = tried(self.classifier, self.classifier.preprocess, picture)
        images = image[None].to(device_of(self.classifier))
        return Question(name, image, classified(self.classifier, images)[0])

    def explain(
        self, question: Question, choice: Choice, stop: threading.Event
    ) -> Iterator[Frame | Answered]:
        """The heatmap as it grows, and at last the checked answer.

        It ends at the model's next pass once `stop` is set, or when nobody listens any more.
        """
        found: SimpleQueue[Frame | Answered | BaseException] = SimpleQueue()
        left = threading.Event()

        def work() -> None:
            try:
                found.put(self._explain(question, choice, (stop, left), found.put))
            except BaseException as error:  # told to the one who asked, below
                found.put(error)

        self._thread.submit(work)
        try:
            while True:
                item = found.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
                if isinstance(item, Answered):
                    return
        finally:
            left.set()

    def _explain(
        self,
        question: Question,
        choice: Choice,
        ends: Sequence[threading.Event],
        show: Callable[[Frame], None],
    ) -> Answered:
        method = make(choice.method, resolution=choice.resolution, seed=choice.seed)
        with _stopping(self.classifier, ends):
            explanation = explain(
                question.image,
                model=self.classifier,
                target=choice.target,
                method=choice.method,
                resolution=None if isinstance(method, Native) else choice.resolution,
                baseline=choice.baseline,
                seed=choice.seed,
                watch=_watch(method, show) if isinstance(method, Iterative) else None,
            )
        return Answered(choice, replace(explanation, photo=question.photo))


def _watch(method: Any, show: Callable[[Frame], None]) -> Callable[[Step], None]:
    total = method.settings["max_iterations"]
    shown = -1.0

    def watch(step: Step) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= 1 / FRAMES_A_SECOND:
            shown = now
            heatmap = method.heatmap(step)[0, 0].float().cpu()
            show(Frame(step.iteration, total, float(step.loss[0]), heatmap))

    return watch


@contextmanager
def _stopping(classifier: Classifier, ends: Sequence[threading.Event]) -> Iterator[None]:
    """Within, every pass of the model first asks whether to go on: no method is too long to end."""

    def ask(*_: object) -> None:
        if any(end.is_set() for end in ends):
            raise StoppedError("stopped")

    passes = classifier.fast.model if classifier.fast else classifier.module
    modules = {classifier.module, passes} if isinstance(passes, nn.Module) else {classifier.module}
    handles = [module.register_forward_pre_hook(ask) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
