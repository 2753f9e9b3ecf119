"""`igos evaluate`, `igos table` and `igos compare`, as a person or another program uses them."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from igos.study.store import Store
from small import Run

NET = ("--model", "net.py:classifier", "--device", "cpu")
FAST = ("--set", "igos.max_iterations=2", "--set", "igos.path_steps=2", "--baseline", "grey")


@pytest.fixture
def photos(place: Path) -> Path:
    """Eleven photos with a red patch somewhere, and one that is none."""
    folder = place / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(11):
        pixels = rng.integers(0, 60, (40, 40, 3), dtype=np.uint8)
        y, x = rng.integers(0, 25, 2)
        pixels[y : y + 15, x : x + 15, 0] = 250
        Image.fromarray(pixels).save(folder / f"{number}.png")
    (folder / "bad.png").write_text("no photo")
    return folder


@pytest.mark.usefixtures("photos")
def test_evaluate_then_table(run: Run) -> None:
    words = ("evaluate", "photos", *NET, *FAST, "--methods", "igos,random,rise")
    code, out, err = run(
        *words,
        "--set",
        "rise.masks=20",
        "--resolutions",
        "8,4",
        "--out",
        "run.sqlite",
        "--limit",
        "5",
    )
    assert code == 0
    assert "rise: left out: makes heatmaps of 32×32" in err
    assert out.startswith(
        "Deletion (small is good) and insertion (large is good), net.py:classifier"
    )
    code, out, err = run("table", "run.sqlite", "--format", "json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert [(row["method"], row["resolution"], row["photos"]) for row in rows] == [
        ("igos", 8, 5),
        ("igos", 4, 5),
        ("random", 8, 5),
        ("random", 4, 5),
    ]
    assert rows[0]["insertion"] > rows[2]["insertion"]
    code, _, err = run(*words, "--resolutions", "8,4", "--out", "run.sqlite")
    assert "bad.png': not an image that Pillow can read" in err
    assert [row["photos"] for row in json.loads(run("table", "run.sqlite", "--format", "json")[1])][
        :2
    ] == [11, 11]


@pytest.mark.usefixtures("photos")
def test_the_same_twice_is_once(run: Run) -> None:
    words = ("evaluate", "photos", *NET, "--methods", "random,random", "--out", "run.sqlite")
    limit = ("--limit", "99999999999999999999", "--batch", "99999999999999999999")
    assert run(*words, "--resolutions", "8,8,8x8,", *limit)[0] == 0
    (row,) = json.loads(run("table", "run.sqlite", "--format", "json")[1])
    assert row["photos"] == 11
    code, _, err = run("table", "run.sqlite", "--against", "randon")
    assert (code, "did you mean 'random'" in err) == (2, True)


def test_a_table_of_some_photos(photos: Path, run: Run) -> None:
    assert run("evaluate", "photos", *NET, "--methods", "random", "--out", "run.sqlite")[0] == 0
    (photos / "some.csv").write_text("file,class_index\n1.png,0\n3.png,0\nbad.png,0\n")
    (photos / "none.csv").write_text("file,class_index\nbad.png,0\n")
    words = ("table", "run.sqlite", "--format", "json", "--photos")
    (row,) = json.loads(run(*words, "photos/some.csv")[1])
    assert row["photos"] == 2
    assert row["difference"] == pytest.approx(row["insertion"] - row["deletion"])
    code, _, err = run(*words, "photos/none.csv")
    assert code == 2
    assert "photos 'photos/none.csv': 'run.sqlite' has results for none of them" in err


@pytest.mark.usefixtures("photos")
def test_a_model_that_changed_is_another_one(place: Path, run: Run) -> None:
    words = ("evaluate", "photos", *NET, "--methods", "random", "--limit", "2", "--out", "r.sqlite")
    assert run(*words)[0] == 0
    source = (place / "net.py").read_text()
    (place / "net.py").write_text(source.replace("gain=60.0", "gain=30.0"))
    assert run(*words)[0] == 0
    rows = json.loads(run("table", "r.sqlite", "--format", "json")[1])
    assert [row["photos"] for row in rows] == [2, 2]
    assert rows[0]["deletion"] != rows[1]["deletion"]


@pytest.mark.usefixtures("photos")
def test_another_precision_is_another_question(run: Run) -> None:
    words = ("evaluate", "photos", *NET, "--methods", "random", "--limit", "2", "--out", "r.sqlite")
    for precision in ("fp32", "fp16", "auto"):  # which is fp32 on the CPU
        assert run(*words, "--precision", precision)[0] == 0
    out = run("table", "r.sqlite", "--format", "text")[1]
    assert out.count("in fp32 precision") == out.count("in fp16 precision") == 1
    rows = json.loads(run("table", "r.sqlite", "--format", "json")[1])
    assert [row["photos"] for row in rows] == [2, 2]


@pytest.mark.usefixtures("photos")
def test_nothing_at_all_is_a_failure(run: Run) -> None:
    words = ("evaluate", "photos", "--device", "cpu", "--methods", "random", "--out", "r.sqlite")
    code, _, err = run(*words, "--model", "net.py:nan")
    assert (code, "no photo could be explained" in err) == (2, True)
    code, _, err = run(*words, "--model", "net.py:classifier", "--min-probability", "1")
    assert (code, "no photo could be explained" in err) == (2, True)


def test_what_was_there_before_is_no_result_of_now(photos: Path, run: Run) -> None:
    words = ("evaluate", "--device", "cpu", "--methods", "random", "--out", "r.sqlite", *NET)
    assert run(*words, "photos")[0] == 0
    code, _, err = run(*words, "photos", "--min-probability", "1")
    assert (code, "no photo could be explained" in err) == (2, True)
    (photos / "none.csv").write_text("file,class_index\ntext.png,0\n")
    (photos / "text.png").write_text("hello")
    code, _, err = run(*words, "photos/none.csv")
    assert (code, "text.png" in err, "bad.png" in err) == (2, True, False)


@pytest.mark.usefixtures("photos")
def test_a_batch_on_its_way_to_the_store_arrives(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between two batches, while the first is still being written."""
    write = Store.add_answers

    def slowly(*args: Any) -> None:
        time.sleep(0.3)
        write(*args)

    def interrupted(_: object, progress: Iterator[object]) -> None:
        next(progress)
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "add_answers", slowly)
    monkeypatch.setattr("igos.cli.study.watch", interrupted)
    words = ("evaluate", "photos", *NET, "--methods", "random", "--batch", "3")
    assert run(*words, "--out", "run.sqlite")[0] == 130
    assert len(contents(Path("run.sqlite"))["results"]) == 3


