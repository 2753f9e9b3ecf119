"""The page on a socket."""

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
from starlette.routing import Mount

from igos.answer import classified, device_of
from igos.app.actions import Actions
from igos.app.guard import Guard, is_loopback
from igos.app.page import build
from igos.app.sessions import Sessions
from igos.app.work import Worker
from igos.errors import IgosError
from igos.models.classifier import Classifier

MAX_UPLOAD = 50 * 2**20  # bytes
STYLE = Path(__file__).with_name("style.css")


@dataclass(frozen=True)
class Guarded:
    """Whether only this machine may ask, who may, and where what they send is kept."""

    uploads: Path
    local: bool = True
    auth: Callable[[str, str], bool] | None = None


def listen(host: str, port: int) -> socket.socket:
    """A socket on that address; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise IgosError(f"port {port}: give one from 0 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except UnicodeError as error:
        raise IgosError(f"host {host!r}: not a host's name; give another --host") from error
    except OSError as error:
        raise IgosError(
            f"{host} port {port}: cannot be opened ({error.strerror}); give another --port or "
            "--host"
        ) from error


def make_app(actions: Actions, classes: int, size: tuple[int, int], guard: Guarded) -> FastAPI:
    """The page as an ASGI application that serves only what it made itself."""
    page = build(actions, classes, size)
    page.has_launched = True  # else Gradio does not ask whether a file was sent to it
    page.state_session_capacity = actions.sessions.most  # of what Gradio itself remembers
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, local=guard.local, most=MAX_UPLOAD, uploads=guard.uploads)
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


class Server(uvicorn.Server):
    """One that says goodbye to open pages before it waits for them to go.

    The page is made within its event loop: Gradio would leave others behind.
    """

    def __init__(self, make: Callable[[], FastAPI]) -> None:
        self._make = make
        super().__init__(
            uvicorn.Config(
                self._made, factory=True, log_level="warning", timeout_graceful_shutdown=2
            )
        )

    def _made(self) -> FastAPI:
        self._app = self._make()
        return self._app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for route in self._app.routes:
            if isinstance(route, Mount) and isinstance(route.app, gr.routes.App):
                route.app.stop_event.set()
        await super().shutdown(sockets)


@contextmanager
def _uploads_in(folder: str) -> Iterator[None]:
    """Where Gradio keeps what is sent until it is read; only its environment says so."""
    before = os.environ.get("GRADIO_TEMP_DIR")
    os.environ["GRADIO_TEMP_DIR"] = folder
    try:
        yield
    finally:
        del os.environ["GRADIO_TEMP_DIR"]
        if before is not None:
            os.environ["GRADIO_TEMP_DIR"] = before


@contextmanager
def serving(
    classifier: Classifier,
    opened: socket.socket,
    *,
    options: Mapping[str, str],
    auth: Callable[[str, str], bool] | None = None,
) -> Iterator[tuple[uvicorn.Server, Actions]]:
    """A server that is ready to run; what it kept, in memory and on disk, is gone afterwards."""
    example = classifier.example()[None].to(device_of(classifier))
    classes, size = classified(classifier, example).shape[1], (example.shape[-2], example.shape[-1])
    sessions = Sessions()
    with tempfile.TemporaryDirectory(prefix="igos-") as folder, _uploads_in(folder):
        actions = Actions(Worker(classifier), sessions, options)
        guard = Guarded(Path(folder), is_loopback(opened.getsockname()[0]), auth)
        try:
            yield Server(partial(make_app, actions, classes, size, guard)), actions
        finally:
            sessions.close()
            actions.worker.close()
