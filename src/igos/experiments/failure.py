"""The failure case: how good are heatmaps of classes that the model hardly sees?"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from igos.experiments.bench import Bench, Kept, Report
from igos.study.formats import markdown

SIDE = 28
METHOD = "igos"
EDGES = (0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 1.0)  # 0.01: the paper's failure case
LATE = 0.9  # of the pixels: an insertion curve that moves only then has found nothing


@dataclass(frozen=True)
class _Photo:
    probability: float
    first_choice: bool
    deletion: float
    insertion: float
    late: bool


def failure(bench: Bench) -> Report:
    """Both metrics by the probability of the class, and by whether it is the first choice."""
    every = replace(bench, min_probability=0.0)
    kept = every.study("failure", {METHOD: bench.maker(METHOD)}, [SIDE])
    photos = _photos(kept)
    by_probability = [
        (f"{low:g} to {high:g}", [p for p in photos if low < p.probability <= high])
        for low, high in pairwise(EDGES)
    ]
    by_choice = [
        ("its first choice", [p for p in photos if p.first_choice]),
        ("not its first choice", [p for p in photos if not p.first_choice]),
    ]
    head = ["photos", "deletion / p", "insertion / p", "difference", "late"]
    text = "\n\n".join(
        [
            "# Failure cases",
            f"{bench.classifier.name}, target {bench.target}, {METHOD} at {SIDE}×{SIDE}. "
            "Areas are divided by the probability of the untouched photo: a class of 0.02 cannot "
            'have an insertion of 0.6. "Late" are photos whose insertion curve has not reached '
            f"half of that probability when {LATE:.0%} of the pixels are there: the paper's "
            "failure case.",
            markdown(["probability of the class", *head], [_line(*one) for one in by_probability]),
            markdown(["the class is", *head], [_line(*one) for one in by_choice]),
        ]
    )
    return Report("failure", text)


def _photos(kept: Kept) -> list[_Photo]:
    found = []
    for probability, first, deletion, insertion, fraction, curve in kept.select(
        "p.probability, p.predicted = p.target, r.deletion, r.insertion, r.fraction, "
        "r.insertion_curve"
    ):
        if probability == 0:
            continue  # nothing to divide by
        reached = reach(json.loads(fraction), json.loads(curve))
        found.append(_Photo(probability, bool(first), deletion, insertion, reached > LATE))
    return found


def reach(fraction: Sequence[float], score: Sequence[float], share: float = 0.5) -> float:
    """The smallest fraction at which the curve has that share of its last score.

    >>> reach([0, 0.5, 1], [0.0, 0.3, 0.6]), reach([0, 0.5, 1], [0.0, 0.2, 0.6])
    (0.5, 1)
    """
    return next(at for at, value in zip(fraction, score, strict=True) if value >= share * score[-1])


def _line(title: str, photos: Sequence[_Photo]) -> list[str]:
    if not photos:
        return [title, "0", "–", "–", "–", "–"]
    deletion = fmean(photo.deletion / photo.probability for photo in photos)
    insertion = fmean(photo.insertion / photo.probability for photo in photos)
    late = fmean(photo.late for photo in photos)
    figures = (f"{deletion:.3f}", f"{insertion:.3f}", f"{insertion - deletion:.3f}", f"{late:.0%}")
    return [title, str(len(photos)), *figures]
