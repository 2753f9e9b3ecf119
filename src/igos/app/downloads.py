"""What can be taken home: files of exactly what is shown, and the command that makes them again."""

import base64
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from igos.app.work import Answered
from igos.explanation import Explanation, comparison_json, comparison_png, comparison_stem


@dataclass(frozen=True)
class File:
    """A file made in memory; the browser saves it, so nothing of it lies on the server's disk."""

    name: str
    kind: str  # its MIME type
    content: bytes

    def message(self) -> dict[str, str]:
        return {
            "name": self.name,
            "kind": self.kind,
            "content": base64.b64encode(self.content).decode(),
        }


KINDS = {"png": "image/png", "npy": "application/octet-stream", "json": "application/json"}


def file_of(explanation: Explanation, suffix: str, *, ratio: float, opacity: float) -> File:
    """The picture, the native heatmap or the record, as `igos explain` writes them."""
    contents: dict[str, Callable[[], bytes]] = {
        "png": lambda: explanation.png(ratio=ratio, opacity=opacity),
        "npy": explanation.npy,
        "json": lambda: explanation.json(indent=2).encode(errors="replace"),
    }
    return File(f"{explanation.stem}.{suffix}", KINDS[suffix], contents[suffix]())


def comparison_file(explanations: Sequence[Explanation], suffix: str) -> File:
    """The picture of all methods, or their records, as `igos compare` writes them."""
    make = comparison_png if suffix == "png" else comparison_json
    return File(f"{comparison_stem(explanations)}.{suffix}", KINDS[suffix], make(explanations))


def explain_command(answered: Answered, *, ratio: float, options: Mapping[str, str]) -> str:
    """`igos explain …` for what is shown; `options` are those the server was started with."""
    native = "resolution" not in answered.explanation.settings
    chosen = {
        "--method": answered.choice.method,
        **_question(answered, options),
        "--ratio": f"{ratio:.4g}",
    }
    if native:
        del chosen["--resolution"]
    return _command("explain", answered.explanation.photo, chosen)


def compare_command(answers: Sequence[Answered], options: Mapping[str, str]) -> str:
    """`igos compare …` for what is shown."""
    methods = ",".join(answered.choice.method for answered in answers)
    chosen = {"--methods": methods, **_question(answers[0], options)}
    return _command("compare", answers[0].explanation.photo, chosen)


def _question(answered: Answered, options: Mapping[str, str]) -> dict[str, str]:
    choice, name = answered.choice, answered.explanation.class_name
    return {
        "--resolution": str(choice.resolution),
        # The command line takes a number for a class's name first, where names are numbers.
        "--target": name if name.isdecimal() else str(choice.target),
        "--baseline": choice.baseline,
        "--seed": str(choice.seed),
        **options,
    }


def _command(verb: str, photo: str, options: Mapping[str, str]) -> str:
    if photo.startswith("-"):
        photo = f"./{photo}"  # a name, not an option
    words = ["igos", verb, photo, *(word for option in options.items() for word in option)]
    return shlex.join(words)
