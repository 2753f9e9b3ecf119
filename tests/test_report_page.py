"""A report in a browser: sorted, filtered, dark and small, and asking for nothing outside."""

import base64
import io
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image

from browser import PHONE, WIDE, shot
from igos.plot import overlay
from igos.report import write_report
from small import Run
from small_report import CORNER, EVIL, NAMES, QUESTION, in_page, make_photos, make_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    make_photos(folder / "photos")
    make_store(folder / "run.sqlite", folder / "photos")
    write_report(folder / "run.sqlite", folder / "report.html")
    return folder / "report.html"


@pytest.fixture
def visit(browser: "Browser") -> Iterator[Open]:
    """Open a file from disk; at the end nothing outside was asked for and nothing went wrong."""
    asked: list[str] = []
    wrong: list[str] = []
    pages = []

    def call(path: Path, **options: Any) -> "Page":
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 800}, **options})
        pages.append(page)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.goto(path.as_uri())
        return page

    yield call
    for page in pages:
        page.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def names(page: "Page") -> list[str]:
    return page.locator(".card h3").all_text_contents()


def choose(page: "Page", **values: str) -> None:
    for name, value in values.items():
        page.select_option(f"#{name}", value)


def test_orders(visit: Open, report: Path) -> None:
    page = visit(report)
    a, b, c, odd = NAMES
    # Insertion − deletion, the mean of igos 28, mask 28 and igos 7:
    # a (0.5 + 0.2 + 0.3) / 3, b (0.6 + 0.7 + 0.7) / 3, c (0.4 + 0.6 + 0.3) / 3, odd (0.1 + 0.2) / 2
    assert names(page) == [b, c, a, odd]
    choose(page, order="worst")
    assert names(page) == [odd, a, c, b]
    choose(page, order="disputed")  # at 28: a 0.3, b 0.1, c 0.2, odd 0
    assert names(page) == [a, c, b, odd]
    choose(page, order="probable")
    assert names(page) == [a, c, b, odd]
    choose(page, order="name")
    assert names(page) == [odd, a, b, c]


def test_filters(visit: Open, report: Path) -> None:
    page = visit(report)
    a, b, c, odd = NAMES
    status = page.locator("#shown")
    assert status.inner_text() == "4 of 4 photos"
    assert page.locator(".card .tile:visible").count() == 4 + 4 + 3 + 4  # with the photos
    choose(page, method="mask")
    assert (names(page), status.inner_text()) == ([b, c, a], "3 of 4 photos")
    assert page.locator(".card .tile:visible").count() == 3 * 2
    choose(page, size="7×7")
    assert names(page) == []
    choose(page, method="", size="7×7")
    assert names(page) == [b, a, c, odd]
    choose(page, size="", warnings="with")
    assert names(page) == [odd]
    page.locator(".card summary").click()
    assert page.locator(".card li").inner_text().startswith("the model predicts 'tench' (0.60)")
    choose(page, warnings="without")
    assert names(page) == [b, c, a]
    assert page.locator("#warnings option").count() == 3 + 1
    page.locator("#warnings").select_option(index=3)
    assert names(page) == [odd]
    choose(page, warnings="")
    page.fill("#text", " GOLDFISH ")  # class 1
    assert names(page) == [b]
    page.fill("#text", "&amp;.")
    assert names(page) == [odd]


def test_tables_sort_by_keyboard(visit: Open, report: Path) -> None:
    page = visit(report)
    button = page.get_by_role("button", name="deletion", exact=True)
    button.focus()
    means = page.locator(".sortable tbody td:nth-child(4) .figure > :first-child")
    assert means.all_inner_texts() == ["0.200", "0.233", "0.225"]  # 28: igos, mask; 7: igos
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert means.all_inner_texts() == ["0.233", "0.225", "0.200"]
    heading = page.locator("th", has=button)
    assert heading.get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="method").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert page.locator(".sortable tbody th").all_inner_texts() == ["igos", "igos", "mask"]


def pixels(page: "Page", selector: str) -> np.ndarray[Any, Any]:
    canvas = page.locator(selector).first
    canvas.scroll_into_view_if_needed()
    address = canvas.evaluate("canvas => canvas.toDataURL()")
    picture = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))
    return np.asarray(picture.convert("RGB")).astype(int)


def test_heatmaps_lie_on_what_the_network_saw(visit: Open, report: Path) -> None:
    page = visit(report)
    choose(page, order="name", size="7×7")
    page.locator("#gallery").scroll_into_view_if_needed()
    jpeg = in_page(report.read_text(), "pictures-3")["photo"].partition(",")[2]
    seen = np.asarray(Image.open(io.BytesIO(base64.b64decode(jpeg))))
    image = torch.tensor(seen).permute(2, 0, 1) / 255
    expected = (255 * overlay(image, torch.tensor(CORNER))).permute(1, 2, 0).numpy()
    drawn = pixels(page, ".card canvas")
    assert drawn.shape == (224, 224, 3)
    assert np.abs(drawn - expected).max() < 6  # another JPEG decoder, 8 bits
    choose(page, layer="alone")
    page.wait_for_selector(".card:first-child canvas[width='192']")
    alone = pixels(page, ".card canvas")
    assert alone[0, -1].tolist() == [252, 254, 164]  # inferno's last colour
    assert alone[-1, 0].tolist() == [0, 0, 3]  # and its first


