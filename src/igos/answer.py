"""A method's answer to a problem: heatmaps, the curves that test them, and doubts.

What one photo (`explainer.py`) and a whole study (`study/`) have in common.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from igos.descent import Step
from igos.errors import IgosError
from igos.methods.base import Iterative, Method
from igos.metrics.curves import PAPER_CURVES, Curve, CurveProtocol, deletion, insertion
from igos.models.classifier import Classifier
from igos.models.fast import MOST
from igos.passes import blamed_on, dtype_of, evaluating, out_of_memory
from igos.problem import Link, Problem, probability

LOW_PROBABILITY = 0.01  # the paper's failure case
TOO_LARGE = (
    "out of memory with one image at a time; give a smaller resolution or model, or device cpu"
)
KEPT_SHARE = 0.2  # ours: a baseline that keeps more of the score still shows the class


@dataclass(frozen=True, eq=False)
class Answer:
    """For each image of a problem a heatmap and both curves."""

    heatmap: Tensor  # (B, 1, h, w)
    deletion: list[Curve]
    insertion: list[Curve]
    seconds: float  # for the heatmaps of the batch; the curves are not counted
    last: Step | None  # None: the method has no iterations
    losses: Tensor | None = None  # (T, B), F_c after each iteration

    def iterations(self, at: int) -> int | None:
        return None if self.last is None else int(self.last.iterations[at])

    def loss(self, at: int) -> list[float] | None:
        """F_c after each iteration that the image has taken."""
        return None if self.losses is None else self.losses[: self.iterations(at), at].tolist()

    def converged(self, at: int) -> bool | None:
        return None if self.last is None else bool(self.last.converged[at])


def pose(
    classifier: Classifier,
    images: Tensor,
    baseline: Tensor,
    target: int | Tensor | Callable[[Any], Tensor],
    *,
    link: Link = probability,
) -> Problem:
    """The problem of a classifier and images (B, 3, H, W), run as fast as the classifier can."""
    return Problem(
        classifier.module,
        images,
        baseline,
        target,
        link=link,
        std=classifier.normalisation.std,
        chunk=classifier.chunk or MOST.get(images.device.type, MOST["mps"]),
        fast=classifier.fast,
    )


def answer(
    method: Method,
    problem: Problem,
    *,
    model: str,
    protocol: CurveProtocol = PAPER_CURVES,
    watch: Callable[[Step], None] | None = None,
) -> Answer:
    """Explain and test; a model that returns NaN or infinity is refused by its name."""
    start = time.perf_counter()
    heatmap, last, losses = _heatmap(method, problem, watch)
    finite = bool(heatmap.isfinite().all())  # waits for the device, so that the seconds are true
    seconds = time.perf_counter() - start
    deleted = deletion(problem, heatmap, protocol=protocol)
    inserted = insertion(problem, heatmap, protocol=protocol)
    if not (finite and all(curve.score.isfinite().all() for curve in (*deleted, *inserted))):
        raise _not_finite(model)
    return Answer(heatmap, deleted, inserted, seconds, last, losses)


def _heatmap(
    method: Method, problem: Problem, watch: Callable[[Step], None] | None
) -> tuple[Tensor, Step | None, Tensor | None]:
    if not isinstance(method, Iterative):
        with evaluating(problem.model, beside=problem.fast):
            return method(problem), None, None
    losses = []
    for step in method.steps(problem):
        losses.append(step.loss)
        if watch is not None:
            watch(step)
    return method.heatmap(step), step, torch.stack(losses)


def within_memory(problem: Problem, work: Callable[[Problem], Answer]) -> Answer:
    """`work` on the problem, with fewer images in a pass where memory runs out."""
    while True:
        try:
            return work(problem)
        except Exception as error:
            if not out_of_memory(error):
                raise
            if problem.chunk == 1:
                raise IgosError(TOO_LARGE) from error
        problem = replace(problem, chunk=problem.chunk // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextmanager
def enough_memory() -> Iterator[None]:
    """For what is done with one image: if there is too little, no traceback."""
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        raise IgosError(TOO_LARGE) from error


def classify(classifier: Classifier, images: Tensor) -> Tensor:
    """The probabilities of the classes, (B, C); (B, 0) where the model is no classifier."""
    module = classifier.module
    with evaluating(module, beside=classifier.fast), torch.no_grad():
        output = tried(classifier, module, images.to(dtype_of(module, images)))
    if not isinstance(output, Tensor) or output.ndim != 2:
        return torch.empty(len(images), 0)
    if not output.isfinite().all():
        raise _not_finite(classifier.name)
    return output.float().softmax(dim=1).cpu()


def classified(classifier: Classifier, images: Tensor) -> Tensor:
    """The probabilities of the classes, (B, C), of a model that must be a classifier."""
    probabilities = classify(classifier, images)
    if probabilities.shape[1] == 0:
        raise IgosError(f"model {classifier.name!r} does not return (images, classes)")
    return probabilities


def _not_finite(model: str) -> IgosError:
    return IgosError(
        f"model {model!r} returned NaN or infinity for this photo; check its weights and its "
        "preprocessing, and on CUDA try precision tf32"
    )


def tried(classifier: Classifier, function: Callable[[Any], Any], argument: Any) -> Any:
    """What the function, the classifier's own, makes of the argument."""
    with blamed_on(f"model {classifier.name!r}"):
        return function(argument)


def check_class(index: int, classes: int, model: str) -> None:
    """An index that the model's output has."""
    if index >= classes:
        raise IgosError(f"class index {index}: {model} has the classes 0 to {classes - 1}")


def device_of(classifier: Classifier) -> torch.device:
    """Where the model runs; one without parameters runs anywhere."""
    parameter = next(classifier.module.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def precision_of(classifier: Classifier) -> str:
    """In which its scores are computed; a model that was not loaded by us has its own."""
    return (classifier.fast and classifier.fast.precision) or "own"


@dataclass(frozen=True)
class Prediction:
    """What the model says of a photo, and which class is explained."""

    target: int
    probability: float  # of the target
    predicted: int
    predicted_probability: float

    @classmethod
    def of(cls, probabilities: Tensor, target: int | None = None) -> "Prediction":
        """From the probabilities of the classes, (C,); the default target is the predicted one."""
        predicted = int(probabilities.argmax())
        chosen = predicted if target is None else target
        return cls(chosen, float(probabilities[chosen]), predicted, float(probabilities[predicted]))


def doubts(prediction: Prediction, kept: float, classifier: Classifier) -> list[str]:
    """What should make a reader careful; `kept` is the target's probability in the baseline."""
    found = []
    score = prediction.probability
    if kept > KEPT_SHARE * score:
        found.append(
            f"the baseline keeps a probability of {kept:.3f} of {score:.3f}: removing pixels "
            "cannot hide the class; choose another baseline"
        )
    if score < LOW_PROBABILITY:
        found.append(
            f"the model gives this class a probability of only {score:.4f}: below "
            f"{LOW_PROBABILITY} heatmaps by optimisation are unreliable"
        )
    if prediction.predicted != prediction.target:
        name = classifier.class_name(prediction.predicted)
        found.append(
            f"the model predicts {name!r} ({prediction.predicted_probability:.3f}), not the class "
            f"explained ({score:.3f})"
        )
    return found
