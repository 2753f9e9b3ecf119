"""One photo explained, from the file to the checked answer: `igos.explain("dog.jpg")`."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from igos.data import SAMPLE, read_photo, sample_photo
from igos.descent import Step
from igos.errors import IgosError, unknown
from igos.explanation import Explanation
from igos.image import BASELINES, Baseline, Normalisation, heatmap_of
from igos.methods import Iterative, Method, make
from igos.metrics.curves import Curve, deletion, insertion
from igos.models import load, pick_device
from igos.models.accelerate import accelerate
from igos.models.classifier import Classifier
from igos.problem import Link, Problem, probability

LOW_PROBABILITY = 0.01  # the paper's failure case
KEPT_SHARE = 0.2  # of the score: a baseline that keeps more still shows the class
PREDICTIONS = 5
CHUNK = {"cpu": 4, "cuda": 64, "mps": 32}  # images in one pass; 4 fit a CPU's caches

Photo = str | Path | Image.Image | np.ndarray[Any, Any] | Tensor
Target = int | str | Callable[[Any], Tensor] | None


def explain(
    photo: Photo = SAMPLE,
    *,
    model: str | Classifier | nn.Module = "efficientnet_lite0",
    target: Target = None,
    method: str | Method = "igos",
    resolution: int | tuple[int, int] = 28,
    settings: Mapping[str, str | float] | None = None,
    baseline: str | Tensor | Baseline = "blur",
    link: Link = probability,
    seed: int = 0,
    device: str = "auto",
    watch: Callable[[Step], None] | None = None,
) -> Explanation:
    """Why does `model` see `target` in `photo`?

    `photo` is a file, a picture, or a tensor (3, H, W) as the model wants it; a bare `nn.Module`
    takes tensors only, for it says nothing of its preprocessing. `target` is a class index, a
    class name, or a function from the model's output to one number an image; by default it is
    the predicted class. `resolution`, `seed` and `settings` are for a method given by name,
    `device` for a model that is not a `Classifier` yet. `baseline` is a name of `BASELINES`, an
    image file, a tensor like the image, or a function. `watch` is called with each `Step`.
    """
    classifier = _classifier(model, device)
    image = _image(photo, classifier)
    output = _output(classifier, image)
    probabilities = _probabilities(output)
    wanted = _target(target, classifier, probabilities)
    method_name = method if isinstance(method, str) else type(method).__name__.lower()
    if isinstance(method, str):
        method = make(method, resolution=resolution, seed=seed, settings=settings)
    problem = Problem(
        classifier.module,
        image,
        _baseline(baseline, image, classifier),
        wanted,
        link=link,
        std=classifier.normalisation.std,
        chunk=CHUNK.get(image.device.type, 32),
    )
    start = time.perf_counter()
    heatmap, last = _heatmap(method, problem, watch)
    seconds = time.perf_counter() - start
    deleted, inserted = deletion(problem, heatmap)[0], insertion(problem, heatmap)[0]
    for values in (heatmap, deleted.score, inserted.score):
        _check_finite(values, classifier)
    return Explanation(
        photo=str(photo) if isinstance(photo, str | Path) else "photo",
        model=classifier.name,
        target=None if callable(wanted) else wanted,
        class_name="" if callable(wanted) else classifier.class_name(wanted),
        probability=None if callable(wanted) else float(probabilities[wanted]),
        predicted=[
            (int(index), classifier.class_name(int(index)), float(probabilities[index]))
            for index in probabilities.argsort(descending=True)[:PREDICTIONS]
        ],
        method=method_name,
        settings={
            **method.settings,
            "baseline": baseline if isinstance(baseline, str) else "given",
            "score": "given" if callable(wanted) else getattr(link, "__name__", "given"),
        },
        heatmap=heatmap[0, 0].float().cpu(),
        deletion=deleted,
        insertion=inserted,
        seconds=seconds,
        iterations=None if last is None else int(last.iterations[0]),
        converged=None if last is None else bool(last.converged[0]),
        warnings=_doubts(wanted, classifier, probabilities, deleted),
        image=image[0].cpu(),
        baseline=problem.baseline[0].cpu(),
        normalisation=classifier.normalisation,
    )


def _classifier(model: str | Classifier | nn.Module, device: str) -> Classifier:
    if isinstance(model, Classifier):
        return model
    if isinstance(model, str):
        return load(model, device=device)
    name = type(model).__name__

    def preprocess(_: Image.Image) -> Tensor:
        raise IgosError(
            f"model {name}: a bare module says nothing of its preprocessing; give the photo as "
            "a tensor (3, H, W) ready for it, or the model as an igos.Classifier"
        )

    return Classifier(name, accelerate(model, pick_device(device)), preprocess, Normalisation())


def _image(photo: Photo, classifier: Classifier) -> Tensor:
    """The photo as the model wants it, (1, 3, H, W), on the model's device."""
    if isinstance(photo, Tensor):
        image = photo[None] if photo.ndim == 3 else photo
        if image.ndim != 4 or len(image) != 1:
            raise IgosError(f"photo of shape {tuple(photo.shape)}: give (3, H, W)")
    else:
        if isinstance(photo, np.ndarray):
            photo = Image.fromarray(photo)
        elif not isinstance(photo, Image.Image):
            photo = sample_photo() if str(photo) == SAMPLE else read_photo(photo)
        image = classifier.preprocess(photo.convert("RGB"))[None]
    parameter = next(classifier.module.parameters(), None)
    return image if parameter is None else image.to(parameter)