def test_without_heatmaps_or_photos(visit: Open, tmp_path: Path) -> None:
    make_photos(tmp_path / "photos")
    make_store(tmp_path / "run.sqlite", tmp_path / "photos", heatmaps=False)
    (tmp_path / "photos" / "a.jpg").unlink()
    write_report(tmp_path / "run.sqlite", tmp_path / "report.html")
    page = visit(tmp_path / "report.html")
    assert page.locator("#photos .note").inner_text().startswith("1 photo was not found")
    choose(page, order="probable")
    page.locator(".card").nth(1).scroll_into_view_if_needed()
    page.wait_for_selector(".card:nth-child(2) img")
    assert page.locator(".card:first-child .photo").inner_text() == "photo not found"
    assert page.locator(".card:first-child .picture:visible").count() == 1  # the photo's place
    assert page.locator(".card:nth-child(2) dd:visible").all_inner_texts() == [
        "0.300", "0.700", "0.200", "0.800", "0.400", "0.700",
    ]  # fmt: skip


def test_only_cards_near_the_window_have_pictures(visit: Open, tmp_path: Path) -> None:
    make_photos(tmp_path / "photos")
    for at in range(12):  # questions, four cards each
        question = {**QUESTION, "weights": str(at)}
        make_store(tmp_path / "run.sqlite", tmp_path / "photos", question=question)
    write_report(tmp_path / "run.sqlite", tmp_path / "report.html")
    page = visit(tmp_path / "report.html", viewport={"width": 390, "height": 300})
    assert page.locator("#shown").inner_text() == "4 of 4 photos"
    choose(page, question="12")
    assert len(names(page)) == 4
    page.evaluate("document.getElementById('question').remove()")  # all of them at once
    choose(page, order="name")
    assert len(names(page)) == 48
    for near, far in (
        (".card:last-child", ".card:first-child"),
        (".card:first-child", ".card:last-child"),
    ):
        page.locator(near).scroll_into_view_if_needed()
        page.wait_for_selector(f"{near} canvas")
        page.wait_for_selector(f"{far} img", state="detached")
        assert page.locator(".card img").count() < 12


def test_nothing_that_was_given_is_run(visit: Open, report: Path) -> None:
    page = visit(report)
    assert page.title() == "Evaluation of efficientnet_lite0"
    assert page.locator("img[src=x], .card b b").count() == 0
    text = page.locator("main").text_content() or ""
    assert text.count(EVIL) >= 4  # a failure and its photo, a warning in its card and in the list
    assert text.count(EVIL.replace('"', r"\"")) >= 4  # three settings and the environment


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(visit: Open, report: Path, scheme: str) -> None:
    page = visit(report, color_scheme=scheme)
    colours = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    text, back = (sum(map(int, colour[4:-1].split(", "))) for colour in colours)
    assert (text < back) == (scheme == "light")
    assert abs(text - back) > 500  # of 765


@pytest.mark.parametrize("size", ["8rem", "14rem"])
def test_a_phone_needs_no_sideways_scrolling(visit: Open, report: Path, size: str) -> None:
    page = visit(report, viewport={"width": 390, "height": 844})
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    choose(page, tile=size)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_every_control_has_a_name(visit: Open, report: Path) -> None:
    page = visit(report)
    controls = page.locator("select, input, button, summary, [tabindex]")
    unnamed = controls.evaluate_all(
        "all => all.filter(one => !(one.labels?.length || one.textContent.trim() || "
        "one.ariaLabel)).map(one => one.outerHTML)"
    )
    assert unnamed == []
    pictures = page.locator("svg:not([aria-hidden]), .card canvas")
    assert pictures.count() >= 2 * 2 + 3 * 2
    assert pictures.evaluate_all("all => all.every(one => one.ariaLabel && one.role === 'img')")
    levels = page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(one => +one.tagName[1])")
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_screenshots(visit: Open, screenshots: Path, run: Run, tmp_path: Path) -> None:
    """The pictures of docs/report.md: the bundled network and scikit-image's free photos."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("astronaut", "chelsea", "coffee", "rocket"):
        Image.fromarray(getattr(skimage.data, name)()).save(photos / f"{name}.png")
    store, out = str(tmp_path / "run.sqlite"), tmp_path / "report.html"
    methods = "igos-two-sided,igos,gradcam,random"
    given = ("--methods", methods, "--resolutions", "28,7", "--device", "cpu", "--out", store)
    assert run("evaluate", str(photos), *given)[0] == 0
    write_report(Path(store), out)
    page = visit(out, viewport=WIDE)
    shot(page, screenshots / "report.png", whole=False)
    for name, size in (("report_photos.png", WIDE), ("report_phone.png", PHONE)):
        page.set_viewport_size(size)
        page.get_by_role("heading", name="Photos", exact=True).evaluate("e => e.scrollIntoView()")
        shot(page, screenshots / name, whole=False)