@pytest.mark.usefixtures("photos")
def test_labels_and_a_link_to_a_store(photos: Path, run: Run) -> None:
    (photos / "labels.csv").write_text("file,class_index\n0.png,1\n1.png,blue\n2.png\n")
    words = ("evaluate", "photos/labels.csv", *NET, "--methods", "random", "--target", "label")
    code, _, err = run(*words, "--out", "run.sqlite")
    assert (code, "photo '2.png' has no label" in err) == (0, True)
    Path("link.sqlite").symlink_to("run.sqlite")
    with Store(Path("run.sqlite")):
        code, _, err = run(*words, "--out", "link.sqlite")
    assert (code, "another process is writing it" in err) == (2, True)


@pytest.mark.usefixtures("photos")
def test_heatmaps_can_be_left_out(run: Run) -> None:
    words = ("evaluate", "photos", *NET, "--methods", "random", "--limit", "2")
    run(*words, "--no-heatmaps", "--out", "without.sqlite")
    run(*words, "--out", "with.sqlite")
    for name, expected in (("without", [(None,)]), ("with", [("blob",)])):
        with sqlite3.connect(f"{name}.sqlite") as db:
            kinds = db.execute(
                "SELECT DISTINCT nullif(typeof(heatmap), 'null') FROM results"
            ).fetchall()
        db.close()
        assert kinds == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("evaluate", "nowhere"), "photos 'nowhere': no such file or folder"),
        (("evaluate", "photos", "--methods", "igoss"), "did you mean 'igos'"),
        (("evaluate", "photos", "--methods", ","), "give at least one"),
        (("evaluate", "photos", "--set", "lambda1=1"), "give METHOD.NAME=VALUE"),
        (("evaluate", "photos", "--set", "mask.lambda1=1"), "with a method of --methods"),
        (("evaluate", "photos", "--set", "igos.lambda9=1"), "unknown setting 'lambda9'"),
        (("evaluate", "photos", "--resolutions", "8,big"), "resolution 'big'"),
        (("evaluate", "photos", "--batch", "many"), "batch 'many'"),
        (("evaluate", "photos", "--target", "cat"), "target 'cat': give predicted or label"),
        (("evaluate", "photos", "--curves", "papers"), "did you mean 'paper'"),
        (("evaluate", "photos", "--baseline", "x"), "unknown baseline 'x'"),
        (("evaluate", "photos", "--out", "nowhere/run.sqlite"), "unable to open"),
        (("evaluate", "photos", "--methods", "rise"), "none of them fits"),
        (("evaluate", "photos", "--resolutions", ","), "give at least one"),
        (("evaluate", "photos", "--model", "nothing"), "unknown model 'nothing'"),
        (("evaluate", "photos", "--weights", "nowhere.pt"), "nowhere.pt"),
        (("table", "nowhere.sqlite"), "no such file"),
        (("table", "net.py"), "not a store of igos"),
        (("compare", "red.png", "--methods", "maskk"), "did you mean 'mask'"),
        (("compare", "nowhere.png", "--methods", "random"), "no such file"),
    ],
)
@pytest.mark.usefixtures("photos")
def test_mistakes_are_named_without_a_traceback(
    run: Run, words: tuple[str, ...], message: str
) -> None:
    model = () if words[0] == "table" or "--model" in words else NET
    code, _, err = run(*words, *model)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("photos")
