"""The page as a visitor uses it, in a headless Chromium; it may ask nothing of other machines."""

import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from PIL import Image

import igos
from browser import PHONE, WIDE, outside, shot
from serving import held, running
from small import NET_FILE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from igos.app.actions import Actions

pytest.importorskip("gradio", reason="gradio is not installed")
read_auth = pytest.importorskip("igos.app.guard").read_auth
TIMEOUT = 20_000  # ms; never waited for where all is well


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, "Actions", Path]]:
    """The page for the tests' small net, and a folder with photos."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "net.py").write_text(NET_FILE)
    pixels = np.full((40, 40, 3), 20, np.uint8)
    pixels[5:20, 5:20] = (240, 10, 10)
    Image.fromarray(pixels).save(folder / "it's (red).png")
    (folder / "text.jpg").write_text("hello")
    with running(str(folder / "net.py:classifier")) as (url, actions):
        yield url, actions, folder


@pytest.fixture
def page(browser: "Browser", site: tuple[str, "Actions", Path]) -> Iterator["Page"]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(TIMEOUT)
    asked = outside(context)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(site[0])
    yield opened
    context.close()
    assert asked == []
    assert errors == []


def button(page: "Page", name: str) -> "Locator":
    return page.get_by_role("button", name=name, exact=True)


def upload(page: "Page", path: Path) -> None:
    page.locator("#upload input[type=file]").set_input_files(path)


def choose(page: "Page", box: str, text: str) -> None:
    """By keyboard, as one who cannot use a mouse would."""
    field = page.locator(f"#{box} input")
    field.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type(text)
    first = "b => document.querySelector(`#${b[0]} [role=option]`)?.innerText.includes(b[1])"
    page.wait_for_function(first, arg=[box, text])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("b => !document.querySelector(`#${b} [role=option]`)", arg=box)
    assert field.input_value().startswith(text)


def explain(page: "Page") -> None:
    button(page, "Explain").click()
    page.locator("#numbers dd").first.wait_for()


def begin_slowly(page: "Page", monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is still at work when the next step of the test comes."""
    monkeypatch.setenv("IGOS_TEST_DELAY", "0.02")
    choose(page, "method", "mask-paper")
    button(page, "Explain").click()
    page.locator("#progress progress[max]").wait_for()


def number(page: "Page", name: str) -> str:
    return page.locator(f"#numbers .{name} dd").inner_text()


def source(page: "Page", where: str) -> str:
    return page.locator(f"#{where} img").last.get_attribute("src") or ""


def slide(page: "Page", name: str, value: int) -> None:
    page.locator(f"#{name} input[type=range]").fill(str(value))


def test_a_photo_from_drop_to_test(page: "Page", site: tuple[str, "Actions", Path]) -> None:
    _, actions, folder = site
    upload(page, folder / "it's (red).png")
    assert page.locator("#predictions li").first.inner_text().split() == ["red", "97.4%"]
    assert page.locator("#target input").input_value() == "red"
    assert page.locator("#photo figcaption").inner_text().startswith("it's (red).png")
    choose(page, "target", "neither")
    choose(page, "method", "random")
    page.get_by_role("radio", name="14", exact=True).check()
    page.get_by_role("radio", name="grey", exact=True).check()
    page.get_by_label("Seed").fill("3")
    explain(page)
    expected = igos.explain(
        folder / "it's (red).png",
        model=actions.worker.classifier,
        target="neither",
        method="random",
        resolution=14,
        baseline="grey",
        seed=3,
    )
    assert number(page, "deletion") == f"{expected.deletion.auc:.3f}"
    assert number(page, "insertion") == f"{expected.insertion.auc:.3f}"
    assert "The model predicts 'red'" in page.locator("#warnings").inner_text()
    assert page.locator("#command code").inner_text() == (
        "igos explain 'it'\"'\"'s (red).png' --method random --resolution 14 --target 2 "
        f"--baseline grey --seed 3 --model {folder / 'net.py:classifier'} --ratio 0.2041"
    )


