"""What a report contains: the store's figures, escaped, small, with photos where they are."""

import base64
import hashlib
import io
import json
import re
import shlex
import sqlite3
import sys
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from igos.models import BUNDLED
from igos.models.sources import from_torchvision
from igos.models.view import view
from igos.report import write_report
from igos.report.again import command
from igos.report.charts import bounds, curves
from igos.report.gather import Answer, gather, kind
from igos.report.gather import Run as GatheredRun
from igos.report.pictures import HEAT_BYTES, finest, scaled
from igos.study.store import Store
from igos.study.table import summarise
from small import Run
from small_report import EVIL, FIGURES, NAMES, QUESTION, in_page, make_photos, make_store
from test_store import RESULT


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make_photos(tmp_path / "photos")
    make_store(tmp_path / "run.sqlite", tmp_path / "photos")
    return tmp_path / "run.sqlite"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def test_the_figures_are_those_of_the_store(store: Path) -> None:
    data = gather(store)
    assert [one.row for one in data.configurations] == summarise(store)
    for one in data.configurations:
        figures = np.array(FIGURES[one.row.method, one.row.resolution[0]])
        assert one.values("deletion") == pytest.approx(figures[:, 0])
        assert one.values("insertion − deletion") == pytest.approx(figures[:, 1] - figures[:, 0])
        assert one.deletion_curve == pytest.approx([0.5, figures[:, 0].mean()])
        assert one.insertion_curve == pytest.approx([0.1, figures[:, 1].mean()])
        assert one.fraction.tolist() == [0, 1]
    assert [one.size for one in data.of(1)] == ["28×28", "28×28", "7×7"]
    assert [card.name for card in data.cards] == list(NAMES)
    assert [bool(card.warnings) for card in data.cards] == [False, False, False, True]


def test_the_table_has_them_with_their_intervals(store: Path, out: Path) -> None:
    write_report(store, out)
    html = out.read_text()
    for row in summarise(store):
        assert row.deletion_ci is not None
        assert f"{row.deletion:.3f}" in html
        assert "[{:.3f}, {:.3f}]".format(*row.deletion_ci) in html
    # The best of a resolution: 28 igos (0.200) and mask (0.733 > 0.600), 7 igos alone.
    assert re.findall(r"<strong>(.*?)</strong>", html) == ["0.200", "0.733", "0.225", "0.600"]
    (_, _, c, odd) = in_page(html, "data")["cards"]
    assert c["results"] == [[1, 0.3, 0.7], [2, 0.2, 0.8], [3, 0.4, 0.7]]
    assert (odd["target"], odd["predicted"]) == (
        "tiger shark, Galeocerdo cuvieri",
        "tench, Tinca tinca",
    )


def test_only_the_photos_of_the_table(store: Path) -> None:
    data = gather(store, min_probability=0.6)
    assert [card.name for card in data.cards] == ["a.jpg", "c.jpg"]
    assert data.configurations[0].values("deletion").tolist() == [0.1, 0.3]
    assert data.configurations[0].deletion_curve == pytest.approx([0.5, 0.2])
    with Store(store) as writing:  # a photo that changed: only the last of its name counts
        writing.photo("a.jpg", "other content")
    assert [card.name for card in gather(store).cards] == list(NAMES[1:])


