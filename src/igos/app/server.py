"""The page on a socket: who may ask for what, and nothing that leads outside."""

import hmac
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gradio as gr
import uvicorn
from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from igos.answer import classified, device_of
from igos.app.actions import Actions
from igos.app.page import build
from igos.app.sessions import Sessions
from igos.app.work import Worker
from igos.errors import IgosError
from igos.models.classifier import Classifier

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_UPLOAD = "50mb"
STYLE = Path(__file__).with_name("style.css")
HEADERS = {
    # Gradio's own scripts are inline and make functions from text; nothing may come from outside.
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline' "
    "'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' "
    "data:; connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@dataclass(frozen=True)
class Guarded:
    """Whether only this machine may ask, and who may."""

    local: bool = True
    auth: Callable[[str, str], bool] | None = None


class Guard:
    """Headers that keep the page to itself; on loopback, only requests meant for loopback.

    The latter is against sites whose name is made to lead to this machine (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, local: bool) -> None:
        self.app, self.local = app, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.local and _host_name(Headers(scope=scope).get("host", "")) not in LOOPBACK:
            await PlainTextResponse("not this host", 421)(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, with_headers)


def _host_name(host: str) -> str:
    """
    >>> _host_name("127.0.0.1:7860"), _host_name("[::1]:7860"), _host_name("localhost")
    ('127.0.0.1', '::1', 'localhost')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def listen(host: str, port: int) -> socket.socket:
    """A socket on that address; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise IgosError(f"port {port}: give one from 0 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise IgosError(
            f"{host} port {port}: cannot be opened ({error.strerror}); give another --port or "
            "--host"
        ) from error


def read_auth(text: str) -> Callable[[str, str], bool]:
    """USER:PASSWORD-FILE -> whether a name and a password are these."""
    user, colon, path = text.partition(":")
    if not (user and colon and path):
        raise IgosError(f"auth {text!r}: give USER:PASSWORD-FILE")
    try:
        password = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise IgosError(f"auth {text!r}: the password file is not readable ({error})") from error
    if not password:
        raise IgosError(f"auth {text!r}: the password file is empty; write the password in it")

    def allowed(name: str, word: str) -> bool:
        known = hmac.compare_digest(name.encode(), user.encode())
        right = hmac.compare_digest(word.encode(), password.encode())
        return known and right

    return allowed


def make_app(actions: Actions, classes: int, size: tuple[int, int], guard: Guarded) -> FastAPI:
    """The page as an ASGI application that serves only what it made itself."""
    page = build(actions, classes, size)
    page.state_session_capacity = 4 * actions.sessions.most  # Gradio's own state, without images
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, local=guard.local)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        footer_links=[],
        run_history=False,
        app_kwargs={"openapi_url": None},
        auth=guard.auth,
        allowed_paths=[],
        show_error=False,
        max_file_size=MAX_UPLOAD,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=_theme(),
        css=STYLE.read_text(encoding="utf-8"),
    )
    return app


def _theme() -> gr.themes.Base:
    """Gradio's plain theme with the system's fonts: none is fetched."""
    theme = gr.themes.Base(
        primary_hue=gr.themes.colors.orange,
        neutral_hue=gr.themes.colors.zinc,
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )
    return theme.set(
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover_dark="*primary_600",
        button_primary_text_color="white",
        checkbox_label_background_fill="*background_fill_primary",
        checkbox_label_background_fill_dark="*background_fill_primary",
        checkbox_label_border_color="*border_color_primary",
        checkbox_label_border_width="1px",
        checkbox_label_background_fill_selected="*primary_50",
        checkbox_label_background_fill_selected_dark="*neutral_700",
        checkbox_label_border_color_dark="*border_color_primary",
        checkbox_label_border_width_dark="1px",
        checkbox_label_border_color_selected_dark="*primary_500",
        checkbox_label_border_color_selected="*primary_600",
        checkbox_background_color_selected="*primary_700",
        checkbox_border_color_selected="*primary_700",
        slider_color="*primary_600",
        block_info_text_color="*neutral_500",
        block_info_text_color_dark="*neutral_400",
    )


@contextmanager
def serving(
    classifier: Classifier,
    opened: socket.socket,
    *,
    options: Mapping[str, str],
    auth: Callable[[str, str], bool] | None = None,
) -> Iterator[tuple[uvicorn.Server, Actions]]:
    """A server that is ready to run; what it kept, in memory and on disk, is gone afterwards."""
    guard = Guarded(opened.getsockname()[0] in LOOPBACK, auth)
    example = classifier.example()[None].to(device_of(classifier))
    classes, size = classified(classifier, example).shape[1], (example.shape[-2], example.shape[-1])
    sessions = Sessions()
    with tempfile.TemporaryDirectory(prefix="igos-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder  # uploads, until they are read
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        actions = Actions(Worker(classifier), sessions, options)
        # Made within the server's event loop: Gradio would leave others behind.
        app = partial(make_app, actions, classes, size, guard)
        config = uvicorn.Config(app, factory=True, log_level="warning", timeout_graceful_shutdown=1)
        try:
            yield uvicorn.Server(config), actions
        finally:
            sessions.close()
