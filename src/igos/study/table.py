"""The tables of a study: mean deletion and insertion, how sure they are, and who is better."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from igos.study.schema import reading

CONFIDENCE = 0.95
RESAMPLES = 10_000  # of the bootstrap
AT_ONCE = 10_000_000  # numbers that the bootstrap holds in memory

Values = np.ndarray[Any, np.dtype[np.float64]]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One method with its settings at one resolution, over photos."""

    question: dict[str, Any]  # model, target, baseline, …
    method: str
    resolution: tuple[int, int]
    settings: dict[str, Any]
    photos: int
    deletion: float
    deletion_ci: Interval | None  # None for a single photo
    insertion: float
    insertion_ci: Interval | None
    seconds: float  # a heatmap
    against: str | None = None  # the method compared with, photo by photo
    common_photos: int = 0
    deletion_p: float | None = None
    insertion_p: float | None = None
    deletion_wins: float | None = None  # share of the common photos where this method is better
    insertion_wins: float | None = None
    difference_p: float | None = None
    difference_wins: float | None = None

    @property
    def difference(self) -> float:
        return self.insertion - self.deletion

    def record(self) -> dict[str, Any]:
        """As JSON has it; a square resolution is one number."""
        h, w = self.resolution
        resolution = h if h == w else [h, w]
        return {**asdict(self), "resolution": resolution, "difference": self.difference}


@dataclass(frozen=True, eq=False)
class _Results:
    photos: list[int]
    deletion: Values
    insertion: Values
    seconds: Values

    @property
    def difference(self) -> Values:
        return self.insertion - self.deletion

    def at(self, photos: Sequence[int]) -> "_Results":
        place = {photo: at for at, photo in enumerate(self.photos)}
        chosen = [place[photo] for photo in photos]
        return _Results(
            list(photos), self.deletion[chosen], self.insertion[chosen], self.seconds[chosen]
        )


def summarise(
    path: Path,
    *,
    against: str | None = "igos",
    min_probability: float = 0.0,
    names: Collection[str] | None = None,
    only: tuple[Collection[int], Collection[int]] | None = None,
) -> list[Row]:
    """A row for each configuration that has results for photos of that probability.

    Either `only`, numbers of configurations and of photos, or all configurations and the photos
    with these `names`, or any; of photos with the same name, the one that came last.

    `against` names the method that every other is tested against at the same resolution, by the
    paired Wilcoxon signed-rank test (two-sided) over the photos that both have. Of several settings
    of that method the one that came first into the store counts.
    """
    with reading(path) as db:
        configurations, photos = only or (None, photos_named(db, names))
        return rows_of(
            db,
            against=against,
            min_probability=min_probability,
            configurations=configurations,
            photos=photos,
        )


def photos_named(db: sqlite3.Connection, names: Collection[str] | None = None) -> set[int]:
    """The numbers of photos with these names, or any; of the same name the one that came last."""
    last = db.execute("SELECT name, max(id) FROM photos GROUP BY name")
    return {number for name, number in last if names is None or name in names}


def rows_of(
    db: sqlite3.Connection,
    *,
    against: str | None,
    min_probability: float,
    configurations: Collection[int] | None,
    photos: Collection[int],
) -> list[Row]:
    """What `summarise` returns, from a store that is open."""
    wanted = [
        row
        for row in db.execute(
            "SELECT c.id, q.identity, c.height, c.width, c.method, c.settings "
            "FROM configurations c JOIN questions q ON q.id = c.question ORDER BY c.id"
        )
        if configurations is None or row[0] in configurations
    ]
    results = {number: _results(db, number, min_probability, photos) for number, *_ in wanted}
    references: dict[tuple[str, int, int], _Results] = {}
    for number, *place, method, _ in wanted:
        if method == against and results[number].photos:
            references.setdefault(tuple(place), results[number])
    rows = []
    for number, *place, method, settings in wanted:
        found = results[number]
        if not found.photos:
            continue
        identity, height, width = place
        row = _row(found, json.loads(identity), method, (height, width), json.loads(settings))
        reference = references.get(tuple(place))
        if reference is not None and reference is not found:
            row = _tested(row, found, reference, str(against))
        rows.append(row)
    return rows


