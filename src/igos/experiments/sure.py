"""Photos that the model is sure of, for experiments that make pictures out of them."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from igos.answer import classified, device_of, tried
from igos.data import Listed, decode, quiet, read_content
from igos.errors import IgosError
from igos.experiments.bench import Bench
from igos.study.halving import batches, halving
from igos.study.result import Failure

AT_ONCE = 32  # photos classified, or attacked, together


@dataclass(frozen=True, eq=False)
class Sure:
    """A photo in which the model sees a class with the minimum probability."""

    name: str  # made of the file's name and its content: another photo has another
    image: Tensor  # (3, H, W)
    label: int  # that class


def sure(bench: Bench) -> Iterator[Sure]:
    """The first ones, at most the bench's limit, each once.

    What `igos evaluate` would refuse is left out, and named where nothing else is left.
    """
    names: set[str] = set()
    failures: list[str] = []
    for some in batches(bench.photos, AT_ONCE):
        read = [_read(bench, photo) for photo in some]
        readable = [one for one in read if not isinstance(one, Failure)]
        seen = halving(partial(_classes, bench), readable)
        failures += [one.reason for one in (*read, *seen) if isinstance(one, Failure)]
        for (name, image), found in zip(readable, seen, strict=True):
            if isinstance(found, Failure) or name in names or found[0] < bench.min_probability:
                continue
            names.add(name)
            yield Sure(name, image, found[1])
            if len(names) == bench.limit:
                return
    if not names:
        raise IgosError(f"no photo could be used: {bench.why(failures, len(bench.photos))}")


def _read(bench: Bench, photo: Listed) -> tuple[str, Tensor] | Failure:
    """Its name and its image."""
    classifier = bench.classifier
    try:
        content = read_content(photo.path)
        with quiet():
            image = tried(classifier, classifier.preprocess, decode(photo.path, content))
    except IgosError as error:
        return Failure(str(error))
    if image.shape[-2:] != bench.size:
        return Failure(f"photo {photo.name!r}: preprocessing makes it {tuple(image.shape)}")
    return f"{Path(photo.name).stem}-{hashlib.sha256(content).hexdigest()[:12]}", image


def _classes(bench: Bench, photos: Sequence[tuple[str, Tensor]]) -> list[tuple[float, int]]:
    """The probability and the index of the class that the model sees in each."""
    images = together(bench, [image for _, image in photos])
    probability, index = classified(bench.classifier, images).max(dim=1)
    return list(zip(probability.tolist(), index.tolist(), strict=True))


def together(bench: Bench, images: Sequence[Tensor]) -> Tensor:
    """One batch, where the model is."""
    return torch.stack(list(images)).to(device_of(bench.classifier), torch.float32)