def test_a_bad_format_is_named(run: Run) -> None:
    with Store(Path("run.sqlite")):
        code, _, err = run("table", "run.sqlite", "--format", "html")
        assert (code, "format 'html'" in err) == (2, True)
        code, _, err = run("evaluate", "photos", *NET, "--out", "run.sqlite")
        assert (code, "another process is writing it" in err) == (2, True)


@pytest.mark.usefixtures("photos")
def test_compare_makes_one_picture(run: Run) -> None:
    code, out, err = run(
        "compare", "red.png", *NET, *FAST, "--methods", "igos,random,rise", "--resolution", "8",
        "--set", "rise.masks=30", "--out", "there",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()[:3]] == [
        ["igos", "8×8"],
        ["random", "8×8"],
        ["rise", "32×32"],
    ]
    records = json.loads(Path("there/red.compare.json").read_text())
    assert [record["method"] for record in records] == ["igos", "random", "rise"]
    with Image.open("there/red.compare.png") as picture:
        assert picture.height / picture.width == pytest.approx(3 * 3.5 / 16, rel=0.01)


@pytest.mark.usefixtures("photos")
def test_a_library_that_is_not_there_costs_its_methods_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    asked = ("--methods", "random,saliency")
    why = "method Saliency needs captum: pip install 'igos[compare]'"
    code, out, err = run("compare", "red.png", *NET, *asked, "--resolution", "8", "--out", "there")
    assert (code, out.split()[0], err) == (0, "random", f"igos: saliency: {why}\n")
    code, out, err = run("evaluate", "photos", *NET, *asked, "--out", "run.sqlite")
    assert code == 0
    assert "random" in out
    assert why in err
    code, _, err = run("explain", "red.png", *NET, "--method", "saliency", "--out", "there")
    assert (code, err) == (2, f"igos: {why}\n")


