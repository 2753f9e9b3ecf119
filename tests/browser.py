"""A headless Chromium for tests of pages; without one they are skipped, and say so."""

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route, ViewportSize

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
WIDE: "ViewportSize" = {"width": 1280, "height": 900}
PHONE: "ViewportSize" = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def screenshots() -> Path:
    """Where pictures for the docs go: a folder of one's own, and only if one asks for them."""
    if "IGOS_SCREENSHOTS" not in os.environ:
        pytest.skip("IGOS_SCREENSHOTS is not set")
    return Path(os.environ["IGOS_SCREENSHOTS"])


def shot(page: "Page", path: Path, *, whole: bool = True) -> None:
    """The page, or what the window shows of it, in 256 colours: a third of the bytes."""
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)  # transitions end
    picture = Image.open(io.BytesIO(page.screenshot(full_page=whole))).convert("RGB")
    picture.quantize(palette=picture.quantize(256)).save(path, optimize=True)  # with dithering
    assert path.stat().st_size < 500_000


def outside(context: "BrowserContext") -> list[str]:
    """What the context's pages ask of other machines from now on; it is not let through."""
    asked: list[str] = []

    def elsewhere(url: str) -> bool:
        parts = urlsplit(url)
        return parts.scheme not in ("data", "blob", "file") and parts.hostname != "127.0.0.1"

    def refuse(route: "Route") -> None:
        asked.append(route.request.url)
        route.abort()

    context.route(elsewhere, refuse)
    return asked
