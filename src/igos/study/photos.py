"""From a list of photos to those that are explained: read, decoded, predicted."""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from igos.answer import Prediction, check_class, classified, tried
from igos.data import Listed, decode, quiet, read_content
from igos.errors import IgosError
from igos.study.halving import batches, halving
from igos.study.plan import Study
from igos.study.result import Failure

T = TypeVar("T")
R = TypeVar("R")

READERS = 4  # threads that read and decode photos
WNID = re.compile(r"n\d{8}")  # ImageNet's name for a class, as in its folders
IMAGENET = 1000  # classes


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo read from its file, as far as that was needed."""

    listed: Listed
    at: int  # its place in the list
    sha256: str = ""
    image: Tensor | None = None  # (3, H, W); None: nothing is left to do, or it cannot be read
    failure: str = ""
    number: int = 0  # in the store
    prediction: Prediction | None = None


def eligible(study: Study, photos: Sequence[Listed]) -> Iterator[Photo]:
    """The photos whose target has the minimum probability, numbered; others are written down."""
    with quiet(), ThreadPoolExecutor(READERS) as readers:
        loaded = _in_advance(
            readers, lambda p: _load(study, *p), list(enumerate(photos)), study.batch
        )
        for some in batches(loaded, study.batch):
            for photo in _predicted(study, some):
                assert photo.prediction is not None
                if photo.prediction.probability >= study.min_probability:
                    yield photo


def _in_advance(
    pool: ThreadPoolExecutor, function: Callable[[T], R], items: Sequence[T], ahead: int
) -> Iterator[R]:
    """`map` that keeps a batch or so in advance of its consumer, and no more."""
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > max(ahead, READERS):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _load(study: Study, at: int, listed: Listed) -> Photo:
    """Read a photo; decode it where something is left to do."""
    photo = Photo(listed, at)
    try:
        content = read_content(listed.path)
        photo = replace(photo, sha256=hashlib.sha256(content).hexdigest())
        if not _settled(study, photo):
            picture = decode(listed.path, content)
            image = tried(study.classifier, study.classifier.preprocess, picture)
            if image.shape != study.size:
                raise IgosError(
                    f"photo {str(listed.path)!r}: preprocessing makes it {tuple(image.shape)}, "
                    f"others {tuple(study.size)}; it must give one size"
                )
            return replace(photo, image=image)
    except (IgosError, MemoryError) as error:
        return replace(photo, failure=str(error) or "out of memory")
    return photo


def _settled(study: Study, photo: Photo) -> bool:
    """Everything about it is in the store."""
    number = study.store.find_photo(photo.listed.name, photo.sha256)
    prediction = None if number is None else study.store.prediction(number, study.number)
    if number is None or prediction is None:
        return False
    if prediction.probability < study.min_probability:
        return True
    wanted = {configuration.number for configuration in study.configurations}
    return study.store.done(number, wanted) == wanted


def _predicted(study: Study, photos: Sequence[Photo]) -> list[Photo]:
    """The readable ones with their numbers and predictions."""
    found: list[Photo] = []
    new: list[Photo] = []
    for photo in photos:
        if photo.failure:
            study.store.add_failure(photo.listed.name, photo.sha256, photo.failure)
            continue
        number = study.store.photo(photo.listed.name, photo.sha256)
        known = study.store.prediction(number, study.number)
        if known is None:
            new.append(replace(photo, number=number))
        elif changed := _changed(study, photo.listed, known):
            study.store.add_failure(photo.listed.name, photo.sha256, changed)
        else:
            found.append(replace(photo, number=number, prediction=known))
    predictions: dict[int, Prediction] = {}
    for photo, prediction in zip(
        new, halving(lambda some: _predict(study, some), new), strict=True
    ):
        if isinstance(prediction, Failure):
            study.store.add_failure(photo.listed.name, photo.sha256, prediction.reason)
            continue
        predictions[photo.number] = prediction
        found.append(replace(photo, prediction=prediction))
    study.store.add_predictions(study.number, predictions)
    return sorted(found, key=lambda photo: photo.at)


def _changed(study: Study, listed: Listed, known: Prediction) -> str:
    """What is wrong with the label of a photo that the store knows already."""
    try:
        target = _target(study, listed)
    except IgosError as error:
        return str(error)
    if target is None or target == known.target:
        return ""
    return (
        f"photo {listed.name!r} is in this store with the class {known.target}, not {target}; "
        "give another --out"
    )


def _predict(study: Study, photos: Sequence[Photo]) -> list[Prediction]:
    targets = [_target(study, photo.listed) for photo in photos]
    probabilities = classified(study.classifier, stack(study, photos))
    for target in targets:
        if target is not None:
            check_class(target, probabilities.shape[1], study.classifier.name)
    return [Prediction.of(row, target) for row, target in zip(probabilities, targets, strict=True)]


def _target(study: Study, listed: Listed) -> int | None:
    if study.question.target == "predicted":
        return None
    if listed.label is None:
        raise IgosError(
            f"photo {listed.name!r} has no label: give a CSV with class_index, or class folders"
        )
    if isinstance(listed.label, int):
        return listed.label
    if WNID.fullmatch(listed.label) and len(study.classifier.class_names) == IMAGENET:
        if listed.label not in _wordnet():
            raise IgosError(f"photo {listed.name!r}: {listed.label} is no class of ImageNet's 1000")
        return _wordnet()[listed.label]
    return study.classifier.find_class(listed.label)


@cache
def _wordnet() -> dict[str, int]:
    """The class indices of ImageNet's folder names."""
    from timm.data import ImageNetInfo

    return {name: index for index, name in enumerate(ImageNetInfo().label_names())}


def stack(study: Study, photos: Sequence[Photo]) -> Tensor:
    images = [photo.image for photo in photos if photo.image is not None]
    return torch.stack(images).to(study.device, torch.float32)
