"""What the web page does and shows, without a browser and without Gradio."""

import base64
import io
import json
import re
import shlex
import threading
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import igos
from igos.app import view
from igos.app.actions import MOST_METHODS, Actions, Parts, Point
from igos.app.curves import DELETION, INSERTION, WIDE, draw
from igos.app.sessions import Sessions
from igos.app.work import Answered, Choice, Frame, StoppedError, Worker
from igos.errors import IgosError
from igos.models import load
from igos.models.classifier import Classifier
from small import Run

RED = Choice(target=0, method="igos", resolution=8, baseline="grey", seed=0)
AT = Point(DELETION, 0.2)


@pytest.fixture
def actions(place: Path) -> Iterator[Actions]:
    assert place.exists()
    classifier = load("net.py:classifier", device="cpu")
    made = Actions(Worker(classifier), Sessions(), {"--model": "net.py:classifier"})
    yield made
    made.worker.close()


def sent(name: str, source: str = "red.png") -> str:
    """A file as the browser sends it: a copy that the server may delete."""
    copy = Path("sent") / name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(Path(source).read_bytes())
    return str(copy)


def explained(actions: Actions, choice: Choice = RED, point: Point = AT) -> Parts:
    """All that the page shows after Explain."""
    actions.wait("progress", "me")
    shown: Parts = {}
    for parts in actions.explain("me", choice, point):
        shown |= parts
    return shown


def pictures(html: str) -> list[np.ndarray]:
    found = re.findall(r"data:image/png;base64,([^\"]+)", html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in found]


def shown_command(html: str) -> list[str]:
    match = re.search("<code[^>]*>(.*)</code>", html)
    assert match
    return shlex.split(unescape(match[1]))


def test_an_upload_is_classified(actions: Actions) -> None:
    parts = actions.upload("me", sent("a b.png"), "a b.png")
    assert parts["target"] == 0
    assert parts["notice"] == ""
    logits = actions.worker.classifier.module(
        actions.worker.classifier.preprocess(Image.open("red.png"))[None]
    )
    chances = logits.softmax(dim=1)[0].tolist()
    rows = re.findall(r"<span>(\w+)</span><b>([\d.]+%)", parts["predictions"])
    assert rows == [
        ("red", f"{chances[0]:.1%}"),
        ("neither", f"{chances[2]:.1%}"),
        ("blue", f"{chances[1]:.1%}"),
    ]
    assert np.array_equal(
        pictures(parts["photo"])[0], np.asarray(Image.open("red.png").resize((32, 32)))
    )


def test_two_visitors_send_the_same_photo(actions: Actions) -> None:
    path = sent("red.png")  # Gradio keeps equal files in one place
    for key in ("me", "you"):
        assert actions.upload(key, path, "red.png")["notice"] == ""


def test_what_is_no_photo_is_said_by_its_own_name(actions: Actions) -> None:
    actions.sample("me")
    parts = actions.upload("me", sent("odd.jpg", "text.jpg"), "<b>.jpg")
    assert "photo &#39;&#60;b&#62;.jpg&#39;: not an image that Pillow can read" in parts["notice"]
    assert 'role="alert"' in parts["notice"]
    (end,) = actions.explain("me", RED, AT)  # the photo before is not taken for it
    assert "no photo yet" in end["notice"]


