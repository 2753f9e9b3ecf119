"""`igos serve`: the web page."""

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stdout, suppress
from typing import Annotated

import typer

from igos.cli.options import Device, Model, Precision, Weights
from igos.errors import IgosError

NEEDED = ("gradio", "uvicorn", "starlette", "fastapi")  # all come with the extra


def serve(
    model: Model = "efficientnet_lite0",
    weights: Weights = None,
    device: Device = "auto",
    precision: Precision = "auto",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 is any free one.")] = 7860,
    auth: Annotated[
        str | None,
        typer.Option(
            metavar="USER:PASSWORD-FILE", help="Ask for this name and the password in the file."
        ),
    ] = None,
) -> None:
    """Open the web page: drop a photo, watch the heatmap grow, test it with a slider."""
    try:
        from igos.app import guard, memory, server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in NEEDED:
            raise
        raise IgosError("the web page needs Gradio: pip install 'igos[web]'") from error
    from igos.models import load

    allowed = None if auth is None else guard.read_auth(auth)
    if not guard.is_loopback(host):
        who = "everybody who can reach this machine" if auth is None else "whoever has the password"
        print(f"igos: warning: {host}: open to {who}, and not encrypted", file=sys.stderr)
    given = {"--weights": weights, "--device": device, "--precision": precision}
    options = {name: str(value) for name, value in given.items() if value not in (None, "auto")}
    options["--model"] = model
    with closing(server.listen(host, port)) as opened:  # before the model, which takes longer
        memory.share_one_heap()
        with redirect_stdout(sys.stderr):
            classifier = load(model, weights=weights, device=device, precision=precision)
        with server.serving(classifier, opened, options=options, auth=allowed) as (running, _):
            shown = f"[{host}]" if ":" in host else host
            print(f"http://{shown}:{opened.getsockname()[1]}  (Ctrl-C ends it)", flush=True)
            with _ended_by_signals():
                running.run(sockets=[opened])


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM are how a server ends; what it kept is cleaned up after either."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)