def _output(classifier: Classifier, image: Tensor) -> Any:
    with torch.no_grad():
        output = classifier.module(image)
    if isinstance(output, Tensor):
        _check_finite(output, classifier)
    return output


def _check_finite(values: Tensor, classifier: Classifier) -> None:
    if not values.isfinite().all():
        raise IgosError(
            f"model {classifier.name!r} returned NaN or infinity for this photo; check its "
            "weights and its preprocessing"
        )


def _probabilities(output: Any) -> Tensor:
    """Of the classes, (C,); empty where the model is no classifier."""
    if isinstance(output, Tensor) and output.ndim == 2:
        return output[0].float().softmax(dim=0).cpu()
    return torch.empty(0)


def _target(
    target: Target, classifier: Classifier, probabilities: Tensor
) -> int | Callable[[Any], Tensor]:
    if callable(target):
        return target
    if len(probabilities) == 0:
        raise IgosError(
            f"model {classifier.name!r} does not return (images, classes): give a function from "
            "its output to one number an image as the target"
        )
    if target is None:
        return int(probabilities.argmax())
    index = classifier.find_class(target)
    if index >= len(probabilities):
        raise IgosError(
            f"class index {index}: {classifier.name} has the classes 0 to {len(probabilities) - 1}"
        )
    return index


def _baseline(baseline: str | Tensor | Baseline, image: Tensor, classifier: Classifier) -> Tensor:
    if callable(baseline):
        return baseline(image, classifier.normalisation)
    if isinstance(baseline, str):
        if baseline in BASELINES:
            return BASELINES[baseline](image, classifier.normalisation)
        if not Path(baseline).exists():
            remedy = f"give {', '.join(BASELINES)} or an image file"
            raise unknown("baseline", baseline, BASELINES, remedy=remedy)
        baseline = classifier.preprocess(read_photo(baseline))
    return baseline.to(image).expand_as(image)


def _heatmap(
    method: Method, problem: Problem, watch: Callable[[Step], None] | None
) -> tuple[Tensor, Step | None]:
    if not isinstance(method, Iterative):
        return method(problem), None
    for step in method.steps(problem):
        if watch is not None:
            watch(step)
    return heatmap_of(step.mask), step


def _doubts(
    target: int | Callable[[Any], Tensor],
    classifier: Classifier,
    probabilities: Tensor,
    deleted: Curve,
) -> list[str]:
    """What should make a reader careful with this heatmap."""
    doubts = []
    score, kept = float(deleted.score[0]), float(deleted.score[-1])
    if kept > KEPT_SHARE * score:
        doubts.append(
            f"the baseline keeps a score of {kept:.3f} of {score:.3f}: removing pixels cannot hide "
            "the class; choose another baseline"
        )
    if callable(target):
        return doubts
    if probabilities[target] < LOW_PROBABILITY:
        doubts.append(
            f"the model gives this class a probability of only {probabilities[target]:.4f}: below "
            f"{LOW_PROBABILITY} heatmaps by optimisation are unreliable"
        )
    best = int(probabilities.argmax())
    if best != target:
        doubts.append(
            f"the model predicts {classifier.class_name(best)!r} ({probabilities[best]:.3f}), not "
            f"the class explained ({probabilities[target]:.3f})"
        )
    return doubts