def test_a_decompression_bomb_is_refused(actions: Actions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("igos.data.MAX_PIXELS", 1000)
    assert "megapixels; make it smaller" in actions.upload("me", sent("a.png"), "a.png")["notice"]


def test_the_answer_is_that_of_igos_explain(actions: Actions) -> None:
    actions.upload("me", sent("red.png"), "red.png")
    shown = explained(actions)
    expected = igos.explain(
        "red.png", model=actions.worker.classifier, target=0, resolution=8, baseline="grey"
    )
    found = actions.sessions.of("me").answer().explanation
    assert torch.equal(found.heatmap, expected.heatmap)
    record, other = found.record(), expected.record()
    del record["seconds"], other["seconds"]
    assert record == other
    for number in (expected.probability, expected.deletion.auc, expected.insertion.auc):
        assert f"<dd>{number:.3f}</dd>" in shown["numbers"]
    assert (shown["busy"], shown["progress"]) == ("", "")


def test_frames_lead_to_the_heatmap(actions: Actions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("igos.app.work.FRAMES_A_SECOND", 10**9)
    question = actions.worker.look("red.png", "red.png")
    *frames, end = actions.worker.explain(question, RED, threading.Event())
    assert isinstance(end, Answered)
    assert [frame.iteration for frame in frames if isinstance(frame, Frame)] == list(
        range(1, (end.explanation.iterations or 0) + 1)
    )
    last = frames[-1]
    assert isinstance(last, Frame)
    assert torch.equal(last.heatmap, end.explanation.heatmap)
    assert last.loss == pytest.approx((end.explanation.losses or [])[-1])


class Counting:
    """Counts the passes of a classifier's model and, at the `end`th, sets an event."""

    def __init__(self, classifier: Classifier, end: int = -1) -> None:
        self.passes, self.end, self.event = 0, end, threading.Event()
        classifier.module.register_forward_pre_hook(self.count)

    def count(self, *_: object) -> None:
        self.passes += 1
        if self.passes == self.end:
            self.event.set()


@pytest.mark.parametrize("method", ["igos", "rise", "mask"])
def test_stop_ends_any_method_at_its_next_pass(actions: Actions, method: str) -> None:
    question = actions.worker.look("red.png", "red.png")
    counting = Counting(actions.worker.classifier, end=5)
    hooks = len(actions.worker.classifier.module._forward_pre_hooks)
    with pytest.raises(StoppedError):
        list(actions.worker.explain(question, replace(RED, method=method), counting.event))
    assert counting.passes <= 6
    assert len(actions.worker.classifier.module._forward_pre_hooks) == hooks


def test_a_run_ends_when_nobody_listens(actions: Actions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IGOS_TEST_DELAY", "0.01")
    question = actions.worker.look("red.png", "red.png")
    run = actions.worker.explain(question, replace(RED, method="mask"), threading.Event())
    next(run)
    run.close()  # type: ignore[attr-defined]
    monkeypatch.setenv("IGOS_TEST_DELAY", "0")
    counting = Counting(actions.worker.classifier)
    fast = replace(RED, method="random")
    assert isinstance(list(actions.worker.explain(question, fast, threading.Event()))[-1], Answered)
    # a pass for the predicted class, one for the baseline's, and the curves' chunks; few of mask's
    assert counting.passes < 60


def test_stop_is_said(actions: Actions) -> None:
    actions.sample("me")
    actions.wait("progress", "me")
    assert actions.stop("me") == {}  # still busy: no other run can come before it
    queued = {
        "progress": actions.explain("me", RED, AT),
        "comparing": actions.compare("me", RED, ["igos"]),
    }
    for bar, run in queued.items():
        (end,) = run
        assert "Stopped before it began." in end[bar]
        assert end["busy"] == ""
    assert explained(actions)["numbers"]  # the next run is another one
    counting = Counting(actions.worker.classifier, end=20)
    actions.wait("progress", "me")
    actions.sessions.of("me").stop = counting.event
    parts = list(actions.explain("me", replace(RED, method="mask"), AT))
    assert re.search(
        r"Stopped( after iteration \d+. The heatmap so far is not tested)?\.", parts[-1]["progress"]
    )


def test_a_run_keeps_its_own_stop(actions: Actions) -> None:
    actions.sample("me")
    runs = (actions.explain("me", RED, AT), actions.compare("me", RED, ["igos", "random"]))
    for run in runs:
        actions.wait("progress", "me")
        next(run)
        actions.stop("me")
        actions.wait("progress", "me")  # another one is asked for
        assert any("Stopped" in str(parts) for parts in run)


def test_a_stopped_run_leaves_no_older_answer(actions: Actions) -> None:
    actions.sample("me")
    explained(actions)
    list(actions.compare("me", RED, ["random"]))
    for run in (
        actions.explain("me", replace(RED, method="mask"), AT),
        actions.compare("me", RED, ["mask"]),
    ):
        actions.wait("progress", "me")
        next(run)
        actions.stop("me")
        list(run)
    assert actions.drag("me", AT) == {}
    with pytest.raises(IgosError, match="press Explain"):
        actions.download("me", "npy", AT, 1.0)
    with pytest.raises(IgosError, match="press Compare"):
        actions.download_comparison("me", "json")


@pytest.mark.parametrize("kind", [DELETION, INSERTION])
def test_the_slider_shows_the_picture_that_the_model_was_given(actions: Actions, kind: str) -> None:
    actions.upload("me", sent("red.png"), "red.png")
    explained(actions)
    found = actions.sessions.of("me").answer().explanation
    curve = found.deletion if kind == DELETION else found.insertion
    for fraction in (0.0, 0.013, 0.2, 0.5, 1.0):
        shown = actions.drag("me", Point(kind, fraction))
        at = int((curve.fraction - fraction).abs().argmin())
        assert f"<output>{float(curve.score[at]):.3f}</output>" in shown["composed"]
        pixels = torch.tensor(pictures(shown["composed"])[0]).permute(2, 0, 1) / 255
        with torch.no_grad():
            score = actions.worker.classifier.module(pixels[None]).softmax(dim=1)[0, 0]
        assert float(score) == pytest.approx(float(curve.score[at]), abs=0.03)  # 8 bits a pixel
        x = WIDE.x(float(curve.fraction[at]))
        marks = re.findall(
            r'<circle class="(\w+)" cx="([\d.]+)" cy="([\d.]+)" r="(\d)"', shown["curves"]
        )
        assert {mark[0]: (float(mark[1]), float(mark[2])) for mark in marks} == {
            DELETION: (x, WIDE.y(float(found.deletion.score[at]))),
            INSERTION: (x, WIDE.y(float(found.insertion.score[at]))),
        }
        assert max(marks, key=lambda mark: mark[3])[0] == kind


def test_the_slider_needs_no_model(actions: Actions) -> None:
    actions.sample("me")
    assert actions.drag("me", AT) == {}
    explained(actions)
    counting = Counting(actions.worker.classifier)
    assert actions.drag("me", AT)
    assert counting.passes == 0


@pytest.mark.parametrize("name", ["red.png", "it's (1) $HOME.png", "-x.png", "sample"])
def test_the_command_gives_the_same_heatmap(actions: Actions, run: Run, name: str) -> None:
    Path("red.png").replace(name)
    actions.upload("me", sent("copy", f"./{name}"), name)
    words = shown_command(explained(actions)["command"])
    assert words[:2] == ["igos", "explain"]
    code, out, err = run(*words[1:], "--json", "--device", "cpu")
    assert (code, err) == (0, "")
    record = json.loads(out)
    mine = actions.sessions.of("me").answer().explanation
    assert (record["deletion"], record["insertion"]) == (mine.deletion.auc, mine.insertion.auc)
    (made,) = Path("igos-out").glob("*.npy")
    assert np.array_equal(np.load(made), mine.heatmap.numpy())
    assert (
        json.loads(actions.download("me", "json", AT, 1.0).content)["settings"]
        == record["settings"]
    )


def test_a_method_with_its_own_resolution_has_none_in_its_command(actions: Actions) -> None:
    actions.sample("me")
    assert "--resolution" in explained(actions)["command"]
    assert "--resolution" not in explained(actions, replace(RED, method="rise"))["command"]


def test_downloads_are_what_is_shown(actions: Actions) -> None:
    actions.upload("me", sent("red.png"), "red.png")
    with pytest.raises(IgosError, match="press Explain"):
        actions.download("me", "npy", AT, 1.0)
    explained(actions)
    found = actions.sessions.of("me").answer().explanation
    file = actions.download("me", "npy", AT, 1.0)
    assert file.name == "red.igos.8.npy"
    assert np.array_equal(np.load(io.BytesIO(file.content)), found.heatmap.numpy())
    assert json.loads(actions.download("me", "json", AT, 1.0).content) == found.record()
    ratio = float(found.deletion.fraction[(found.deletion.fraction - 0.2).abs().argmin()])
    assert actions.download("me", "png", AT, 1.0).content == found.png(ratio=ratio)
    clear = actions.download("me", "png", AT, 0.0).content
    assert clear != found.png(ratio=ratio)  # without the heatmap: twice the photo
    assert file.message()["content"] == base64.b64encode(file.content).decode()


def test_a_comparison(actions: Actions, run: Run) -> None:
    actions.upload("me", sent("red.png"), "red.png")
    with pytest.raises(IgosError, match="press Compare"):
        actions.download_comparison("me", "json")
    shown: Parts = {}
    for parts in actions.compare("me", RED, ["igos", "gradcam", "random"]):
        shown |= parts
    assert shown["busy"] == ""
    cards = shown["cards"].split("<article")[1:]
    assert len(cards) == 3
    assert "gradcam" in cards[1]
    assert "igos-notice warning" in cards[1]  # this model has no convolution
    answers = actions.sessions.of("me").compared
    assert [answered.choice.method for answered in answers] == ["igos", "random"]
    for answered, card in zip(answers, (cards[0], cards[2]), strict=True):
        assert f"<dd>{answered.explanation.deletion.auc:.3f}</dd>" in card
        assert f"<dd>{answered.explanation.insertion.auc:.3f}</dd>" in card
    records = json.loads(actions.download_comparison("me", "json").content)
    assert records == [answered.explanation.record() for answered in answers]
    assert actions.download_comparison("me", "png").content.startswith(b"\x89PNG")
    code, _, _ = run(*shown_command(shown["compare_command"])[1:], "--device", "cpu")
    made = json.loads(Path("igos-out/red.compare.json").read_text())
    assert code == 0
    for one, other in zip(made, records, strict=True):
        assert (one["method"], one["deletion"]) == (other["method"], other["deletion"])


def test_a_comparison_has_one_method_or_more_and_not_too_many(actions: Actions) -> None:
    actions.sample("me")
    for methods in ([], ["random"] * (MOST_METHODS + 1)):
        first, *_ = actions.compare("me", RED, methods)
        assert f"tick 1 to {MOST_METHODS}" in first["notice"]


def test_a_comparison_is_stopped_between_methods_too(actions: Actions) -> None:
    actions.sample("me")
    actions.wait("comparing", "me")
    run = actions.compare("me", RED, ["random", "igos", "mask"])
    for parts in run:
        if "<dd>" in parts.get("cards", ""):
            actions.stop("me")
            break
    rest = list(run)
    assert "Stopped after 1 of 3 methods" in rest[-2]["comparing"]
    assert rest[-1] == {"busy": ""}


def test_a_crash_is_said_logged_and_over(
    actions: Actions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    actions.sample("me")

    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by chance")

    with monkeypatch.context() as broken:
        broken.setattr("igos.app.work.explain", crash)
        shown = explained(actions)
    assert "ZeroDivisionError: by chance" in shown["notice"]
    assert shown["busy"] == ""
    assert "a request failed" in caplog.text
    assert explained(actions)["numbers"]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (replace(RED, seed=-1), "seed -1"),
        (replace(RED, target=-1), "class index -1"),
        (replace(RED, resolution=64), "resolution 64×64"),
    ],
)
def test_mistakes_are_said(actions: Actions, choice: Choice, words: str) -> None:
    actions.sample("me")
    assert words in explained(actions, choice)["notice"]


def test_warnings_are_shown_in_words(actions: Actions) -> None:
    actions.upload("me", sent("red.png"), "red.png")
    shown = explained(actions, replace(RED, target=1))["warnings"]
    assert "The model predicts &#39;red&#39;" in shown
    assert "below 0.01 heatmaps by optimisation are unreliable" in shown
    assert "choose another baseline" in shown
    assert shown.count("igos-notice warning") == 3


def test_sessions_are_few_and_forgotten(actions: Actions) -> None:
    sessions = Sessions(most=2)
    first, second = sessions.of("a"), sessions.of("b")
    assert sessions.of("a") is first
    sessions.of("c")
    assert len(sessions) == 2
    assert (second.stop.is_set(), first.stop.is_set()) == (True, False)
    sessions.forget("a")
    sessions.forget("a")
    assert first.stop.is_set()
    sessions.close()
    assert len(sessions) == 0
    actions.sample("me")
    explained(actions)
    actions.sample("me")  # a new photo: what was said of the old one goes
    assert actions.sessions.of("me").shown is None


def test_the_drawing_has_every_point(actions: Actions) -> None:
    actions.sample("me")
    explained(actions)
    found = actions.sessions.of("me").answer().explanation
    for kind, curve in ((DELETION, found.deletion), (INSERTION, found.insertion)):
        match = re.search(rf'<polyline class="{kind}" points="([^"]+)"', draw(found))
        assert match
        drawn = [tuple(map(float, point.split(","))) for point in match[1].split()]
        assert drawn == [
            (WIDE.x(x), WIDE.y(y))
            for x, y in zip(curve.fraction.tolist(), curve.score.tolist(), strict=True)
        ]
    assert (WIDE.x(0), WIDE.x(1)) == (WIDE.left, WIDE.width - WIDE.right)
    assert (WIDE.y(0), WIDE.y(1)) == (WIDE.floor, WIDE.top)


def test_classes_that_share_a_name_can_be_told_apart(actions: Actions) -> None:
    twice = replace(actions.worker.classifier, class_names=("crane", "ant", "crane"))
    assert view.class_choices(twice, 4) == [
        ("ant", 1),
        ("class 3", 3),
        ("crane (0)", 0),
        ("crane (2)", 2),
    ]


def test_the_command_where_the_names_of_classes_are_numbers(place: Path) -> None:
    assert place.exists()
    names = ("0", "10", "2")
    digits = replace(load("net.py:classifier", device="cpu"), class_names=names)
    actions = Actions(Worker(digits), Sessions(), {})
    actions.upload("me", sent("red.png"), "red.png")
    words = shown_command(explained(actions, replace(RED, target=2))["command"])
    assert digits.find_class(words[words.index("--target") + 1]) == 2
    actions.worker.close()