@pytest.mark.usefixtures("photos")
def test_compare_keeps_what_is_done_when_a_later_method_fails(run: Run) -> None:
    words = ("compare", "red.png", *NET, *FAST, "--resolution", "8", "--out", "there")
    wrong = ("--methods", "igos,gradcam,random", "--set", "gradcam.layer=typo")
    code, out, err = run(*words, *wrong)
    assert code == 2
    assert [line.split()[0] for line in out.splitlines()] == ["igos", "random", "->"]
    assert err.startswith("igos: gradcam: ")
    assert "'typo'" in err
    records = json.loads(Path("there/red.compare.json").read_text())
    assert [record["method"] for record in records] == ["igos", "random"]


@pytest.mark.usefixtures("photos")
def test_excitation_bp_without_zennit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zennit.composites", None)
    words = ("evaluate", "photos", *NET, "--methods", "excitation-bp", "--out", "run.sqlite")
    code, _, err = run(*words)
    assert (code, "needs zennit: pip install 'igos[compare]'" in err) == (2, True)


def contents(path: Path) -> dict[str, list[Any]]:
    """Everything that a run decides; the seconds and the runs themselves are not."""
    with sqlite3.connect(path) as db:
        found = {
            table: db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
            for table in ("questions", "photos", "predictions", "configurations", "failures")
        }
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(results)")]
        kept = ", ".join(name for name in columns if name not in ("seconds", "run"))
        found["results"] = db.execute(f"SELECT {kept} FROM results ORDER BY 1, 2").fetchall()
    db.close()
    return found


@pytest.mark.usefixtures("photos")
def test_killed_at_any_moment_it_goes_on_and_ends_the_same(run: Run) -> None:
    words = ["evaluate", "photos", *NET, *FAST, "--methods", "igos,random", "--resolutions", "8,4"]
    words += ["--batch", "2", "--out"]
    assert run(*words, "whole.sqlite")[0] == 0
    whole = contents(Path("whole.sqlite"))
    assert len(whole["results"]) == 44
    moments = np.random.default_rng(1).integers(1, 40, 3)
    for moment in [0, *sorted(moments.tolist())]:  # 0: while the store is being made
        process = subprocess.Popen(
            [sys.executable, "-m", "igos.cli", *words, "killed.sqlite"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "IGOS_TEST_DELAY": "0.01"},
        )
        while process.poll() is None and not (
            Path("killed.sqlite").exists() and count("killed.sqlite") >= moment
        ):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, f"it was done before it was killed: {err}"
    assert 0 < count("killed.sqlite") < 44
    assert run(*words, "killed.sqlite")[0] == 0
    assert contents(Path("killed.sqlite")) == whole


@pytest.mark.usefixtures("photos")
def test_ctrl_c_ends_it_in_good_order(run: Run) -> None:
    words = ["evaluate", "photos", *NET, *FAST, "--out", "run.sqlite"]
    process = subprocess.Popen(
        [sys.executable, "-m", "igos.cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "IGOS_TEST_STALL": "200"},  # somewhere among its calls of the model
    )
    while process.poll() is None and not (Path("run.sqlite").exists() and count("run.sqlite")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "stopped; the same command goes on with run.sqlite" in err
    assert "Traceback" not in err
    assert 0 < count("run.sqlite") < 11
    assert run(*words)[0] == 0
    assert count("run.sqlite") == 11


def count(path: str) -> int:
    """Results committed so far, as another process sees them."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0)
    try:
        return int(db.execute("SELECT count(*) FROM results").fetchone()[0])
    except sqlite3.DatabaseError:  # no tables yet, or locked
        return 0
    finally:
        db.close()
