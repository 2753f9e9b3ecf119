"""One SQLite file for a study: what was asked, of which photos, and every answer.

Whatever was committed survives the process, killed or not. The tables are in `docs/store.md`.
"""

import json
import sqlite3
import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self

from igos.answer import Prediction
from igos.errors import IgosError
from igos.study.result import Failure, Result
from igos.study.schema import broken, connect, create_if_empty

NO_CONFIGURATION = 0  # a failure of the photo itself, whatever the method


def identity(values: dict[str, Any]) -> str:
    """The one text for these settings."""
    return json.dumps(values, sort_keys=True, allow_nan=False)


class Store:
    """The file, open for writing by this process alone; its methods may be called by any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # so that a link to it has the same lock
        self._mutex = threading.Lock()
        self._run = 0
        with ExitStack() as opened:
            # First, so that what is no store gets no lock beside it; and for writing, so that what
            # a killed process had half done is undone.
            self._db = opened.enter_context(closing(connect(self.path, read_only=False)))
            self._lock = opened.enter_context(closing(_lock(self.path)))
            with broken(self.path):
                create_if_empty(self._db)
            opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
        self._lock.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._mutex:
            with broken(self.path), self._db:
                yield self._db

    def begin(
        self, *, started: str, arguments: dict[str, Any], environment: dict[str, Any]
    ) -> None:
        """Write down that a run begins; what is added from now on is its work."""
        with self._transaction() as db:
            self._run = (
                db.execute(
                    "INSERT INTO runs (started, arguments, environment) VALUES (?, ?, ?)",
                    (started, identity(arguments), identity(environment)),
                ).lastrowid
                or 0
            )

    def question(self, values: dict[str, Any]) -> int:
        """The number of what is asked of every photo."""
        with self._transaction() as db:
            return _number(db, "questions", {"identity": identity(values)})

    def configuration(
        self, question: int, method: str, resolution: tuple[int, int], settings: dict[str, Any]
    ) -> int:
        """The number of a method with its settings at a resolution."""
        values = {
            "question": question,
            "method": method,
            "height": resolution[0],
            "width": resolution[1],
            "settings": identity(settings),
        }
        with self._transaction() as db:
            return _number(db, "configurations", values)

    def find_photo(self, name: str, sha256: str) -> int | None:
        with self._transaction() as db:
            row = db.execute(
                "SELECT id FROM photos WHERE name = ? AND sha256 = ?", (name, sha256)
            ).fetchone()
        return None if row is None else int(row[0])

    def photo(self, name: str, sha256: str) -> int:
        """The number of a readable photo."""
        with self._transaction() as db:
            db.execute(  # also of an older content
                "DELETE FROM failures WHERE name = ? AND configuration = ?",
                (name, NO_CONFIGURATION),
            )
            return _number(db, "photos", {"name": name, "sha256": sha256})

    def prediction(self, photo: int, question: int) -> Prediction | None:
        with self._transaction() as db:
            row = db.execute(
                "SELECT target, probability, predicted, predicted_probability FROM predictions "
                "WHERE photo = ? AND question = ?",
                (photo, question),
            ).fetchone()
        return None if row is None else Prediction(*row)

    def add_predictions(self, question: int, predictions: dict[int, Prediction]) -> None:
        """All of them or none."""
        rows = [
            (photo, question, p.target, p.probability, p.predicted, p.predicted_probability)
            for photo, p in predictions.items()
        ]
        with self._transaction() as db:
            db.executemany("INSERT INTO predictions VALUES (?, ?, ?, ?, ?, ?)", rows)

    def done(self, photo: int, configurations: Iterable[int]) -> set[int]:
        """Those of the configurations that have a result for the photo."""
        with self._transaction() as db:
            return {
                one
                for one in configurations
                if db.execute(
                    "SELECT 1 FROM results WHERE configuration = ? AND photo = ?", (one, photo)
                ).fetchone()
            }

    def add_answers(self, configuration: int, answers: dict[int, Result | Failure]) -> None:
        """What a configuration made of some photos: all of it or nothing."""
        rows = {  # packed before the transaction, which others wait for
            photo: (configuration, photo, self._run, *answer.row())
            for photo, answer in answers.items()
            if isinstance(answer, Result)
        }
        with self._transaction() as db:
            for photo, answer in answers.items():
                name, sha256 = db.execute(
                    "SELECT name, sha256 FROM photos WHERE id = ?", (photo,)
                ).fetchone()
                if isinstance(answer, Failure):
                    _fail(db, name, sha256, configuration, answer.reason)
                    continue
                marks = ", ".join("?" * len(rows[photo]))
                db.execute(f"INSERT INTO results VALUES ({marks})", rows[photo])
                db.execute(
                    "DELETE FROM failures WHERE (name, sha256, configuration) = (?, ?, ?)",
                    (name, sha256, configuration),
                )

    def add_failure(self, name: str, sha256: str, reason: str) -> None:
        """A photo that cannot be used at all."""
        with self._transaction() as db:
            _fail(db, name, sha256, NO_CONFIGURATION, reason)

    def failures(
        self, configurations: Iterable[int] | None = None, photos: Container[str] | None = None
    ) -> list[str]:
        """What has no result, and why, a line each; of these configurations and photos, or all."""
        wanted = None if configurations is None else {NO_CONFIGURATION, *configurations}
        with self._transaction() as db:
            rows = [
                row
                for number, *row in db.execute(
                    "SELECT f.configuration, f.reason, f.name, c.method, c.height, c.width "
                    "FROM failures f LEFT JOIN configurations c ON c.id = f.configuration "
                    "ORDER BY f.name, f.configuration"
                )
                if (wanted is None or number in wanted) and (photos is None or row[1] in photos)
            ]
        return [
            reason if method is None else f"{method} {height}×{width} of {name!r}: {reason}"
            for reason, name, method, height, width in rows
        ]

    def has_results(
        self, configurations: Container[int], photos: Container[str], min_probability: float
    ) -> bool:
        """Whether one of these photos has a result of one of these configurations."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT c.id, f.name FROM results r "
                "JOIN configurations c ON c.id = r.configuration JOIN photos f ON f.id = r.photo "
                "JOIN predictions p ON p.photo = r.photo AND p.question = c.question "
                "WHERE p.probability >= ?",
                (min_probability,),
            )
            return any(number in configurations and name in photos for number, name in rows)

    def mean(self, configuration: int) -> tuple[int, float, float]:
        """How many results there are, and their mean deletion and insertion."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT count(*), total(deletion), total(insertion) FROM results "
                "WHERE configuration = ?",
                (configuration,),
            ).fetchone()
        count = int(row[0])
        return count, row[1] / max(count, 1), row[2] / max(count, 1)


def _number(db: sqlite3.Connection, table: str, values: dict[str, Any]) -> int:
    """The id of the row with these values, which is made where there is none."""
    columns = ", ".join(values)
    marks = ", ".join("?" * len(values))
    wanted: Sequence[Any] = list(values.values())
    db.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", wanted)
    row = db.execute(f"SELECT id FROM {table} WHERE ({columns}) = ({marks})", wanted).fetchone()
    return int(row[0])


def _fail(db: sqlite3.Connection, name: str, sha256: str, configuration: int, reason: str) -> None:
    db.execute(
        "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", (name, sha256, configuration, reason)
    )


def _lock(path: Path) -> sqlite3.Connection:
    """Held until it is closed or the process ends, however it ends; the store stays readable."""
    with broken(path):
        lock = sqlite3.connect(f"{path}.lock", timeout=0, isolation_level=None)
    try:
        with broken(path):
            lock.execute("PRAGMA journal_mode = MEMORY")  # no second file beside it
            lock.execute("BEGIN EXCLUSIVE")
    except IgosError as error:
        lock.close()
        if "locked" not in str(error):
            raise
        raise IgosError(
            f"store {str(path)!r}: another process is writing it; wait for it, or give another "
            "--out"
        ) from error
    return lock
