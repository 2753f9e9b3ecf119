"""A store as plain data: what a report shows, before any of it is HTML."""

import json
import re
import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from igos.answer import Prediction
from igos.errors import IgosError, unknown
from igos.study.schema import reading
from igos.study.table import Row, Values, labels, photos_named, rows_of

PARTICULAR = re.compile(r"\d+(\.\d+)?|'[^']*'|\"[^\"]*\"")  # what makes each warning another one


@dataclass(frozen=True)
class Answer:
    """What a configuration made of a photo."""

    deletion: float
    insertion: float
    heatmap: bool  # is there one in the store?


@dataclass(frozen=True, eq=False)
class Configuration:
    """A method with its settings at a resolution, over its photos."""

    number: int
    question: int
    label: str
    row: Row
    fraction: Values  # (P,)
    deletion_curve: Values  # (P,), the mean over photos
    insertion_curve: Values
    answers: dict[int, Answer]  # by photo

    @property
    def size(self) -> str:
        return "{}×{}".format(*self.row.resolution)

    def values(self, metric: str) -> Values:
        """A number for each photo: of `METRICS`."""
        return np.array([METRICS[metric](answer) for answer in self.answers.values()])


METRICS = {
    "deletion": lambda answer: answer.deletion,
    "insertion": lambda answer: answer.insertion,
    "insertion − deletion": lambda answer: answer.insertion - answer.deletion,
}


@dataclass(frozen=True)
class Card:
    """A photo and what was asked of it."""

    question: int
    photo: int
    name: str
    sha256: str
    prediction: Prediction
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """A call of `igos evaluate`."""

    number: int
    started: str
    arguments: dict[str, Any]
    environment: dict[str, Any]
    questions: tuple[int, ...]  # that it answered


@dataclass(frozen=True)
class Failure:
    """Why there is no result."""

    name: str
    configuration: str  # "" where the photo itself is at fault
    reason: str


@dataclass(frozen=True, eq=False)
class Gathered:
    """All of a store that a report shows, but for the pictures."""

    store: Path
    questions: dict[int, dict[str, Any]]  # those with results
    configurations: list[Configuration]
    cards: list[Card]
    runs: list[Run]
    failures: list[Failure]
    min_probability: float

    def of(self, question: int) -> list[Configuration]:
        """A question's configurations, the finest resolution first, methods in one order."""
        own = [one for one in self.configurations if one.question == question]
        rank = {label: at for at, label in enumerate(dict.fromkeys(one.label for one in own))}
        by_method = sorted(own, key=lambda one: rank[one.label])
        return sorted(by_method, key=lambda one: one.row.resolution, reverse=True)

    @property
    def photos(self) -> int:
        return len({card.photo for card in self.cards})

    @property
    def warned(self) -> int:
        """Photos with a warning, to whichever question."""
        return len({card.photo for card in self.cards if card.warnings})


def gather(store: Path, *, against: str | None = None, min_probability: float = 0.0) -> Gathered:
    """Read a store; the tables' figures are those of `igos table`."""
    with reading(store) as db:
        db.execute("BEGIN")  # all of it as it is now, also while igos evaluate writes
        last = photos_named(db)
        numbers = [number for (number,) in db.execute("SELECT id FROM configurations ORDER BY id")]
        found = {number: _answers(db, number, min_probability, last) for number in numbers}
        found = {number: some for number, some in found.items() if some[0]}
        warnings = _warnings(db, found)
        cards = _cards(db, warnings)
        runs, failures = _runs(db), _failures(db)
        questions = {
            number: json.loads(identity)
            for number, identity in db.execute("SELECT id, identity FROM questions ORDER BY id")
        }
        home = dict(db.execute("SELECT id, question FROM configurations"))
        rows = rows_of(
            db,
            against=against or "igos",
            min_probability=min_probability,
            configurations=set(found),
            photos=last,
        )
    if not found:
        least = f" for photos of probability {min_probability}" if min_probability else ""
        raise IgosError(f"store {str(store)!r}: there are no results in it{least}")
    methods = {row.method for row in rows}
    if against is not None and against not in methods:
        remedy = f"give {' or '.join(sorted(methods))}"
        raise unknown("method of the store", against, methods, remedy=remedy)
    configurations = [
        Configuration(number, home[number], label, row, *curves, answers)
        for (number, (answers, curves)), row, label in zip(
            found.items(), rows, labels(rows), strict=True
        )
    ]
    asked = {card.question for card in cards}
    return Gathered(
        store=store,
        questions={number: one for number, one in questions.items() if number in asked},
        configurations=configurations,
        cards=cards,
        runs=runs,
        failures=failures,
        min_probability=min_probability,
    )


