"""A study's tables: every figure worked out by hand or another way."""

import csv
import io
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from igos.answer import Prediction
from igos.study.formats import FORMATS
from igos.study.store import Store
from igos.study.table import Row, confidence_interval, labels, paired_p, summarise
from test_store import RESULT

QUESTION = {
    "model": "net_a",
    "target": "predicted",
    "baseline": "blur",
    "curves": "paper",
    "score": "probability",
    "precision": "fp32",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two methods over three photos, the second without the last one and at two settings."""
    path = tmp_path / "run.sqlite"
    with Store(path) as store:
        question = store.question(QUESTION)
        photos = [store.photo(name, "") for name in "abc"]
        store.add_predictions(
            question,
            {
                photo: Prediction(0, p, 0, p)
                for photo, p in zip(photos, (0.9, 0.5, 0.7), strict=True)
            },
        )
        for name, settings, figures in (
            ("igos", {"seed": 0}, [(0.1, 0.6), (0.2, 0.8), (0.3, 0.7)]),
            ("mask", {"lambda1": 1.0}, [(0.3, 0.5), (0.2, 0.9)]),
            ("mask", {"lambda1": 0.1}, [(0.4, 0.4)]),
        ):
            own = store.configuration(question, name, (8, 8), settings)
            store.add_answers(
                own,
                {
                    photo: replace(RESULT, deletion=d, insertion=i)
                    for photo, (d, i) in zip(photos, figures, strict=False)
                },
            )
        store.configuration(question, "rise", (8, 8), {})  # nothing came of it
    return path


def test_means_and_paired_tests(path: Path) -> None:
    ours, mask, single = summarise(path)
    assert (ours.photos, mask.photos, single.photos) == (3, 2, 1)
    assert (ours.deletion, ours.insertion) == pytest.approx((0.2, 0.7))
    assert (mask.deletion, mask.insertion) == pytest.approx((0.25, 0.7))
    assert ours.seconds == RESULT.seconds
    assert (ours.against, ours.deletion_p) == (None, None)
    assert (mask.against, mask.common_photos) == ("igos", 2)
    assert mask.deletion_p == paired_p(np.array([0.3 - 0.1, 0.2 - 0.2]))
    assert mask.insertion_p == pytest.approx(1.0)  # −0.1 and +0.1
    assert single.deletion_ci is None
    assert single.common_photos == 1
    assert mask.deletion_wins == 0.25  # one loss, one draw
    assert mask.insertion_wins == 0.5
    assert (ours.difference, mask.difference) == pytest.approx((0.5, 0.45))
    assert mask.difference_p == paired_p(np.array([0.2 - 0.5, 0.7 - 0.6]))
    assert mask.difference_wins == 0.5
    assert [row.against for row in summarise(path, against=None)] == [None] * 3
    assert summarise(path, against="mask")[0].common_photos == 2


def test_only_photos_with_these_names_count(path: Path) -> None:
    ours, mask, single = summarise(path, names={"a", "c", "of another store"})
    assert (ours.photos, mask.photos, single.photos) == (2, 1, 1)
    assert ours.difference == pytest.approx((0.5 + 0.4) / 2)
    assert mask.common_photos == 1
    assert summarise(path, names=set()) == []


def test_only_photos_that_the_model_is_sure_of_count(path: Path) -> None:
    ours, mask, _ = summarise(path, min_probability=0.6)
    assert (ours.photos, mask.photos) == (2, 1)
    assert ours.deletion == pytest.approx((0.1 + 0.3) / 2)


def test_of_a_photo_that_changed_the_last_counts(path: Path) -> None:
    with Store(path) as store:
        again = store.photo("a", "other content")
        store.add_predictions(1, {again: Prediction(0, 0.9, 0, 0.9)})
        store.add_answers(1, {again: replace(RESULT, deletion=0.5, insertion=0.5)})
    (ours, *_) = summarise(path)
    assert ours.photos == 3
    assert ours.deletion == pytest.approx((0.2 + 0.3 + 0.5) / 3)


def test_the_interval_is_the_percentile_bootstrap() -> None:
    values = np.random.default_rng(3).random(40)
    interval = confidence_interval(values)
    assert interval is not None
    draws = np.random.default_rng(9).integers(0, 40, (50_000, 40))
    expected = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    assert interval == pytest.approx(expected, abs=0.003)  # another random stream
    assert interval == confidence_interval(values)
    assert confidence_interval(values[:1]) is None


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8, unique=True), st.integers(0, 255))
def test_the_paired_test_counts_all_signs(sizes: list[int], signs: int) -> None:
    """Wilcoxon's exact p by counting: the share of sign patterns at least as uneven."""
    n = len(sizes)
    ranks = np.argsort(np.argsort(sizes)) + 1
    positive = np.array([signs >> at & 1 for at in range(n)], bool)
    middle = n * (n + 1) / 4
    distance = abs(ranks[positive].sum() - middle)
    patterns = itertools.product([False, True], repeat=n)
    uneven = [abs(ranks[np.array(p)].sum() - middle) >= distance - 1e-9 for p in patterns]
    differences = np.where(positive, sizes, [-size for size in sizes]).astype(float)
    assert paired_p(differences) == pytest.approx(np.mean(uneven))


def test_no_difference_at_all() -> None:
    assert paired_p(np.zeros(5)) == 1.0
    assert paired_p(np.zeros(0)) is None


def test_labels_name_the_settings_that_differ(path: Path) -> None:
    rows = summarise(path)
    assert labels(rows) == ["igos", "mask (lambda1=1.0)", "mask (lambda1=0.1)"]
    other = replace(rows[1], resolution=(4, 4), settings={"lambda1": 2})
    assert labels([*rows, other])[3] == "mask"  # alone at its resolution


def test_json_has_the_fields_that_others_read(path: Path) -> None:
    first, second, _ = json.loads(FORMATS["json"](summarise(path)))
    assert {
        "method": "igos",
        "resolution": 8,
        "settings": {"seed": 0},
        "photos": 3,
        "deletion": pytest.approx(0.2),
        "insertion": pytest.approx(0.7),
        "seconds": 0.5,
    }.items() <= first.items()
    assert first["deletion_ci"] == pytest.approx([0.1, 0.3])  # of three: the ends
    assert len(second["insertion_ci"]) == 2
    assert second["question"]["model"] == "net_a"


def test_csv_is_flat(path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](summarise(path)))))
    assert [row["method"] for row in rows] == ["igos", "mask", "mask"]
    assert rows[0]["model"] == "net_a"
    assert float(rows[1]["deletion"]) == pytest.approx(0.25)
    assert float(rows[0]["deletion_ci_low"]) == pytest.approx(0.1)
    assert rows[2]["deletion_ci_low"] == ""
    assert json.loads(rows[2]["settings"]) == {"lambda1": 0.1}


