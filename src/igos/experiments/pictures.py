"""A study's results as explanations, for figures: nothing is explained again."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from igos.answer import classified, device_of, tried
from igos.data import Listed, read_photo
from igos.errors import IgosError
from igos.experiments.bench import Bench, Kept
from igos.explainer import most_probable
from igos.explanation import Explanation
from igos.image import blur
from igos.metrics.curves import Curve
from igos.study.store import Result

COLUMNS = (
    *("f.name", "p.target", "p.probability", "q.identity"),
    *("c.method", "c.settings", "c.height", "c.width"),
)
ASKED = ("baseline", "score", "curves", "precision")  # of the question, a setting of an explanation
RESULT = tuple(f"r.{field.name}" for field in fields(Result))


def explanations(
    bench: Bench, kept: Kept, photos: Iterable[Listed]
) -> Iterator[tuple[str, list[Explanation]]]:
    """What the study, which kept its heatmaps, found for these photos: a photo's at a time."""
    paths = {photo.name: photo.path for photo in photos}
    rows = kept.each(", ".join(COLUMNS + RESULT), order="f.id, c.id")
    for name, found in groupby(rows, key=itemgetter(0)):
        if name in paths:
            yield name, list(_explained(bench, paths[name], found))


def _explained(bench: Bench, path: Path, rows: Iterable[tuple[Any, ...]]) -> Iterator[Explanation]:
    classifier = bench.classifier
    seen = tried(classifier, classifier.preprocess, read_photo(path))
    image = seen[None].to(device_of(classifier), torch.float32)
    predicted = most_probable(classifier, classified(classifier, image)[0])
    for name, target, probability, identity, method, settings, height, width, *row in rows:
        result = Result.of(row, (height, width))
        if result.heatmap is None:
            raise IgosError(f"store of {bench.out}: {name!r} has no heatmap; give another --out")
        asked = json.loads(identity)
        fraction = torch.tensor(result.fraction)
        yield Explanation(
            photo=name,
            model=classifier.name,
            target=target,
            class_name=classifier.class_name(target),
            probability=probability,
            predicted=predicted,
            method=method,
            settings=json.loads(settings) | {key: asked[key] for key in ASKED},
            heatmap=torch.from_numpy(result.heatmap.copy()),
            deletion=Curve(fraction, torch.tensor(result.deletion_curve)),
            insertion=Curve(fraction, torch.tensor(result.insertion_curve)),
            seconds=result.seconds,
            iterations=result.iterations,
            converged=result.converged,
            losses=result.losses,
            warnings=result.warnings,
            image=image[0].cpu(),
            baseline=blur(image)[0].cpu(),
            normalisation=classifier.normalisation,
        )