def test_the_slider(page: "Page") -> None:
    button(page, "Use the sample photo").click()
    page.locator("#predictions li").first.wait_for()
    explain(page)
    output, mark = page.locator("#composed output"), page.locator("#curves circle").first
    seen = {(output.inner_text(), source(page, "composed"), mark.get_attribute("cx"))}
    for percent in (0, 50, 100):
        before = source(page, "composed")
        slide(page, "fraction", percent)
        page.wait_for_function("b => document.querySelector('#composed img').src !== b", arg=before)
        seen.add((output.inner_text(), source(page, "composed"), mark.get_attribute("cx")))
    assert len({place for _, _, place in seen}) == 4
    assert len({picture for _, picture, _ in seen}) == 4
    photo = source(page, "photo")
    page.get_by_role("radio", name="Show alone").check()
    page.wait_for_function("b => document.querySelector('#composed img').src === b", arg=photo)
    slide(page, "opacity", 30)
    page.wait_for_function(
        "getComputedStyle(document.querySelector('#heat img.top')).opacity === '0.3'"
    )


def saved(page: "Page", name: str) -> tuple[str, bytes]:
    with page.expect_download() as download:
        button(page, name).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_downloads(page: "Page", site: tuple[str, "Actions", Path]) -> None:
    _, actions, folder = site
    upload(page, folder / "it's (red).png")
    page.locator("#predictions li").first.wait_for()
    explain(page)
    expected = igos.explain(folder / "it's (red).png", model=actions.worker.classifier)
    name, content = saved(page, "NPY heatmap")
    assert name == "it's (red).igos.28.npy"
    assert np.array_equal(np.load(io.BytesIO(content)), expected.heatmap.numpy())
    name, content = saved(page, "JSON record")
    record, other = json.loads(content), expected.record()
    assert record.pop("photo") == "it's (red).png"
    del record["seconds"], other["seconds"], other["photo"]
    assert record == json.loads(json.dumps(other))
    assert f"{record['deletion']:.3f}" == number(page, "deletion")
    name, content = saved(page, "PNG picture")
    assert content == expected.png(ratio=160 / 784)