def _row(
    found: _Results,
    question: dict[str, Any],
    method: str,
    resolution: tuple[int, int],
    settings: dict[str, Any],
) -> Row:
    return Row(
        question=question,
        method=method,
        resolution=resolution,
        settings=settings,
        photos=len(found.photos),
        deletion=float(found.deletion.mean()),
        deletion_ci=confidence_interval(found.deletion),
        insertion=float(found.insertion.mean()),
        insertion_ci=confidence_interval(found.insertion),
        seconds=float(found.seconds.mean()),
    )


def _results(
    db: sqlite3.Connection,
    configuration: int,
    min_probability: float,
    photos: Collection[int],
) -> _Results:
    rows = db.execute(
        "SELECT r.photo, r.deletion, r.insertion, r.seconds FROM results r "
        "JOIN configurations c ON c.id = r.configuration "
        "JOIN predictions p ON p.photo = r.photo AND p.question = c.question "
        "WHERE r.configuration = ? AND p.probability >= ? ORDER BY r.photo",
        (configuration, min_probability),
    ).fetchall()
    rows = [row for row in rows if row[0] in photos]
    figures = np.array([row[1:] for row in rows], float).reshape(-1, 3)
    return _Results([row[0] for row in rows], *figures.T)


def _tested(row: Row, found: _Results, reference: _Results, against: str) -> Row:
    common = sorted(set(found.photos) & set(reference.photos))
    ours, theirs = found.at(common), reference.at(common)
    return replace(
        row,
        against=against,
        common_photos=len(common),
        deletion_p=paired_p(ours.deletion - theirs.deletion),
        insertion_p=paired_p(ours.insertion - theirs.insertion),
        deletion_wins=wins(theirs.deletion - ours.deletion),
        insertion_wins=wins(ours.insertion - theirs.insertion),
        difference_p=paired_p(ours.difference - theirs.difference),
        difference_wins=wins(ours.difference - theirs.difference),
    )


def confidence_interval(values: Values) -> Interval | None:
    """Of the mean, at 95 %, by the percentile bootstrap with a fixed seed."""
    if len(values) < 2:
        return None
    interval = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=max(1, AT_ONCE // len(values)),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def paired_p(differences: Values) -> float | None:
    """Of the Wilcoxon signed-rank test that they lie around 0; 1 where all are 0."""
    if len(differences) == 0:
        return None
    if not differences.any():
        return 1.0
    return float(stats.wilcoxon(differences).pvalue)


def wins(gains: Values) -> float | None:
    """The share above 0; a draw is half a win."""
    if len(gains) == 0:
        return None
    return float(((gains > 0) + 0.5 * (gains == 0)).mean())


def labels(rows: Sequence[Row]) -> list[str]:
    """Each row's method, and those settings that tell it from others of the same name.

    A setting that changes with the resolution alone, such as a default λ, tells nothing.
    """
    alike: dict[tuple[str, str, tuple[int, int]], list[Row]] = defaultdict(list)
    for row in rows:
        alike[_kind(row)].append(row)
    return [_label(row, alike[_kind(row)]) for row in rows]


def _kind(row: Row) -> tuple[str, str, tuple[int, int]]:
    return json.dumps(row.question, sort_keys=True), row.method, row.resolution


def _label(row: Row, alike: Sequence[Row]) -> str:
    keys = sorted({key for one in alike for key in one.settings})
    told = [
        f"{key}={row.settings.get(key)}"
        for key in keys
        if any(one.settings.get(key) != row.settings.get(key) for one in alike)
    ]
    return f"{row.method} ({', '.join(told)})" if told else row.method
