"""A study from photos to rows: what is computed, what is skipped, what fails."""

import csv
import json
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import igos
from igos.data import Listed, list_photos
from igos.errors import IgosError
from igos.image import Normalisation
from igos.methods import make
from igos.methods.base import Maker, Plain, UnsuitedError
from igos.models.classifier import Classifier
from igos.problem import Problem
from igos.study.halving import halving
from igos.study.plan import Question, Study, plan
from igos.study.result import unpack
from igos.study.run import Progress, evaluate
from igos.study.store import Store
from small import TinyNet

FAST: dict[str, str | float] = {"max_iterations": 2, "path_steps": 2, "noise": 0.1}
QUESTION = Question(model="tiny", baseline="black")


def preprocess(photo: Image.Image) -> Tensor:
    return torch.tensor(np.asarray(photo.resize((16, 16)))).permute(2, 0, 1) / 255


@pytest.fixture
def classifier() -> Classifier:
    names = ("ant", "bee", "cat", "dog")
    return Classifier("tiny", TinyNet().double().eval(), preprocess, Normalisation(), names)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven photos of noise."""
    place = tmp_path / "photos"
    place.mkdir()
    rng = np.random.default_rng(0)
    for name in "abcdefg":
        pixels = rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{name}.png")
    return place


def igos_maker(**settings: str | float) -> Maker:
    return lambda shape: make("igos", resolution=shape, settings={**FAST, **settings})


def random_maker(shape: tuple[int, int] | None) -> Any:
    return make("random", resolution=shape)


def planned(store: Store, classifier: Classifier, **how: Any) -> Study:
    default: dict[str, Any] = {
        "question": QUESTION,
        "methods": {"igos": igos_maker(), "random": random_maker},
        "resolutions": [(8, 8), (4, 4)],
        "batch": 3,
    }
    return plan(store, classifier, **default | how)


def run(study: Study, photos: Sequence[Listed], **how: Any) -> list[Progress]:
    return list(evaluate(study, photos, **how))


def query(path: Path, sql: str) -> list[Any]:
    with sqlite3.connect(path) as db:
        rows = db.execute(sql).fetchall()
    db.close()
    return rows


def test_every_photo_has_the_answer_that_it_has_alone(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    with Store(tmp_path / "run.sqlite") as store:
        progress = run(planned(store, classifier), list_photos(folder))
    rows = query(
        tmp_path / "run.sqlite",
        "SELECT name, method, height, deletion, insertion, heatmap, losses, warnings, target, "
        "probability FROM results r JOIN photos p ON p.id = r.photo JOIN configurations c "
        "ON c.id = configuration JOIN predictions q ON q.photo = p.id",
    )
    assert len(rows) == 7 * 4
    assert [(step.photos, step.total) for step in progress[3::4]] == [(3, 7), (6, 7), (7, 7)]
    for name, method, side, deletion, insertion, heatmap, losses, warnings, *top in rows:
        alone = igos.explain(
            folder / name,
            model=classifier,
            method=method,
            resolution=side,
            baseline="black",
            settings=FAST if method == "igos" else None,
        )
        assert (alone.target, alone.probability) == pytest.approx(top)
        assert deletion == pytest.approx(alone.deletion.auc, abs=1e-5)
        assert insertion == pytest.approx(alone.insertion.auc, abs=1e-5)
        np.testing.assert_allclose(unpack(heatmap, (side, side)), alone.heatmap, atol=1e-5)
        if alone.losses is None:
            assert losses is None
        else:
            assert len(alone.losses) == alone.iterations
            assert json.loads(losses) == pytest.approx(alone.losses, abs=1e-5)
        assert warnings == json.dumps(alone.warnings)


@dataclass(frozen=True, kw_only=True)
class Counting(Plain):
    """Brightness; counts its calls, runs out of memory above `room` photos at once."""

    room: int = 100
    calls: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "counting"}

    def native_resolution(self, problem: Problem) -> tuple[int, int]:
        return problem.size

    def __call__(self, problem: Problem) -> Tensor:
        self.calls.append(len(problem.image))
        if len(problem.image) > self.room:
            raise torch.OutOfMemoryError
        if problem.image.mean(dim=(1, 2, 3)).max() > 0.9:
            raise IgosError("too bright")
        return problem.image.mean(dim=1, keepdim=True)


def counting(store: Store, classifier: Classifier, *, room: int = 100) -> tuple[Study, list[int]]:
    calls: list[int] = []
    method = Counting(room=room, calls=calls)
    study = planned(
        store, classifier, methods={"counting": lambda _: method}, resolutions=[(16, 16)]
    )
    return study, calls


def test_what_is_done_is_not_done_again(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    photos = list_photos(folder)
    with Store(tmp_path / "run.sqlite") as store:
        study, calls = counting(store, classifier)
        run(study, photos, limit=4)
        assert calls == [3, 1]
        run(study, photos)  # the first batch is whole; one of the second is there
        assert calls == [3, 1, 2, 1]
        run(study, photos)
        assert calls == [3, 1, 2, 1]
    assert query(tmp_path / "run.sqlite", "SELECT count(*) FROM results") == [(7,)]


def test_a_batch_that_is_too_large_is_halved_and_stays_so(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    with Store(tmp_path / "run.sqlite") as store:
        study, calls = counting(store, classifier, room=1)
        run(study, list_photos(folder))
        assert calls == [3, 1, 2, 1, 1, 1, 1, 1, 1]
        assert store.failures() == []
    assert query(tmp_path / "run.sqlite", "SELECT count(*) FROM results") == [(7,)]


def test_too_little_memory_for_one_photo_is_a_failure_that_a_later_run_mends(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    with Store(tmp_path / "run.sqlite") as store:
        study, _ = counting(store, classifier, room=0)
        run(study, list_photos(folder), limit=2)
        assert len(store.failures()) == 2
        assert "out of memory with one image at a time" in store.failures()[0]
        study, calls = counting(store, classifier)
        run(study, list_photos(folder), limit=2)
        assert calls == [2]
        assert store.failures() == []


def test_one_bad_photo_does_not_spoil_its_batch(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    Image.new("RGB", (20, 20), "white").save(folder / "white.png")
    with Store(tmp_path / "run.sqlite") as store:
        study, _ = counting(store, classifier)
        run(study, list_photos(folder))
        assert store.failures() == ["counting 16×16 of 'white.png': too bright"]
        assert store.mean(study.configurations[0].number)[0] == 7


def test_photos_that_cannot_be_read_are_written_down(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    whole = (folder / "a.png").read_bytes()
    (folder / "broken.png").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.jpg").touch()
    (folder / "text.jpg").write_text("I am no photo")
    (folder / "notes.txt").write_text("nor is this")
    (folder / "x.jpg").mkdir()
    Image.new("RGB", (3, 3)).save(folder / "tiny.png")
    listed = [*list_photos(folder), Listed("x.jpg", folder / "x.jpg"), Listed("no", folder / "no")]
    with Store(tmp_path / "run.sqlite") as store:
        study, _ = counting(store, classifier)
        run(study, listed)
        failures = store.failures()
        assert store.mean(study.configurations[0].number)[0] == 7
        run(study, listed)
        assert store.failures() == failures
    assert len(failures) == 6
    assert [("broken or truncated" in f) for f in failures] == [True] + [False] * 5
    assert sum("not an image that Pillow can read" in f for f in failures) == 2
    assert sum("no such file" in f for f in failures) == 1
    assert sum("not a file" in f for f in failures) == 1
    assert sum("3×3 pixels" in f for f in failures) == 1
    (folder / "empty.jpg").write_bytes(whole)  # mended: another content
    with Store(tmp_path / "run.sqlite") as store:
        run(counting(store, classifier)[0], listed)
        assert store.mean(1)[0] == 8
        assert store.failures() == [text for text in failures if "empty" not in text]


def test_only_photos_that_the_model_is_sure_of_count(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    photos = list_photos(folder)
    sure = {}
    for photo in photos:
        p = igos.explain(photo.path, model=classifier, method="random", resolution=2).probability
        assert p is not None
        sure[photo.name] = p
    bound = sorted(sure.values())[3]
    with Store(tmp_path / "run.sqlite") as store:
        study = planned(store, classifier, min_probability=bound - 1e-6)
        run(study, photos, limit=3)
    named = query(
        tmp_path / "run.sqlite", "SELECT DISTINCT name FROM results JOIN photos ON id = photo"
    )
    expected = [photo.name for photo in photos if sure[photo.name] >= bound - 1e-6][:3]
    assert sorted(name for (name,) in named) == sorted(expected)


def test_a_number_in_a_table_is_an_index_and_no_name(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    (folder / "labels.csv").write_text("file,class_index\na.png,2\nb.png, 10\nc.png,1\n")
    names = ("0", "1", "10", "2")  # as folders are sorted
    question = Question(model="tiny", baseline="black", target="label")
    with Store(tmp_path / "run.sqlite") as store:
        digits = replace(classifier, class_names=names)
        run(planned(store, digits, question=question), list_photos(folder / "labels.csv"))
        assert "class index 10: tiny has the classes 0 to 3" in store.failures()[0]
    targets = query(
        tmp_path / "run.sqlite",
        "SELECT name, target FROM predictions JOIN photos ON id = photo ORDER BY name",
    )
    assert targets == [("a.png", 2), ("c.png", 1)]


def test_labels_from_a_table_and_from_class_folders(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "class_index"), ("a.png", 3), ("b.png", 9)])
    (folder / "bee").mkdir()
    (folder / "c.png").rename(folder / "bee" / "c.png")
    question = Question(model="tiny", baseline="black", target="label")
    with Store(tmp_path / "run.sqlite") as store:
        study = planned(store, classifier, question=question)
        run(study, list_photos(folder / "labels.csv"))
        (unknown,) = store.failures()
        run(study, list_photos(folder))
        unlabelled = store.failures()
    targets = query(
        tmp_path / "run.sqlite",
        "SELECT name, target FROM predictions JOIN photos ON id = photo ORDER BY name",
    )
    assert targets == [("a.png", 3), ("bee/c.png", 1)]
    assert "class index 9: tiny has the classes 0 to 3" in unknown
    assert [text[:20] for text in unlabelled] == [f"photo '{n}.png' has no" for n in "abdefg"]


def test_a_changed_label_is_not_mixed_with_the_old_one(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    question = Question(model="tiny", baseline="black", target="label")
    with Store(tmp_path / "run.sqlite") as store:
        study = planned(store, classifier, question=question)
        run(study, [Listed("a.png", folder / "a.png", "3")])
        run(study, [Listed("a.png", folder / "a.png", "2")])
        assert store.failures() == [
            "photo 'a.png' is in this store with the class 3, not 2; give another --out"
        ]
        assert store.mean(study.configurations[0].number)[0] == 1


def test_another_setting_is_another_configuration(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    photos = list_photos(folder)
    with Store(tmp_path / "run.sqlite") as store:
        run(planned(store, classifier), photos, limit=2)
        before = query(tmp_path / "run.sqlite", "SELECT * FROM results")
        run(planned(store, classifier, methods={"igos": igos_maker(lambda1=0.7)}), photos, limit=2)
        run(planned(store, classifier, question=Question(model="tiny")), photos, limit=2)
    rows = query(tmp_path / "run.sqlite", "SELECT * FROM results")
    assert [row for row in rows if row in before] == before
    assert len(rows) == 2 * (4 + 2 + 4)


def test_a_method_that_cannot_is_left_out_and_the_others_go_on(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    class Unable(Counting):
        def __call__(self, _: Problem) -> Tensor:
            raise UnsuitedError("not this model")

    with Store(tmp_path / "run.sqlite") as store:
        method = Unable()
        methods: dict[str, Any] = {
            "unable": lambda _: method,
            "random": random_maker,
            "rise": lambda _: make("rise", settings={"masks": 9}),
        }
        study = planned(store, classifier, methods=methods, resolutions=[(16, 16)], batch=2)
        given_up = [step for step in run(study, list_photos(folder)) if step.unsuited]
        other = planned(store, classifier, methods=methods, resolutions=[(8, 8)])
        assert [c.title for c in other.configurations] == ["random 8×8"]
        assert "rise" in dict(other.unsuited)
        assert "makes heatmaps of 16×16" in dict(other.unsuited)["rise"]
        assert store.mean(study.configurations[1].number)[0] == 7
    assert [(step.configuration.name, step.unsuited) for step in given_up] == [
        ("unable", "not this model")
    ]


def test_what_the_writer_cannot_write_ends_the_run(
    classifier: Classifier, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise IgosError("store: disk is full")

    with Store(tmp_path / "run.sqlite") as store:
        study = planned(store, classifier)
        monkeypatch.setattr(store, "add_answers", full)
        with pytest.raises(IgosError, match="disk is full"):
            run(study, list_photos(folder))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min_probability": 1.5}, "minimum probability 1.5"),
        ({"batch": 0}, "batch 0"),
        ({"resolutions": [(17, 17)]}, "resolution 17×17: the image is 16×16"),
        ({"question": Question(model="tiny", target="x")}, "target 'x'"),
        ({"question": Question(model="tiny", baseline="glur")}, "did you mean 'blur'"),
    ],
)
def test_mistakes_are_named(
    classifier: Classifier, tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with Store(tmp_path / "run.sqlite") as store, pytest.raises(IgosError, match=message):
        planned(store, classifier, **wrong)


def test_a_limit_is_a_sample_that_a_larger_one_contains(folder: Path) -> None:
    names = [photo.name for photo in list_photos(folder)]
    assert sorted(names) == [f"{letter}.png" for letter in "abcdefg"]
    assert names != sorted(names)
    (folder / "a.png").unlink()
    assert [photo.name for photo in list_photos(folder)] == [n for n in names if n != "a.png"]


def test_collections_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("path,label\na,1\n")
    (tmp_path / "two.csv").write_text("file,class_index\na,1\na,2\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x00")
    for name, message in (
        ("nowhere", "no such file or folder"),
        (300 * "x", "no such file or folder"),  # too long a name
        (".", "there are none"),
        ("table.csv", "no column 'file' among path, label"),
        ("two.csv", "'a' has two labels"),
        ("binary.csv", "not readable as CSV"),
    ):
        with pytest.raises(IgosError, match=message):
            list_photos(tmp_path / name)


def test_odd_names_and_links(classifier: Classifier, folder: Path, tmp_path: Path) -> None:
    """Bytes that are no text, a linked class folder, a link in a circle, a pipe."""
    odd = os.fsencode(folder) + b"/\xff.png"
    Path(os.fsdecode(odd)).write_bytes((folder / "a.png").read_bytes())
    (tmp_path / "elsewhere").mkdir()
    (folder / "b.png").rename(tmp_path / "elsewhere" / "b.png")
    (folder / "ant").symlink_to(tmp_path / "elsewhere")
    (folder / "circle").symlink_to(folder)
    os.mkfifo(folder / "pipe.jpg")
    listed = list_photos(folder)
    assert list_photos(Path(os.fsdecode(odd)))[0].name == "\\xff.png"
    assert [photo.label for photo in listed if photo.name == "ant/b.png"] == ["ant"]
    assert len(listed) == 7 + 1 + 1
    with Store(tmp_path / "run.sqlite") as store:
        study, _ = counting(store, classifier)
        run(study, listed)
        assert store.mean(study.configurations[0].number)[0] == 8
        (failure,) = store.failures()
        assert failure.endswith("pipe.jpg': not a file")
    assert query(
        tmp_path / "run.sqlite", "SELECT count(*) FROM photos WHERE name = '\\xff.png'"
    ) == [(1,)]


def test_labels_that_are_no_class(folder: Path, tmp_path: Path) -> None:
    """Without class names the model's output decides; ImageNet's folder names are known."""
    nameless = Classifier("tiny", TinyNet().eval(), preprocess, Normalisation())
    big = Classifier(
        "big", TinyNet(1000).eval(), preprocess, Normalisation(), tuple(map(str, range(1000)))
    )
    question = Question(model="tiny", baseline="black", target="label")
    labels = {"a": "7", "b": "3", "c": "n01443537", "d": "n99999999"}
    photos = [Listed(n, folder / f"{n}.png", label) for n, label in labels.items()]
    with Store(tmp_path / "run.sqlite") as store:
        run(planned(store, nameless, question=question), photos[:2])
        assert store.failures() == ["class index 7: tiny has the classes 0 to 3"]
        run(planned(store, big, question=replace(question, model="big")), photos[2:])
        assert store.failures()[-1] == "photo 'd': n99999999 is no class of ImageNet's 1000"
    assert query(tmp_path / "run.sqlite", "SELECT target FROM predictions ORDER BY photo") == [
        (3,),
        (1,),
    ]


def test_another_baseline_picture_is_another_question(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "base.png"
    question = Question(model="tiny", baseline=str(picture))
    with Store(tmp_path / "run.sqlite") as store:
        for colour in ("red", "blue", "blue"):
            Image.new("RGB", (20, 20), colour).save(picture)
            run(planned(store, classifier, question=question), list_photos(folder), limit=1)
    assert query(tmp_path / "run.sqlite", "SELECT count(*) FROM questions") == [(2,)]
    assert query(tmp_path / "run.sqlite", "SELECT count(*) FROM results") == [(8,)]


def test_a_model_without_parameters(folder: Path, tmp_path: Path) -> None:
    class Fixed(torch.nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            red = images[:, 0].mean(dim=(1, 2))
            return torch.stack([red, 1 - red], dim=1)

    fixed = Classifier("fixed", Fixed().eval(), preprocess, Normalisation())
    with Store(tmp_path / "run.sqlite") as store:
        study = planned(store, fixed)
        run(study, list_photos(folder), limit=2)
        assert store.mean(study.configurations[0].number)[0] == 2


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError(),
        RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_every_kind_of_too_little_memory_is_known(error: Exception) -> None:
    def work(items: Sequence[int]) -> list[int]:
        if len(items) > 2:
            raise error
        return [2 * item for item in items]

    fitting: list[int] = []
    assert halving(work, range(5), fitting.append) == [0, 2, 4, 6, 8]
    assert fitting == [2, 1]


def test_other_errors_are_not_hidden() -> None:
    def work(_: Sequence[int]) -> list[int]:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        halving(work, [1, 2])