def test_the_difference_in_words(path: Path) -> None:
    rows = summarise(path)
    rows[0] = replace(rows[0], insertion=rows[0].deletion - 0.0004)
    head, _, ours, mask, _ = FORMATS["md"](rows).splitlines()[-5:]
    assert head.count("| ins. − del. |") == 2
    assert ours.split("|")[6].strip() == "0.000"  # not -0.000
    assert mask.split("|")[6].strip() == "0.450"
    assert mask.split("|")[12].strip() == "50%"
    assert "ins. $-$ del." in FORMATS["latex"](rows)


def test_the_best_is_bold(path: Path) -> None:
    rows = summarise(path)
    small = replace(rows[0], resolution=(4, 4), deletion=0.5)
    lines = FORMATS["md"]([*rows, small]).splitlines()
    assert lines[2] == "| method | 8×8 deletion | insertion | 4×4 deletion | insertion |"
    assert lines[4] == "| igos | **0.200** | **0.700** | **0.500** | **0.700** |"
    assert lines[5] == "| mask (lambda1=1.0) | 0.250 | **0.700** | – | – |"
    assert "*0.200" in FORMATS["text"](rows)
    latex = FORMATS["latex"](rows)
    assert r"\textbf{0.200}" in latex
    assert r"net\_a" in latex
    assert r"8$\times$8 deletion" in latex
    odd = [replace(row, question={**QUESTION, "model": r"a&b#{c}\d~"}) for row in rows]
    assert r"a\&b\#\{c\}\textbackslash{}d\textasciitilde{}" in FORMATS["latex"](odd)


def test_best_is_what_looks_best(path: Path) -> None:
    first, second, third = summarise(path)
    rows = [
        replace(first, deletion=0.21543),
        replace(second, deletion=0.21577),
        replace(third, deletion=0.21649),
    ]
    text = FORMATS["text"](rows)
    assert "*0.215" in text
    assert "*0.216" not in text


def test_two_questions_are_two_tables(path: Path) -> None:
    rows = summarise(path)
    other = [replace(row, question={**QUESTION, "model": "net_b"}) for row in rows]
    text = FORMATS["text"]([*rows, *other])
    assert text.count("Deletion (small is good)") == 2
    assert "net_b" in text


def test_nothing_yet(tmp_path: Path) -> None:
    with Store(tmp_path / "run.sqlite"):
        pass
    rows: list[Row] = summarise(tmp_path / "run.sqlite")
    assert rows == []
    assert FORMATS["text"](rows) == "no results yet"
    assert FORMATS["json"](rows) == "[]"
    assert FORMATS["csv"](rows) == ""
