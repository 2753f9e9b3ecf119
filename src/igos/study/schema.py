"""The tables of a store (`docs/store.md`), and opening a file that has them."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from igos.errors import IgosError

SCHEMA = 2
APPLICATION = 0x49474F53  # "IGOS", in SQLite's header: this file is ours
TABLES = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    arguments TEXT NOT NULL,
    environment TEXT NOT NULL
);
CREATE TABLE questions (
    id INTEGER PRIMARY KEY,
    identity TEXT NOT NULL UNIQUE
);
CREATE TABLE photos (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    UNIQUE (name, sha256)
);
CREATE TABLE predictions (
    photo INTEGER NOT NULL REFERENCES photos (id),
    question INTEGER NOT NULL REFERENCES questions (id),
    target INTEGER NOT NULL,
    probability REAL NOT NULL,
    predicted INTEGER NOT NULL,
    predicted_probability REAL NOT NULL,
    PRIMARY KEY (photo, question)
);
CREATE TABLE configurations (
    id INTEGER PRIMARY KEY,
    question INTEGER NOT NULL REFERENCES questions (id),
    method TEXT NOT NULL,
    height INTEGER NOT NULL,
    width INTEGER NOT NULL,
    settings TEXT NOT NULL,
    UNIQUE (question, method, height, width, settings)
);
CREATE TABLE results (
    configuration INTEGER NOT NULL REFERENCES configurations (id),
    photo INTEGER NOT NULL REFERENCES photos (id),
    run INTEGER NOT NULL REFERENCES runs (id),
    deletion REAL NOT NULL,
    insertion REAL NOT NULL,
    fraction TEXT NOT NULL,
    deletion_curve TEXT NOT NULL,
    insertion_curve TEXT NOT NULL,
    seconds REAL NOT NULL,
    iterations INTEGER,
    converged INTEGER,
    losses TEXT,
    warnings TEXT NOT NULL,
    heatmap BLOB,
    PRIMARY KEY (configuration, photo)
);
CREATE TABLE failures (
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    configuration INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (name, sha256, configuration)
);
"""


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A store open for reading, also while another process writes it."""
    if not os.path.isfile(path):
        raise IgosError(f"store {str(path)!r}: no such file; igos evaluate makes one")
    connection = connect(path, read_only=True)
    try:
        with broken(path):
            if _is_empty(connection):
                raise IgosError(f"store {str(path)!r}: there is nothing in it")
            yield connection
    finally:
        connection.close()


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """The file's connection, once it is known to be a store of this version."""
    address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    if read_only and not os.access(path.parent, os.W_OK) and not _has_log(path):
        address += "&immutable=1"  # SQLite would make a file beside it
    with broken(path):
        db = sqlite3.connect(address, uri=True, check_same_thread=False, timeout=30)
        try:
            _check(db, path, read_only=read_only)
        except BaseException:
            db.close()
            raise
    return db


def _has_log(path: Path) -> bool:
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _check(db: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    if not read_only:
        db.execute("PRAGMA synchronous = NORMAL")  # in WAL mode a killed process loses nothing
    if _is_empty(db):
        return
    if owner != APPLICATION:
        raise IgosError(f"store {str(path)!r}: not a store of igos; give another file")
    if version != SCHEMA:
        raise IgosError(
            f"store {str(path)!r}: written by another version of igos (schema {version}, this one "
            f"knows {SCHEMA}); use that version, or give another file"
        )


def _is_empty(db: sqlite3.Connection) -> bool:
    return bool(db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0)


def create_if_empty(db: sqlite3.Connection) -> None:
    """Make the tables where the file is new, or its maker was killed."""
    if not _is_empty(db):
        return
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(
        f"BEGIN; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}; "
        "COMMIT;"
    )


@contextmanager
def broken(path: Path) -> Iterator[None]:
    """SQLite's complaints about the file as errors of ours."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise  # a mistake in the program
    except sqlite3.OperationalError as error:  # a full disk, a folder that is not there
        raise IgosError(f"store {str(path)!r}: {error}; give another file, or make room") from error
    except sqlite3.DatabaseError as error:
        raise IgosError(
            f"store {str(path)!r}: not a store of igos, or damaged ({error})"
        ) from error