def test_a_run_grows_and_is_stopped(
    page: "Page", site: tuple[str, "Actions", Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(page, site[2] / "it's (red).png")
    page.locator("#predictions li").first.wait_for()
    begin_slowly(page, monkeypatch)
    bar = page.locator("#progress progress[max]")
    first, heat = int(bar.get_attribute("value") or 0), source(page, "heat")
    page.wait_for_function("v => document.querySelector('#progress progress').value > v", arg=first)
    page.wait_for_function("s => document.querySelector('#heat img.top').src !== s", arg=heat)
    assert button(page, "Explain").is_disabled()
    button(page, "Stop").click()
    page.get_by_text(re.compile(r"Stopped after iteration \d+")).wait_for()
    assert button(page, "Stop").is_disabled()
    assert not page.locator("#numbers").is_visible()
    monkeypatch.setenv("IGOS_TEST_DELAY", "0")
    choose(page, "method", "random")
    explain(page)  # and the next one runs


def test_a_run_stopped_in_the_queue_does_not_come_back(
    page: "Page", site: tuple[str, "Actions", Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = page.context.new_page()
    other.goto(site[0])
    for visitor in (page, other):
        button(visitor, "Use the sample photo").click()
        visitor.locator("#predictions li").first.wait_for()
    begin_slowly(other, monkeypatch)
    button(page, "Explain").click()
    page.get_by_text("Waiting for its turn").wait_for()
    button(page, "Stop").click()
    page.get_by_text("Stopping").wait_for()
    page.wait_for_timeout(300)  # for an answer that would end it too early
    assert button(page, "Explain").is_disabled()
    button(other, "Stop").click()
    page.get_by_text("Stopped before it began.").wait_for()
    monkeypatch.setenv("IGOS_TEST_DELAY", "0")
    choose(page, "method", "random")
    explain(page)
    assert "--method random" in page.locator("#command code").inner_text()


def test_only_its_own_button_stops_a_run(page: "Page", monkeypatch: pytest.MonkeyPatch) -> None:
    button(page, "Use the sample photo").click()
    page.locator("#predictions li").first.wait_for()
    monkeypatch.setenv("IGOS_TEST_DELAY", "0.02")
    button(page, "Explain").click()
    page.locator("#progress progress[max]").wait_for()
    page.get_by_role("tab", name="Compare").click()
    assert button(page, "Compare").is_disabled()
    assert button(page, "Stop").is_disabled()
    page.get_by_role("tab", name="Explain").click()
    button(page, "Stop").click()
    page.get_by_text("Stopped").wait_for()
    page.get_by_role("tab", name="Compare").click()
    button(page, "Compare").click()
    page.locator("#comparing progress[max]").wait_for()
    button(page, "Stop").click()
    page.get_by_text("Stopped after 0 of 4 methods.").wait_for()


def test_a_bad_seed_is_said(page: "Page") -> None:
    button(page, "Use the sample photo").click()
    page.locator("#predictions li").first.wait_for()
    page.get_by_label("Seed").fill("-1")
    button(page, "Explain").click()
    page.get_by_text("seed -1").wait_for()
    assert button(page, "Explain").is_enabled()


def test_a_full_queue_is_said(
    browser: "Browser", site: tuple[str, "Actions", Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("igos.app.page.MOST_WAITING", 0)
    with running(str(site[2] / "net.py:classifier")) as (url, _):
        context = browser.new_context()
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        page.goto(url)
        button(page, "Explain").click()
        page.get_by_text("perhaps too many are waiting").wait_for()
        assert button(page, "Explain").is_enabled()
        assert page.locator("#progress progress").count() == 0
        context.close()


def test_compare(page: "Page") -> None:
    button(page, "Use the sample photo").click()
    page.locator("#predictions li").first.wait_for()
    page.get_by_role("tab", name="Compare").click()
    page.get_by_role("checkbox", name="integrated-gradients").uncheck()
    button(page, "Compare").click()
    page.locator("#compare-command code").wait_for()
    cards = page.locator("#cards article")
    assert [card.locator("b, .empty").inner_text() for card in cards.all()] == [
        "igos",
        "gradcam",
        "random",
    ]
    assert "convolution" in cards.nth(1).inner_text()
    assert "--methods igos,random" in page.locator("#compare-command code").inner_text()
    records = json.loads(saved(page, "JSON records")[1])
    shown = [cards.nth(at).locator(".deletion dd").inner_text() for at in (0, 2)]
    assert shown == [f"{record['deletion']:.3f}" for record in records]


def test_what_is_no_photo(page: "Page", site: tuple[str, "Actions", Path]) -> None:
    upload(page, site[2] / "text.jpg")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text() == "photo 'text.jpg': not an image that Pillow can read"
    button(page, "Explain").click()
    page.get_by_text("no photo yet: drop one, or take the sample").wait_for()


def test_a_name_is_only_text(page: "Page", site: tuple[str, "Actions", Path]) -> None:
    name = "{{#if 1}}${1+1}<img src=x onerror=alert(1)>.png"
    (site[2] / name).write_bytes((site[2] / "it's (red).png").read_bytes())
    upload(page, site[2] / name)
    page.locator("#predictions li").first.wait_for()
    assert page.locator("#photo b").inner_text() == name


def test_whoever_leaves_is_forgotten_and_their_run_ends(
    page: "Page", site: tuple[str, "Actions", Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, actions, _ = site
    before = held()
    button(page, "Use the sample photo").click()
    page.locator("#predictions li").first.wait_for()
    begin_slowly(page, monkeypatch)
    assert len(actions.sessions) >= 1
    mine = held() - before
    assert mine
    page.context.close()
    wait_until(lambda: len(actions.sessions) == 0)
    actions.worker.look("sample", "sample")  # has its turn, so the run is over
    wait_until(lambda: not mine & held())


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT / 1000
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ten_at_once_are_answered_in_turn(site: tuple[str, "Actions", Path]) -> None:
    from gradio_client import Client

    url, actions, _ = site
    most = [0, 0]  # passes at work now, and at most

    def enter(*_: object) -> None:
        most[0] += 1
        most[1] = max(most)

    def leave(*_: object) -> None:
        most[0] -= 1

    module = actions.worker.classifier.module
    handles = [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]

    def visit(at: int) -> str:
        client = Client(url, verbose=False)
        try:
            client.predict(api_name="/sample")
            asked = client.submit("igos", at % 3, 7, "grey", 0, "deletion", 20, api_name="/explain")
            asked.result(timeout=60)
            return str(asked.outputs()[-1])
        finally:
            client.close()

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(visit, range(10)))
    for handle in handles:
        handle.remove()
    assert most[1] == 1
    for at, answer in enumerate(answers):
        assert f"--target {at % 3} " in answer
        assert "Done: deletion" in answer


def test_a_photo_that_waits_says_so(page: "Page", site: tuple[str, "Actions", Path]) -> None:
    turn = threading.Event()
    site[1].worker._thread.submit(turn.wait)
    try:
        button(page, "Use the sample photo").click()
        page.get_by_text("Looking at the photo, at its turn").wait_for()
    finally:
        turn.set()
    page.locator("#predictions li").first.wait_for()
    page.get_by_text("Looking at the photo").wait_for(state="detached")


def test_everything_has_a_name_and_is_reached_by_keyboard(page: "Page") -> None:
    button(page, "Use the sample photo").click()
    page.locator("#predictions li").first.wait_for()
    explain(page)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea, img, svg[role]')]
        .filter(e => e.checkVisibility() && !e.ariaLabel && !e.alt && !e.innerText
                     && !e.labels?.length && !e.title && e.type !== 'file')
        .map(e => e.outerHTML.slice(0, 200))"""
    )
    assert nameless == []
    reached, unseen = set(), []
    page.locator("#sample").focus()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.closest('[id]')?.id"))
        unseen += page.evaluate(
            """() => [document.activeElement].filter(e => e !== document.body
            && getComputedStyle(e).outlineStyle !== 'solid').map(e => e.outerHTML.slice(0, 200))"""
        )
    assert {"target", "method", "fraction", "opacity"} <= reached
    assert unseen == []  # where the keyboard is has a line around it


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(
    browser: "Browser", site: tuple[str, "Actions", Path], scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    page.goto(site[0])
    button(page, "Use the sample photo").click()
    page.locator("#predictions li").first.wait_for()
    explain(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", dark)[:3])) < 200) == (scheme == "dark")
    context.close()


def test_the_door(browser: "Browser", site: tuple[str, "Actions", Path], tmp_path: Path) -> None:
    """The page that asks for a password may ask nothing else of anybody either."""
    (tmp_path / "word").write_text("secret\n")
    allowed = read_auth(f"me:{tmp_path / 'word'}")
    with running(str(site[2] / "net.py:classifier"), auth=allowed) as (url, _):
        context = browser.new_context()
        context.set_default_timeout(TIMEOUT)
        asked = outside(context)
        page = context.new_page()
        page.goto(url)
        page.get_by_label("username").fill("me")
        page.get_by_label("password").fill("secret")
        page.get_by_role("button", name="Login").click()
        button(page, "Use the sample photo").click()
        page.locator("#predictions li").first.wait_for()
        context.close()
    assert asked == []


def test_the_browser_refuses_what_is_outside(page: "Page") -> None:
    tried = "fetch('http://192.0.2.1/').then(() => 'answered', (e) => e.name)"
    assert page.evaluate(tried) == "TypeError"


def test_screenshots(browser: "Browser", screenshots: Path) -> None:
    """The pictures of docs/web.md: the bundled network and the sample."""
    with running("efficientnet_lite0") as (url, _):
        page = browser.new_page(viewport=WIDE)
        page.set_default_timeout(300_000)
        page.goto(url)
        button(page, "Use the sample photo").click()
        page.locator("#predictions li").first.wait_for()
        explain(page)
        shot(page, screenshots / "web.png")
        page.emulate_media(color_scheme="dark")
        shot(page, screenshots / "web_dark.png")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(PHONE)
        shot(page, screenshots / "web_phone.png")
        page.set_viewport_size(WIDE)
        page.get_by_role("tab", name="Compare").click()
        button(page, "Compare").click()
        page.locator("#compare-command code").wait_for()
        shot(page, screenshots / "compare_page.png")
        page.close()