def test_a_store_that_is_written_meanwhile(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(_: sqlite3.Connection) -> list[GatheredRun]:
        with Store(store) as writing:
            writing.begin(started="", arguments={}, environment={})
            writing.add_answers(2, {4: RESULT})  # mask on the photo that it had not done
        return []

    monkeypatch.setattr(sys.modules[gather.__module__], "_runs", writes)
    for one in gather(store).configurations:
        assert one.row.photos == len(one.answers)
        assert one.row.deletion == pytest.approx(one.values("deletion").mean())
    assert summarise(store)[1].photos == 4


def test_a_drawn_curve_is_the_mean_curve(store: Path) -> None:
    own = gather(store).of(1)[:2]
    looks = {"igos": 0, "mask": 1}
    drawn = curves(own, looks, metric="insertion", score="probability")
    found = re.findall(r'class="line[^"]*" d="M([\d. L]+)"', drawn)
    lines = [[tuple(map(float, p.split())) for p in line.split("L")] for line in found]
    grid = {
        float(v): float(y) for y, v in re.findall(r'y="([\d.]+)" text-anchor="end">(\S+?)<', drawn)
    }
    zero, one = grid[0] - 3.5, grid[1] - 3.5
    for line, configuration in zip(lines, own, strict=True):
        values = [(y - zero) / (one - zero) for _, y in line]
        assert values == pytest.approx(configuration.insertion_curve, abs=0.001)
    assert "igos 0.600, mask 0.733" in drawn
    assert bounds(np.array([3.0, -2.0]), "logit") == (-2, 3)
    assert bounds(np.array([3.0]), "logit") == (2.5, 3.5)


class Elements(HTMLParser):
    """The elements of a page, and what its scripts contain."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_what_was_given_stays_text(tmp_path: Path, out: Path) -> None:
    folder = tmp_path / "photos"
    names = ["</script><script>alert(1)<", "<!--<script>", "a\"b'c", "&lt;"]
    make_photos(folder, [f"{at}.png" for at in range(4)])
    for at, name in enumerate(names):  # a name with a slash lies in a folder
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{at}.png").rename(folder / name)
    question = {key: f"{EVIL}{key}" for key in QUESTION}
    make_store(tmp_path / "run.sqlite", folder, names=names, question=question)
    notes = write_report(tmp_path / "run.sqlite", out)
    assert len(notes) == 1
    assert "not known without running its code" in notes[0]
    html = out.read_text()
    elements = Elements(html)
    scripts = [own.get("type") for tag, own in elements.tags if tag == "script"]
    assert scripts == ["application/json"] * 5 + [None]
    assert "img" not in dict(elements.tags)
    assert not any(key.startswith("on") for _, own in elements.tags for key in own)
    assert [card["name"] for card in in_page(html, "data")["cards"]] == names
    assert all(in_page(html, f"pictures-{at}")["photo"] for at in range(4))


def test_nothing_in_it_leads_outside(store: Path, out: Path) -> None:
    write_report(store, out)
    html = out.read_text()
    for _, own in Elements(html).tags:
        assert "src" not in own
        assert (own.get("href") or "#").startswith("#")
    policy = next(own["content"] for _, own in Elements(html).tags if "http-equiv" in own)
    program = re.findall(r"<script>(.*?)</script>", html, re.S)
    digest = base64.b64encode(hashlib.sha256(program[0].encode()).digest()).decode()
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{digest}';" in policy
    assert "url(" not in html
    assert "@import" not in html


def test_photos_are_what_the_network_saw(store: Path, out: Path) -> None:
    write_report(store, out)
    photo = Image.open(store.parent / "photos" / "a.jpg").convert("RGB")  # 300×240
    short = photo.resize((320, 256), Image.Resampling.BICUBIC)
    expected = np.asarray(short.crop((48, 16, 272, 240))).astype(int)  # the middle 224×224
    pictures = in_page(out.read_text(), "pictures-0")
    assert pictures["fits"]
    content = base64.b64decode(pictures["photo"].partition(",")[2])
    shown = np.asarray(Image.open(io.BytesIO(content))).astype(int)
    assert np.abs(shown - expected).mean() < 3  # JPEG


def test_a_view_is_the_preprocessing_of_the_model() -> None:
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (250, 330, 3), np.uint8))
    with torch.random.fork_rng():
        loaded = {"efficientnet_lite0": BUNDLED["efficientnet_lite0"](None)}
        for name in ("mobilenet_v3_small", "mobilenet_v3_small@IMAGENET1K_V1"):
            state = torchvision.models.get_model("mobilenet_v3_small").state_dict()
            loaded[f"torchvision:{name}"] = from_torchvision(name, state)
    for name, classifier in loaded.items():
        seen = view(name)
        assert seen.preprocess(photo).equal(classifier.preprocess(photo))
        assert seen.normalisation == classifier.normalisation
        assert seen.class_names == classifier.class_names


def test_photos_that_moved_or_changed(store: Path, out: Path, run: Run) -> None:
    folder = store.parent / "photos"
    Image.new("RGB", (64, 64)).save(folder / "a.jpg")
    code, told, err = run("report", str(store), "--out", str(out))
    assert (code, told) == (0, f"{out}\n")
    assert err == "igos: 1 photo was not found, or has changed (--photos).\n"
    assert in_page(out.read_text(), "pictures-0")["photo"] is None
    assert in_page(out.read_text(), "pictures-1")["photo"] is not None
    folder.rename(store.parent / "moved")
    assert "4 photos were not found" in run("report", str(store), "--out", str(out))[2]
    words = ("report", str(store), "--out", str(out), "--photos", str(store.parent / "moved"))
    assert "1 photo was not found" in run(*words)[2]
    (store.parent / "moved" / "labels.csv").write_text("file,class_index\n")
    words = (*words[:-1], str(store.parent / "moved" / "labels.csv"))
    assert "1 photo was not found" in run(*words)[2]


def test_photos_of_several_questions_count_once(store: Path, out: Path) -> None:
    folder = store.parent / "photos"
    make_store(store, folder, question={**QUESTION, "weights": "other"})
    write_report(store, out)
    html = out.read_text()
    assert len(in_page(html, "data")["cards"]) == 8
    assert "<b>4</b> photos<" in html
    assert "<b>1</b> photo with warnings<" in html
    assert "Photos with warnings <span class=count>1</span>" in html
    assert re.findall(r"<details><summary>the model predicts.*?<span class=count>(\d+)<", html) == [
        "1"
    ]
    assert html.count("<li><b>&lt;b&gt;&amp;amp;.jpg</b> the model predicts") == 1
    assert html.count("data:image/jpeg") == 4
    assert [in_page(html, f"pictures-{at}")["photo"] for at in range(4, 8)] == [0, 1, 2, 3]
    folder.rename(store.parent / "moved")
    assert write_report(store, out) == ["4 photos were not found, or have changed (--photos)."]


def test_the_gallery_can_be_limited(store: Path, out: Path) -> None:
    assert write_report(store, out, limit=2) == ["The gallery has 2 of 4 photos (--limit)."]
    assert [card["name"] for card in in_page(out.read_text(), "data")["cards"]] == list(NAMES[:2])
    assert "0.733" in out.read_text()  # the table is about all of them


def test_without_heatmaps(tmp_path: Path, out: Path) -> None:
    make_photos(tmp_path / "photos")
    make_store(tmp_path / "run.sqlite", tmp_path / "photos", heatmaps=False)
    assert write_report(tmp_path / "run.sqlite", out) == []
    assert in_page(out.read_text(), "pictures-0")["heats"] == {}


def test_heatmaps_are_scaled_to_bytes() -> None:
    assert scaled(np.array([[1.0, 2.0], [3.0, 3.0]], np.float32), 7).tolist() == [
        [0, 128],
        [255, 255],
    ]
    assert scaled(np.full((2, 3), 5.0, np.float32), 7).tolist() == [[0, 0, 0]] * 2
    blocks = np.kron(np.array([[0.0, 1.0], [1.0, 1.0]]), np.ones((3, 3))).astype(np.float32)
    assert scaled(blocks, 2).tolist() == [[0, 255], [255, 255]]
    single = np.zeros((20, 20), np.float32)
    single[0, 0], single[0, 1] = 1, 0.1
    assert scaled(single, 20)[0, :3].tolist() == [255, 128, 0]  # five times brighter


def test_many_photos_stay_small(store: Path, out: Path) -> None:
    write_report(store, out)
    fixed = len(out.read_bytes())
    noise = np.random.default_rng(0).integers(0, 255, (224, 224, 3), np.uint8)
    Image.fromarray(noise).save(store.parent / "photos" / "a.jpg", quality=95)  # the worst case
    content = (store.parent / "photos" / "a.jpg").read_bytes()
    db = sqlite3.connect(store)
    with db:
        digest = hashlib.sha256(content).hexdigest()
        db.execute("UPDATE photos SET sha256 = ? WHERE name = 'a.jpg'", (digest,))
    db.close()
    write_report(store, out)
    grown = len(in_page(out.read_text(), "pictures-0")["photo"])
    own = gather(store).configurations[0]
    many = {photo: Answer(0.1, 0.2, heatmap=True) for photo in range(500)}
    fine = replace(own, answers=many, row=replace(own.row, resolution=(224, 224)))
    assert finest([fine], set(many)) == 112  # 500 · 112² = 6.3 MB
    assert finest([fine] * 3, set(many)) == 56  # 3 · 6.3 MB would be too much
    assert finest([fine] * 3, set(range(100))) == 112
    assert finest([fine] * 36, set(many)) == 28
    assert fixed + 500 * grown + HEAT_BYTES * 4 / 3 < 50e6


NET = ("--model", "net.py:classifier", "--device", "cpu")


def test_the_command_makes_it_again(place: Path, run: Run) -> None:
    words = ("--methods", "igos,random", "--set", "igos.max_iterations=2", "--resolutions", "8,4x2")
    rest = (
        "--baseline",
        "grey",
        "--score",
        "logit",
        "--seed",
        "3",
        "--limit",
        "2",
        "--no-heatmaps",
        "--weights",
        "weak net.pth",
    )
    torch.save({"gain": torch.tensor(50.0)}, place / "weak net.pth")  # its own are 60
    assert run("evaluate", ".", *NET, *words, *rest, "--out", "run.sqlite")[0] == 0
    code, _, err = run("report", "run.sqlite", "--model", "net.py:classifier")
    assert (code, err) == (0, "")
    html = (place / "report.html").read_text()
    data = gather(place / "run.sqlite")
    again = command(data.runs[0].arguments, data.questions[1])
    assert again is not None
    shown = re.search(r'<pre class="command">(.*?)</pre>', html, re.S)
    assert shown is not None
    assert unescape(re.sub("</?span>", "", shown[1])) == again
    assert run(*shlex.split(again)[1:])[0] == 0
    first, second = summarise(Path("run.sqlite")), summarise(Path("again.sqlite"))
    assert [replace(row, seconds=0) for row in first] == [replace(row, seconds=0) for row in second]
    assert {card["target"] for card in in_page(html, "data")["cards"]} == {"red", "blue"}
    assert command({"experiment": "table1"}, QUESTION) is None
    (settings,) = {json.dumps(one.row.settings) for one in data.configurations[:1]}
    assert json.loads(settings)["max_iterations"] == 2


def test_the_code_of_ones_own_model_is_not_run_unasked(place: Path, run: Run) -> None:
    assert (
        run(
            "evaluate", ".", *NET, "--methods", "random", "--resolutions", "8", "--out", "r.sqlite"
        )[0]
        == 0
    )
    (place / "net.py").write_text("raise SystemExit(7)")
    code, _, err = run("report", "r.sqlite")
    assert code == 0
    assert "'net.py:classifier': its preprocessing is not known without running its code" in err
    html = (place / "report.html").read_text()
    assert not in_page(html, "pictures-0")["fits"]
    assert in_page(html, "data")["cards"][0]["target"].startswith("class ")
    code, _, err = run("report", "r.sqlite", "--model", "net.py:classifier")
    assert (code, "SystemExit: 7" in err) == (2, True)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise ValueError('too blue')", "ValueError: too blue"),
        ("return torch.zeros(2, 3, 4, 4)", "RuntimeError: permute"),
    ],
)
def test_a_photo_that_preprocessing_fails_on_is_shown_whole(
    place: Path, run: Run, fault: str, reason: str
) -> None:
    words = ("--methods", "random", "--resolutions", "8", "--out", "r.sqlite")
    assert run("evaluate", ".", *NET, *words)[0] == 0
    start = "    def preprocess(photo):\n"
    changed = f"{start}        if photo.getpixel((10, 10))[2] > 200:\n            {fault}\n"
    (place / "net.py").write_text((place / "net.py").read_text().replace(start, changed))
    code, _, err = run("report", "r.sqlite", "--model", "net.py:classifier")
    assert code == 0
    told = "1 photo is whole, beside its heatmaps: blue.jpg: the model's preprocessing failed: "
    assert f"igos: {told}{reason}" in err
    html = (place / "report.html").read_text()
    shown = {}
    for at, card in enumerate(in_page(html, "data")["cards"]):
        pictures = in_page(html, f"pictures-{at}")
        jpeg = base64.b64decode(pictures["photo"].partition(",")[2])
        shown[card["name"]] = pictures["fits"], Image.open(io.BytesIO(jpeg)).size
    assert shown == {"blue.jpg": (False, (40, 40)), "red.png": (True, (32, 32))}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.sqlite",), "no such file"),
        (("net.py",), "not a store of igos"),
        (("empty.sqlite",), "there are no results in it"),
        (("newer.sqlite",), "written by another version of igos (schema 99"),
        (("run.sqlite", "--out", "red.png/report.html"), "folder 'red.png': not writable"),
        (("run.sqlite", "--out", "."), "'.': a folder; give a file"),
        (("run.sqlite", "--out", "run.sqlite"), "that is the store"),
        (("run.sqlite", "--photos", "nowhere"), "photos 'nowhere': no such file or folder"),
        (("run.sqlite", "--against", "igoss"), "did you mean 'igos'"),
        (("run.sqlite", "--model", "timm:nothing"), "unknown timm model 'nothing': "),
        (("run.sqlite", "--min-probability", "1"), "no results in it for photos of probability 1"),
        (("run.sqlite", "--limit", "-1"), "Invalid value for '--limit'"),
    ],
)
def test_mistakes_are_named(place: Path, run: Run, words: tuple[str, ...], message: str) -> None:
    make_photos(place / "photos")
    make_store(place / "run.sqlite", place / "photos")
    with Store(place / "empty.sqlite"):
        pass
    with sqlite3.connect(place / "newer.sqlite") as db:
        db.executescript(
            "CREATE TABLE t (x); PRAGMA application_id = 0x49474F53; PRAGMA user_version = 99;"
        )
    db.close()
    before = (place / "run.sqlite").read_bytes()
    code, out, err = run("report", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert (place / "run.sqlite").read_bytes() == before
    assert not list(place.glob("*.html"))


def test_kinds_of_warnings() -> None:
    assert kind("predicts 'sea lion' (0.31), not 2 of \"it\"") == "predicts … (…), not … of …"
