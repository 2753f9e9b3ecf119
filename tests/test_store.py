"""The SQLite file: one writer, all or nothing, refusals."""

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from igos.answer import Prediction
from igos.errors import IgosError
from igos.study.result import Failure, Result, pack, unpack
from igos.study.schema import SCHEMA, reading
from igos.study.store import Store

RESULT = Result(
    deletion=0.1,
    insertion=0.7,
    fraction=[0.0, 1.0],
    deletion_curve=[0.2, 0.0],
    insertion_curve=[0.4, 1.0],
    seconds=0.5,
    iterations=3,
    converged=True,
    losses=[0.9, 0.5, 0.4],
    warnings=["careful: ×"],
    heatmap=np.arange(6, dtype=np.float32).reshape(2, 3),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.sqlite"


def test_what_goes_in_comes_out(path: Path) -> None:
    with Store(path) as store:
        for _ in range(7):
            store.begin(started="now", arguments={}, environment={})
        question = store.question({"model": "net"})
        photo = store.photo("a.jpg", "00ff")
        configuration = store.configuration(question, "igos", (2, 3), {"seed": 0})
        assert store.question({"model": "net"}) == question
        assert store.photo("a.jpg", "00ff") == photo == store.find_photo("a.jpg", "00ff")
        assert store.find_photo("a.jpg", "0000") is None
        assert store.configuration(question, "igos", (2, 3), {"seed": 0}) == configuration
        assert store.configuration(question, "igos", (2, 3), {"seed": 1}) != configuration
        prediction = Prediction(2, 0.75, 1, 0.8)
        assert store.prediction(photo, question) is None
        store.add_predictions(question, {photo: prediction})
        assert store.prediction(photo, question) == prediction
        assert store.done(photo, [configuration]) == set()
        store.add_answers(configuration, {photo: RESULT})
        assert store.done(photo, [configuration, 99]) == {configuration}
        assert store.mean(configuration) == (1, 0.1, 0.7)
        assert store.mean(99) == (0, 0.0, 0.0)
    with reading(path) as db:
        row = db.execute("SELECT * FROM results").fetchone()
    assert row[2] == 7
    assert row[3:13] == (
        0.1,
        0.7,
        "[0.0, 1.0]",
        "[0.2, 0.0]",
        "[0.4, 1.0]",
        0.5,
        3,
        1,
        "[0.9, 0.5, 0.4]",
        '["careful: ×"]',
    )
    assert RESULT.heatmap is not None
    np.testing.assert_array_equal(unpack(row[13], (2, 3)), RESULT.heatmap)


BARE = replace(RESULT, iterations=None, converged=None, losses=None, heatmap=None)


@pytest.mark.parametrize("result", [RESULT, BARE], ids=["full", "bare"])
def test_a_row_is_read_as_it_was_written(result: Result) -> None:
    read = Result.of(result.row(), (2, 3))
    np.testing.assert_array_equal(read.heatmap, result.heatmap)
    assert replace(read, heatmap=None) == replace(result, heatmap=None)


def test_a_heatmap_is_packed_without_loss() -> None:
    heatmap = np.random.default_rng(0).random((5, 7)).astype(np.float32)
    np.testing.assert_array_equal(unpack(pack(heatmap[:, ::-1]), (5, 7)), heatmap[:, ::-1])


def test_answers_come_all_or_not_at_all(path: Path) -> None:
    with Store(path) as store:
        question = store.question({})
        photos = [store.photo(name, "") for name in "ab"]
        configuration = store.configuration(question, "igos", (2, 3), {})
        store.add_answers(configuration, {photos[1]: RESULT})
        with pytest.raises(sqlite3.IntegrityError):
            store.add_answers(configuration, {photos[0]: RESULT, photos[1]: RESULT})
        assert store.done(photos[0], [configuration]) == set()
        store.add_answers(configuration, {photos[0]: Failure("no luck")})
        assert store.failures() == ["igos 2×3 of 'a': no luck"]


def test_a_second_writer_is_refused_and_a_reader_is_not(path: Path) -> None:
    with Store(path) as store:
        with pytest.raises(IgosError, match="another process is writing it"):
            Store(path)
        store.question({"model": "net"})
        with reading(path) as db:
            assert db.execute("SELECT count(*) FROM questions").fetchone() == (1,)
    with Store(path):
        pass  # free again


def test_a_newer_schema_is_refused(path: Path) -> None:
    with Store(path):
        pass
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    db.close()
    message = rf"another version of igos \(schema {SCHEMA + 1}, this one knows {SCHEMA}\)"
    with pytest.raises(IgosError, match=message):
        Store(path)
    with pytest.raises(IgosError, match=message), reading(path):
        pass


def test_a_store_whose_maker_was_killed_is_made(path: Path) -> None:
    """SQLite has made the file, but no table is in it yet."""
    path.touch()
    with pytest.raises(IgosError, match="there is nothing in it"), reading(path):
        pass
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
    db.close()
    assert path.stat().st_size > 0
    with Store(path) as store:
        assert store.question({}) == 1


def test_files_that_are_no_stores_are_left_alone(path: Path, tmp_path: Path) -> None:
    with pytest.raises(IgosError, match="no such file"), reading(path):
        pass
    path.write_text(
        "my diary, which is longer than the header of an SQLite file, I should hope." * 9
    )
    before = path.read_bytes()
    with pytest.raises(IgosError, match="not a store of igos"):
        Store(path)
    assert path.read_bytes() == before
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (a)")
    db.close()
    with pytest.raises(IgosError, match="not a store of igos; give another file"):
        Store(other)
    with pytest.raises(IgosError, match="unable to open"):
        Store(tmp_path / "nowhere" / "run.sqlite")
    with pytest.raises(IgosError, match="store"):
        Store(tmp_path)


def test_a_store_whose_maker_was_killed_in_the_middle(tmp_path: Path) -> None:
    """What it had half written lies in the file, and what was before in a journal beside it."""
    half, killed = tmp_path / "half.sqlite", tmp_path / "killed.sqlite"
    db = sqlite3.connect(half, isolation_level=None)
    db.execute("PRAGMA cache_size = 1")  # so that pages are written before the end
    db.execute("BEGIN")
    db.execute("CREATE TABLE photos (x)")
    db.executemany("INSERT INTO photos VALUES (?)", [("x" * 3000,)] * 200)
    for end in ("", "-journal"):
        shutil.copy(f"{half}{end}", f"{killed}{end}")
    db.close()
    assert killed.stat().st_size > 100_000
    with Store(killed) as store:
        assert store.photo("a.png", "0") == 1
    with Store(killed) as store:
        assert store.find_photo("a.png", "0") == 1
