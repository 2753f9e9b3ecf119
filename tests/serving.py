"""The page of `igos serve` on a free port, in a thread of the test's process."""

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from igos.models import load

if TYPE_CHECKING:
    from igos.app.actions import Actions


@contextmanager
def running(model: str, **how: Any) -> Iterator[tuple[str, "Actions"]]:
    """Its address, and what it knows."""
    server = pytest.importorskip("igos.app.server", reason="gradio is not installed")
    classifier = load(model, device="cpu")
    options = {"--model": model}
    with (
        closing(server.listen("127.0.0.1", 0)) as opened,
        server.serving(classifier, opened, options=options, **how) as (serves, actions),
    ):
        thread = threading.Thread(target=serves.run, kwargs={"sockets": [opened]})
        thread.start()
        try:
            while not serves.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{opened.getsockname()[1]}", actions
        finally:
            serves.should_exit = True
            thread.join()


def held() -> set[str]:
    """The visitors of whom Gradio itself remembers something."""
    kind = pytest.importorskip("gradio.state_holder").StateHolder
    holders = [one for one in gc.get_objects() if type(one) is kind]
    return {key for one in holders for key in (*one.session_data, *one.time_last_used)}
