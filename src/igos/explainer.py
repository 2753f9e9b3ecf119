"""One photo explained, from the file to the checked answer: `igos.explain("dog.jpg")`."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from igos.answer import (
    Prediction,
    answer,
    check_class,
    classify,
    doubts,
    enough_memory,
    pose,
    precision_of,
    tried,
    within_memory,
)
from igos.data import SAMPLE, prepare, read_photo, sample_photo
from igos.descent import Step
from igos.errors import IgosError, unknown
from igos.explanation import Explanation
from igos.image import BASELINES, Baseline, Normalisation
from igos.methods import make
from igos.methods.base import Method, Native, check_native
from igos.metrics.curves import PAPER_CURVES, CurveProtocol
from igos.models import load, pick_device, quicken
from igos.models.classifier import Classifier
from igos.problem import Link, probability

PREDICTIONS = 5  # as in ImageNet's top-5

Photo = str | Path | Image.Image | np.ndarray[Any, Any] | Tensor
Target = int | str | Callable[[Any], Tensor] | None


@enough_memory()
def explain(
    photo: Photo = SAMPLE,
    *,
    model: str | Classifier | nn.Module = "efficientnet_lite0",
    target: Target = None,
    method: str | Method = "igos",
    resolution: int | tuple[int, int] | None = None,
    settings: Mapping[str, str | float] | None = None,
    baseline: str | Path | Tensor | Baseline = "blur",
    link: Link = probability,
    protocol: CurveProtocol = PAPER_CURVES,
    seed: int = 0,
    device: str = "auto",
    precision: str = "auto",
    watch: Callable[[Step], None] | None = None,
) -> Explanation:
    """Why does `model` see `target` in `photo`?

    `photo` is a file, a picture, or a tensor (3, H, W) as the model wants it; a bare `nn.Module`
    takes tensors only, for it says nothing of its preprocessing. `target` is a class index, a
    class name, or a function from the model's output to one number an image; by default it is
    the predicted class. `resolution` (by default 28×28, or the method's own), `seed` and
    `settings` are for a method given by name, `device` and `precision` (auto, fp32, tf32 or fp16)
    for a model that is not a `Classifier` yet. `baseline` is a name of `BASELINES`, an image file,
    a tensor like the image, or a function. `protocol` is how both curves are made. `watch` is
    called with each `Step`.
    """
    classifier = _classifier(model, photo, device, precision)
    image = _image(photo, classifier)
    probabilities = classify(classifier, image)[0]
    problem = pose(
        classifier,
        image,
        find_baseline(baseline, classifier)(image, classifier.normalisation),
        _target(target, classifier, probabilities),
        link=link,
    )
    name = method if isinstance(method, str) else type(method).__name__.lower()
    if isinstance(method, str):
        method = make(method, resolution=resolution, seed=seed, settings=settings)
    if isinstance(method, Native):
        check_native(method, resolution, method.native_resolution(problem))
    found = within_memory(
        problem,
        lambda fits: answer(method, fits, model=classifier.name, protocol=protocol, watch=watch),
    )
    index = None if callable(problem.target) else int(problem.target)
    warnings = []
    if index is not None:
        kept = float(classify(classifier, problem.baseline)[0, index])
        warnings = doubts(Prediction.of(probabilities, index), kept, classifier)
    return Explanation(
        photo=str(photo) if isinstance(photo, str | Path) else "photo",
        model=classifier.name,
        target=index,
        class_name="" if index is None else classifier.class_name(index),
        probability=None if index is None else float(probabilities[index]),
        predicted=most_probable(classifier, probabilities),
        method=name,
        settings={
            **method.settings,
            "baseline": str(baseline) if isinstance(baseline, str | Path) else "given",
            "score": "given" if index is None else getattr(link, "__name__", "given"),
            "curves": protocol.name,
            "precision": precision_of(classifier),
        },
        heatmap=found.heatmap[0, 0].float().cpu(),
        deletion=found.deletion[0],
        insertion=found.insertion[0],
        seconds=found.seconds,
        iterations=found.iterations(0),
        converged=found.converged(0),
        losses=found.loss(0),
        warnings=warnings,
        image=image[0].cpu(),
        baseline=problem.baseline[0].cpu(),
        normalisation=classifier.normalisation,
    )


def most_probable(classifier: Classifier, probabilities: Tensor) -> list[tuple[int, str, float]]:
    """The first classes by probability, (C,): index, name, probability."""
    return [
        (int(at), classifier.class_name(int(at)), float(probabilities[at]))
        for at in probabilities.argsort(descending=True)[:PREDICTIONS]
    ]


def find_baseline(baseline: str | Path | Tensor | Baseline, classifier: Classifier) -> Baseline:
    """The function that makes the baseline; an unknown name or a bad file is refused."""
    if callable(baseline):
        return baseline
    if isinstance(baseline, str) and baseline in BASELINES:
        return BASELINES[baseline]
    if isinstance(baseline, str | Path):
        if not os.path.exists(baseline):
            remedy = f"give {', '.join(BASELINES)} or an image file"
            raise unknown("baseline", str(baseline), BASELINES, remedy=remedy)
        given: Tensor = tried(classifier, classifier.preprocess, read_photo(baseline))
    elif isinstance(baseline, Tensor):
        given = baseline
    else:
        raise IgosError(f"baseline {baseline!r}: give a name, a file, a tensor or a function")

    def same_for_all(image: Tensor, _: Normalisation) -> Tensor:
        if given.shape[-3:] != image.shape[-3:]:
            raise IgosError(
                f"baseline of shape {tuple(given.shape)}: give that of the image, "
                f"{tuple(image.shape[1:])}"
            )
        return given.to(image).expand_as(image)

    return same_for_all


def _classifier(
    model: str | Classifier | nn.Module, photo: Photo, device: str, precision: str
) -> Classifier:
    if isinstance(model, Classifier):
        return model
    if isinstance(model, str):
        return load(model, device=device, precision=precision)
    name = type(model).__name__

    def preprocess(_: object) -> Tensor:
        raise IgosError(
            f"model {name}: a bare module says nothing of its preprocessing; give the photo as "
            "a tensor (3, H, W) ready for it, or the model as an igos.Classifier"
        )

    example = _one_image(photo) if isinstance(photo, Tensor) else preprocess(photo)
    bare = Classifier(name, model, preprocess, Normalisation())
    where = pick_device(device)
    ready: Classifier = tried(bare, partial(quicken, bare, where, precision=precision), example)
    return ready


def _one_image(photo: Tensor) -> Tensor:
    """(3, H, W) or (1, 3, H, W) -> (1, 3, H, W), in at least float32."""
    image = photo[None] if photo.ndim == 3 else photo
    if image.ndim != 4 or len(image) != 1 or not image.is_floating_point():
        raise IgosError(
            f"photo of shape {tuple(photo.shape)} and {photo.dtype}: give (3, H, W), floating-"
            "point, as the model wants it"
        )
    return image.detach().to(torch.promote_types(image.dtype, torch.float32))


def _image(photo: Photo, classifier: Classifier) -> Tensor:
    """The photo as the model wants it, (1, 3, H, W), on the model's device."""
    if not isinstance(photo, Tensor):
        if isinstance(photo, np.ndarray):
            if photo.dtype != np.uint8:
                raise IgosError(f"photo: an array of {photo.dtype}; give uint8, 0 to 255")
            if photo.ndim != 2 and photo.shape[2:] not in ((3,), (4,)):
                raise IgosError(f"photo: an array of shape {photo.shape}; give (H, W, 3) or (H, W)")
            photo = Image.fromarray(photo)
        elif not isinstance(photo, Image.Image):
            photo = sample_photo() if str(photo) == SAMPLE else read_photo(photo)
        photo = tried(classifier, classifier.preprocess, prepare(photo))
        if not isinstance(photo, Tensor):
            raise IgosError(f"preprocess of {classifier.name!r}: it must return a tensor")
    image = _one_image(photo)
    parameter = next(classifier.module.parameters(), None)
    return image if parameter is None else image.to(parameter.device)


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
    check_class(index, len(probabilities), classifier.name)
    return index
