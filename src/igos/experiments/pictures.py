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
from igos.explainer import find_baseline, most_probable
from igos.explanation import Explanation
from igos.metrics.curves import Curve
from igos.models.classifier import Classifier
from igos.study.result import Result

ABOUT = "f.name, p.target, p.probability, q.identity, c.method, c.settings, c.height, c.width"
RESULT = ", ".join(f"r.{field.name}" for field in fields(Result))
ASKED = ("baseline", "score", "curves", "precision")  # kept with the question, not the method


def explanations(
    bench: Bench, kept: Kept, photos: Iterable[Listed]
) -> Iterator[tuple[str, list[Explanation]]]:
    """What the study, which kept its heatmaps, found for these photos: a photo's at a time."""
    paths = {photo.name: photo.path for photo in photos}
    rows = kept.each(f"{ABOUT}, {RESULT}", order="f.id, c.id")
    for name, found in groupby(rows, key=itemgetter(0)):
        if name in paths:
            yield name, list(_explained(bench.classifier, kept.path, paths[name], found))


def _explained(
    classifier: Classifier, store: Path, photo: Path, rows: Iterable[tuple[Any, ...]]
) -> Iterator[Explanation]:
    seen = tried(classifier, classifier.preprocess, read_photo(photo))
    image = seen[None].to(device_of(classifier), torch.float32)
    predicted = most_probable(classifier, classified(classifier, image)[0])
    for name, target, probability, identity, method, settings, height, width, *row in rows:
        result = Result.of(row, (height, width))
        if result.heatmap is None:
            raise IgosError(f"store {str(store)!r}: no heatmap of {name!r}; give another --out")
        asked = json.loads(identity)
        baseline = find_baseline(asked["baseline"], classifier)
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
            baseline=baseline(image, classifier.normalisation)[0].cpu(),
            normalisation=classifier.normalisation,
        )
