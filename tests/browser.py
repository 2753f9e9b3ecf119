"""A headless Chromium for tests of pages; without one they are skipped, and say so."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Route

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


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
