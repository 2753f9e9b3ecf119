"""What each button does: from what was chosen to what the page then shows, without Gradio.

An action returns, or yields while it runs, the parts of the page that change, by name.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

from igos.app import view
from igos.app.curves import curve_of, draw, nearest
from igos.app.downloads import (
    File,
    compare_command,
    comparison_file,
    explain_command,
    file_of,
)
from igos.app.sessions import Sessions
from igos.app.work import Answered, Choice, Frame, Question, StoppedError, Worker
from igos.data import SAMPLE
from igos.errors import IgosError, first_line

log = logging.getLogger(__name__)

Parts = dict[str, Any]

MOST_METHODS = 8  # of a comparison: what a session keeps has to end somewhere
REFUSED = "The server did not take this; perhaps too many are waiting. Please try again."
NOT_BEGUN = view.notice("Stopped before it began.", "status")
NOT_TESTED = "The heatmap so far is not tested."
NOTHING: Parts = {"numbers": "", "heat": view.NO_HEAT, "composed": view.NO_TEST}


@dataclass(frozen=True)
class Point:
    """Where the slider stands."""

    kind: str  # deletion or insertion
    fraction: float

    def of(self, answered: Answered) -> int:
        return nearest(curve_of(answered.explanation, self.kind), self.fraction)


@dataclass(frozen=True, eq=False)
class Actions:
    """`options` are those of the command line that the server was started with."""

    worker: Worker
    sessions: Sessions
    options: Mapping[str, str]

    def upload(self, key: str, path: str, name: str) -> Parts:
        """A file that was sent; Gradio deletes it, later, as others may have sent the same one."""
        name = Path(name or path).name
        found = self._look(key, path, f"./{name}" if name == SAMPLE else name)
        return {**found, "file": None}  # the place is free for the next one

    def sample(self, key: str) -> Parts:
        return self._look(key, SAMPLE, SAMPLE)

    def _look(self, key: str, path: str, name: str) -> Parts:
        session = self.sessions.of(key)
        session.ask(None)
        gone = {**NOTHING, "compare_command": "", "comparing": "", "cards": "", "progress": ""}
        try:
            question = self.worker.look(path, name)
        except Exception as error:
            text = _words(error).replace(repr(path), repr(name))
            shown = {"photo": view.NO_PHOTO, "predictions": "", "target": None}
            return {**gone, **shown, "notice": view.notice(text)}
        session.ask(question)
        return {
            **gone,
            "notice": "",
            "photo": view.photo(question, self.worker.classifier),
            "predictions": view.predictions(question, self.worker.classifier),
            "target": int(question.probabilities.argmax()),
        }

    def wait(self, bar: str, key: str) -> Parts:
        """Before a run has its turn; `bar` is where its progress is shown."""
        self.sessions.of(key).wait()
        return {"busy": bar, "notice": "", bar: view.progress("Waiting for its turn", None)}

    def stop(self, key: str) -> Parts:
        """The run says itself, at its turn at the latest, that it has ended: voices have no order.

        Until then the page is busy, so no other run can come before the one that waits.
        """
        self.sessions.of(key).stop.set()
        return {}

    def refused(self, bar: str, _: str) -> Parts:
        """A run that Gradio did not let into the queue."""
        return {"busy": "", bar: "", "notice": view.notice(REFUSED)}

    def not_looked_at(self, _: str) -> Parts:
        """Likewise, a photo."""
        return {"notice": view.notice(REFUSED)}

    def explain(self, key: str, choice: Choice, point: Point) -> Iterator[Parts]:
        """The heatmap as it grows, then the answer."""
        session = self.sessions.of(key)
        stop, frame = session.stop, None
        if stop.is_set():
            yield {"progress": NOT_BEGUN, "busy": ""}
            return
        try:
            question = session.asked()
            session.shown = None  # as on the page, whatever becomes of this run
            yield {**NOTHING, "progress": view.progress(f"{choice.method} at work", None)}
            for item in self.worker.explain(question, choice, stop):
                if isinstance(item, Answered):
                    session.shown = item
                    yield self._answer(item, point)
                else:
                    frame = item
                    yield self._growing(question, choice.method, frame)
        except StoppedError:
            words = (
                f"Stopped after iteration {frame.iteration}. {NOT_TESTED}" if frame else "Stopped."
            )
            yield {"progress": view.notice(words, "status"), "busy": ""}
        except Exception as error:
            yield {"progress": "", "notice": view.notice(_words(error)), "busy": ""}

    def _growing(self, question: Question, method: str, frame: Frame) -> Parts:
        image = self.worker.classifier.normalisation.pixels(question.image).clamp(0, 1)
        return {
            "progress": view.progress(method, frame),
            "heat": view.heat_at(image, method, frame),
        }

    def _answer(self, answered: Answered, point: Point) -> Parts:
        found = answered.explanation
        return {
            "progress": "",
            "busy": "",
            "heat": view.answer_heat(found),
            "numbers": view.numbers(found),
            "warnings": view.warnings(found),
            **self._at(answered, point),
        }

    def drag(self, key: str, point: Point) -> Parts:
        """What the slider shows: from what was computed, without the model."""
        shown = self.sessions.of(key).shown
        return {} if shown is None else self._at(shown, point)

    def _at(self, answered: Answered, point: Point) -> Parts:
        at = point.of(answered)
        found = answered.explanation
        ratio = float(curve_of(found, point.kind).fraction[at])
        return {
            "composed": view.composed(found, point.kind, at),
            "curves": draw(found, point.kind, at),
            "command": view.command(explain_command(answered, ratio=ratio, options=self.options)),
        }

    def compare(self, key: str, choice: Choice, methods: Sequence[str]) -> Iterator[Parts]:
        """A card a method, as they come."""
        session = self.sessions.of(key)
        stop = session.stop
        cards: list[str] = []
        answers: list[Answered] = []
        if stop.is_set():
            yield {"comparing": NOT_BEGUN, "busy": ""}
            return
        try:
            question = session.asked()
            _check_methods(methods)
            session.compared = ()
            yield {"compare_command": ""}
            for at, method in enumerate(methods, start=1):
                title = f"{method} ({at} of {len(methods)})"
                asked = replace(choice, method=method)
                for card, frame in self._card(question, asked, stop, answers):
                    yield {
                        "comparing": view.progress(title, frame),
                        "cards": view.cards([*cards, card]),
                    }
                cards.append(card)
            session.compared = tuple(answers)
            command = view.command(compare_command(answers, self.options)) if answers else ""
            yield {"comparing": "", "compare_command": command}
        except StoppedError:
            words = f"Stopped after {len(cards)} of {len(methods)} methods."
            yield {"comparing": view.notice(words, "status"), "cards": view.cards(cards)}
        except Exception as error:
            yield {"comparing": "", "notice": view.notice(_words(error))}
        yield {"busy": ""}

    def _card(
        self, question: Question, choice: Choice, stop: Event, answers: list[Answered]
    ) -> Iterator[tuple[str, Frame | None]]:
        """A method's card as it changes; the answer is added to `answers`."""
        classifier = self.worker.classifier
        yield view.growing(question, classifier, choice.method, None), None
        try:
            for item in self.worker.explain(question, choice, stop):
                if isinstance(item, Answered):
                    answers.append(item)
                    yield view.card(item), None
                else:
                    yield view.growing(question, classifier, choice.method, item), item
        except StoppedError:
            raise
        except IgosError as error:  # this method cannot; the others may
            yield view.refused(choice.method, str(error)), None

    def download(self, key: str, suffix: str, point: Point, opacity: float) -> File:
        shown = self.sessions.of(key).answer()
        curve = curve_of(shown.explanation, point.kind)
        ratio = float(curve.fraction[point.of(shown)])
        return file_of(shown.explanation, suffix, ratio=ratio, opacity=opacity)

    def download_comparison(self, key: str, suffix: str) -> File:
        compared = self.sessions.of(key).compared
        if not compared:
            raise IgosError("nothing to show yet: press Compare")
        return comparison_file([answered.explanation for answered in compared], suffix)


def _check_methods(methods: Sequence[str]) -> None:
    if not 0 < len(methods) <= MOST_METHODS:
        raise IgosError(f"{len(methods)} methods: tick 1 to {MOST_METHODS}")


def _words(error: Exception) -> str:
    """A mistake in its own words; anything else is also logged, for it should not have been."""
    if isinstance(error, IgosError):
        return str(error)
    log.error("a request failed", exc_info=error)
    return f"This did not work ({first_line(error)}). The server goes on; please try again."