def _answers(
    db: sqlite3.Connection, configuration: int, min_probability: float, photos: set[int]
) -> tuple[dict[int, Answer], tuple[Values, Values, Values]]:
    """A configuration's results by photo, and its mean curves."""
    found = db.execute(
        "SELECT r.photo, r.deletion, r.insertion, r.heatmap IS NOT NULL, r.fraction, "
        "r.deletion_curve, r.insertion_curve FROM results r "
        "JOIN configurations c ON c.id = r.configuration "
        "JOIN predictions p ON p.photo = r.photo AND p.question = c.question "
        "WHERE r.configuration = ? AND p.probability >= ? ORDER BY r.photo",
        (configuration, min_probability),
    )
    rows = [row for row in found if row[0] in photos]
    answers = {row[0]: Answer(row[1], row[2], bool(row[3])) for row in rows}
    # The resolution and the protocol decide the fractions: they are the same for all photos.
    fraction, deletion, insertion = (
        np.array([json.loads(row[at]) for row in rows], float) for at in (-3, -2, -1)
    )
    if not rows:
        return {}, (fraction, deletion, insertion)
    return answers, (fraction[0], deletion.mean(axis=0), insertion.mean(axis=0))


Found = dict[int, tuple[dict[int, Answer], tuple[Values, Values, Values]]]


def _warnings(db: sqlite3.Connection, found: Found) -> dict[tuple[int, int], dict[str, None]]:
    """By question and photo, in order; the same from several methods is one."""
    warnings: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
    for configuration, question, photo, texts in db.execute(
        "SELECT r.configuration, c.question, r.photo, r.warnings FROM results r "
        "JOIN configurations c ON c.id = r.configuration ORDER BY r.configuration"
    ):
        if configuration in found and photo in found[configuration][0]:
            warnings[question, photo].update(dict.fromkeys(json.loads(texts)))
    return warnings


def _cards(db: sqlite3.Connection, warnings: dict[tuple[int, int], dict[str, None]]) -> list[Card]:
    """Of every photo with a result, in the order of the store: a random one."""
    return [
        Card(question, photo, name, sha256, Prediction(*figures), tuple(warnings[question, photo]))
        for question, photo, name, sha256, *figures in db.execute(
            "SELECT p.question, p.photo, f.name, f.sha256, p.target, p.probability, p.predicted, "
            "p.predicted_probability FROM predictions p JOIN photos f ON f.id = p.photo "
            "ORDER BY p.question, p.photo"
        )
        if (question, photo) in warnings
    ]


def _runs(db: sqlite3.Connection) -> list[Run]:
    answered = defaultdict(list)
    for run, question in db.execute(
        "SELECT DISTINCT r.run, c.question FROM results r "
        "JOIN configurations c ON c.id = r.configuration ORDER BY 1, 2"
    ):
        answered[run].append(question)
    return [
        Run(number, started, json.loads(given), json.loads(where), tuple(answered[number]))
        for number, started, given, where in db.execute("SELECT * FROM runs ORDER BY id")
    ]


def _failures(db: sqlite3.Connection) -> list[Failure]:
    return [
        Failure(name, f"{method} {height}×{width}" if method else "", reason)
        for name, reason, method, height, width in db.execute(
            "SELECT f.name, f.reason, c.method, c.height, c.width FROM failures f "
            "LEFT JOIN configurations c ON c.id = f.configuration ORDER BY f.name, f.configuration"
        )
    ]


def kind(warning: str) -> str:
    """What warnings that differ in their figures and names have in common."""
    return PARTICULAR.sub("…", warning)
