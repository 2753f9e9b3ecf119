"""Which action answers which button, and what of the page its answer changes."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from inspect import isgeneratorfunction
from typing import Any

import gradio as gr

from igos.app import view
from igos.app.actions import Actions, Parts, Point
from igos.app.downloads import File
from igos.app.memory import give_back
from igos.app.work import Choice
from igos.errors import IgosError

# The opacity is the browser's work; downloads are made in memory and saved from there.
SET_OPACITY = "(v) => document.documentElement.style.setProperty('--igos-opacity', v / 100)"
WITH_NAME = "(file) => [file, (Array.isArray(file) ? file[0] : file)?.orig_name ?? '']"
STOPPING = f"() => {json.dumps(view.progress('Stopping, at its turn or the next pass', None))}"
LOOKING = f"() => {json.dumps(view.progress('Looking at the photo, at its turn', None))}"
SAVE = """(file) => {
  if (!file) return null;
  const bytes = Uint8Array.from(atob(file.content), (c) => c.charCodeAt(0));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], {type: file.kind}));
  link.download = file.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  return null;
}"""

# Whatever runs the model waits in one queue, pictures to take home in another; the rest is
# answered at once.
MODEL = {"concurrency_id": "model", "concurrency_limit": 1}
FILES = {"concurrency_id": "files", "concurrency_limit": 1}
AT_ONCE = {"queue": False}

# What a part of an action's answer changes where it is not the value of the component so named.
# `busy` is the bar of the run that keeps the page busy: only its own button stops it.
CHANGES: dict[str, dict[str, Callable[[str], Any]]] = {
    "busy": {
        "explain": lambda busy: gr.update(interactive=not busy),
        "compare": lambda busy: gr.update(interactive=not busy),
        "stop": lambda busy: gr.update(interactive=busy == "progress"),
        "stop_comparing": lambda busy: gr.update(interactive=busy == "comparing"),
    },
}
PHOTO = (
    "notice photo predictions target heat composed numbers progress comparing cards compare_command"
)
ANSWER = "notice busy progress heat composed numbers warnings curves command"
COMPARISON = "notice busy comparing cards compare_command"


def wire(page: gr.Blocks, actions: Actions, parts: dict[str, Any]) -> None:
    """Every button, slider and drop of the page."""
    question = [parts[name] for name in ("target", "resolution", "baseline", "seed")]
    point = [parts["kind"], parts["fraction"]]

    def on(
        event: Any, action: Callable[..., Any], inputs: list[Any], names: str, **how: Any
    ) -> Any:
        return event(
            _answering(action, parts),
            inputs,
            [parts[at] for name in names.split() for at in CHANGES.get(name, (name,))],
            show_progress="hidden",
            api_visibility="undocumented",
            **how,
        )

    def explain(key: str, method: str, *rest: Any) -> Iterator[Parts]:
        *chosen, kind, percent = rest
        yield from actions.explain(key, _choice(method, *chosen), Point(kind, percent / 100))

    def compare(key: str, methods: list[str], *chosen: Any) -> Iterator[Parts]:
        yield from actions.compare(key, _choice("", *chosen), methods)

    def drag(key: str, kind: str, percent: float) -> Parts:
        return actions.drag(key, Point(kind, percent / 100))

    file = [parts["file"], parts["name"]]
    upload, sample = parts["file"].upload, parts["sample"].click
    for event in (upload, sample):
        event(None, None, parts["notice"], js=LOOKING)
    how = {"js": WITH_NAME, "api_name": "upload", **MODEL}
    for look in (
        on(upload, actions.upload, file, f"{PHOTO} file", **how),
        on(sample, actions.sample, [], PHOTO, api_name="sample", **MODEL),
    ):
        on(look.failure, actions.not_looked_at, [], "notice", **AT_ONCE)
    for button, end, bar, action, inputs, names in (
        ("explain", "stop", "progress", explain, [parts["method"], *question, *point], ANSWER),
        (
            "compare",
            "stop_comparing",
            "comparing",
            compare,
            [parts["methods"], *question],
            COMPARISON,
        ),
    ):
        changed = f"busy notice {bar}"
        first = on(parts[button].click, partial(actions.wait, bar), [], changed, **AT_ONCE)
        run = on(first.then, action, inputs, names, api_name=button, **MODEL)
        on(run.failure, partial(actions.refused, bar), [], changed, **AT_ONCE)
        parts[end].click(None, None, parts[bar], js=STOPPING)
        on(parts[end].click, actions.stop, [], bar, **AT_ONCE)  # Gradio warns if nothing can change
    moved = partial(gr.on, [parts["fraction"].input, parts["kind"].input])
    how = {"trigger_mode": "always_last", "api_name": "drag", **AT_ONCE}
    on(moved, drag, point, "composed curves command", **how)
    parts["opacity"].input(None, parts["opacity"], None, js=SET_OPACITY)
    _wire_files(actions, parts, point)
    page.unload(_forget(page, actions))


def _wire_files(actions: Actions, parts: dict[str, Any], point: list[Any]) -> None:
    def save(button: str, make: Callable[..., File], inputs: list[Any]) -> None:
        def made(request: gr.Request, *given: Any) -> dict[str, str]:
            try:
                return make(_key(request), *given).message()
            except IgosError as error:
                raise gr.Error(str(error), print_exception=False) from error

        how = {"show_progress": "minimal", "api_visibility": "undocumented", **FILES}
        ready = parts[button].click(made, inputs, parts["saved"], **how)
        ready.success(None, parts["saved"], parts["saved"], js=SAVE)

    for suffix in ("png", "npy", "json"):

        def one(key: str, kind: str, percent: float, opacity: float, suffix: str = suffix) -> File:
            return actions.download(key, suffix, Point(kind, percent / 100), opacity / 100)

        save(suffix, one, [*point, parts["opacity"]])
    for suffix in ("png", "json"):

        def all_of_them(key: str, suffix: str = suffix) -> File:
            return actions.download_comparison(key, suffix)

        save(f"all_{suffix}", all_of_them, [])


def _answering(action: Callable[..., Any], parts: dict[str, Any]) -> Callable[..., Any]:
    """The action as Gradio calls it: with the request first, answered with updates."""

    def updates(changed: Parts) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for name, value in changed.items():
            changes = CHANGES.get(name, {name: lambda value: value})
            found |= {parts[at]: change(value) for at, change in changes.items()}
        return found

    def answer(request: gr.Request, *given: Any) -> Any:
        return updates(action(_key(request), *given)) or gr.skip()

    def answers(request: gr.Request, *given: Any) -> Iterator[Any]:
        for changed in action(_key(request), *given):
            yield updates(changed)

    return answers if isgeneratorfunction(action) else answer


def _choice(method: str, target: int | None, resolution: int, baseline: str, seed: Any) -> Choice:
    return Choice(
        target=-1 if target is None else int(target),
        method=method,
        resolution=int(resolution),
        baseline=baseline,
        seed=int(seed or 0),
    )


def _key(request: gr.Request) -> str:
    return request.session_hash or ""


def _forget(page: gr.Blocks, actions: Actions) -> Callable[[gr.Request], None]:
    def forget(request: gr.Request) -> None:
        actions.sessions.forget(_key(request))
        # Gradio keeps what the page showed, photo and all; it has no public way to forget it
        holder = getattr(page, "state_holder", None)
        for name in ("session_data", "time_last_used"):
            getattr(holder, name, {}).pop(_key(request), None)
        give_back()

    return forget
