"""One HTML file that asks for nothing outside it."""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from igos.report import sections
from igos.report.gather import Card, Gathered, kind
from igos.report.pictures import Heat, Picture, text


@dataclass(frozen=True, eq=False)
class Shown:
    """A card of the gallery with its pictures."""

    card: Card
    target: str  # the class explained, by name
    predicted: str
    picture: Picture | None
    heats: dict[int, Heat]  # by configuration


def page(
    data: Gathered, gallery: Sequence[Shown], *, colours: Sequence[str], notes: Sequence[str]
) -> Iterator[bytes]:
    """The file in pieces; `colours` are those of heatmaps, from cold to hot."""
    names = dict.fromkeys(one.label for one in data.configurations)
    looks = {label: at for at, label in enumerate(names)}
    style, program = (_resource(f"report.{kind}") for kind in ("css", "js"))
    title = f"Evaluation of {', '.join(dict.fromkeys(_models(data)))}"
    sections_ = {
        "Results": sections.results(data, looks),
        "Photos": _gallery(data, gallery, notes),
        "Failures and warnings": sections.troubles(data),
        "Settings": sections.settings(data),
    }
    body = "".join(
        f'<section id="{_anchor(name)}"><h2>{name}</h2>{content}</section>'
        for name, content in sections_.items()
    )
    links = "".join(f'<a href="#{_anchor(name)}">{name}</a>' for name in sections_)
    yield (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, program)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<a class="skip" href="#photos">Skip to the photos</a><header><h1>{escape(title)}</h1>'
        f'<p class="summary">{_summary(data)}</p><nav aria-label=Sections>{links}</nav></header>'
        f"<main>{body}</main>{_json('data', _data(data, gallery, colours))}"
    ).encode(errors="replace")
    holders = _holders(gallery)
    for at, shown in enumerate(gallery):
        yield _json(f"pictures-{at}", _pictures(at, shown, holders)).encode(errors="replace")
    yield f"<script>{program}</script></body></html>\n".encode()


def _resource(name: str) -> str:
    return files("igos.report").joinpath(name).read_text("utf-8")


def _policy(style: str, program: str) -> str:
    """Nothing is loaded, and no script or style counts but these two, whatever names contain."""
    hashes = (
        base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        for content in (style, program)
    )
    own_style, own_program = (f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; img-src data:; style-src {own_style}; script-src {own_program}; "
        "base-uri 'none'; form-action 'none'"
    )


def _models(data: Gathered) -> list[str]:
    return [str(question["model"]) for question in data.questions.values()]


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _summary(data: Gathered) -> str:
    """How much there is, in a line."""
    methods = len({one.row.method for one in data.configurations})
    heatmaps = sum(len(one.answers) for one in data.configurations)
    counts = [
        (data.photos, "photo", "photos"),
        (methods, "method", "methods"),
        (heatmaps, "heatmap", "heatmaps"),
        (len(data.failures), "failure", "failures"),
        (data.warned, "photo with warnings", "photos with warnings"),
    ]
    told = [f"<b>{count:,}</b> {one if count == 1 else more}" for count, one, more in counts]
    if data.min_probability:
        told.append(f"probability at least <b>{data.min_probability:g}</b>")
    told += [escape(run.started.partition("T")[0]) for run in data.runs[-1:]]
    return "".join(f"<span>{one}</span>" for one in told)


def _gallery(data: Gathered, gallery: Sequence[Shown], notes: Sequence[str]) -> str:
    """The controls; the cards are made by the page's program."""
    questions = [(str(n), sections.name_of(one)) for n, one in data.questions.items()]
    own = data.configurations
    methods = dict.fromkeys(one.label for one in own)
    sizes = dict.fromkeys(one.size for n in data.questions for one in data.of(n))
    kinds = sorted({kind(text) for shown in gallery for text in shown.card.warnings})
    controls = [
        _select("question", "Question", questions) if len(questions) > 1 else "",
        _select("order", "Order", ORDERS),
        _select("method", "Method", [("", "all"), *((one, one) for one in methods)]),
        _select("size", "Resolution", [("", "all"), *((one, one) for one in sizes)]),
        SEARCH,
        _select("warnings", "Warnings", [*WARNINGS, *((f"={one}", one) for one in kinds)]),
        _select("layer", "Show", LAYERS),
        _select("tile", "Pictures", TILES),
    ]
    told = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    return (
        f"{told}<noscript><p class=note>The gallery needs JavaScript.</p></noscript>"
        f'<form class="controls" id="controls">{"".join(controls)}</form>'
        '<p id="shown" role="status"></p><div id="gallery"></div>'
    )


SEARCH = (
    '<label for="text">Photo or class<input id="text" type="search" autocomplete="off"></label>'
)
ORDERS = [
    ("best", "best first"),
    ("worst", "worst first"),
    ("disputed", "most disputed first"),
    ("probable", "most probable first"),
    ("name", "by name"),
]
WARNINGS = [("", "with and without"), ("with", "with"), ("without", "without")]
TILES = [("8rem", "small"), ("14rem", "large")]
LAYERS = [("over", "heatmaps on photos"), ("alone", "heatmaps alone")]


def _select(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    inner = "".join(
        f'<option value="{escape(value)}">{escape(shown)}</option>' for value, shown in options
    )
    return f'<label for="{name}">{label}<select id="{name}">{inner}</select></label>'


def _data(data: Gathered, gallery: Sequence[Shown], colours: Sequence[str]) -> dict[str, Any]:
    """What the page's program needs to know."""
    return {
        "colours": "".join(colours),
        "configurations": {
            one.number: {
                "question": one.question,
                "method": one.label,
                "size": one.size,
            }
            for one in data.configurations
        },
        "cards": [_card(data, shown) for shown in gallery],
    }


def _card(data: Gathered, shown: Shown) -> dict[str, Any]:
    card = shown.card
    return {
        "question": card.question,
        "name": card.name,
        "target": shown.target,
        "probability": card.prediction.probability,
        "predicted": shown.predicted,
        "predicted_probability": card.prediction.predicted_probability,
        "warnings": card.warnings,
        "kinds": [kind(warning) for warning in card.warnings],
        "results": [
            [one.number, one.answers[card.photo].deletion, one.answers[card.photo].insertion]
            for one in data.of(card.question)
            if card.photo in one.answers
        ],
    }


def _holders(gallery: Sequence[Shown]) -> dict[bytes, int]:
    """The first card with each photo; the other questions' need not carry it again."""
    holders: dict[bytes, int] = {}
    for at, shown in enumerate(gallery):
        if shown.picture is not None:
            holders.setdefault(shown.picture.jpeg, at)
    return holders


def _pictures(at: int, shown: Shown, holders: dict[bytes, int]) -> dict[str, Any]:
    """A card's photo, or the number of the card that has it, and its heatmaps."""
    picture = shown.picture
    photo: str | int | None = None
    if picture is not None:
        holder = holders[picture.jpeg]
        photo = f"data:image/jpeg;base64,{text(picture.jpeg)}" if holder == at else holder
    return {
        "photo": photo,
        "fits": bool(picture and picture.fits),
        "heats": {
            number: [*heat.shape, text(heat.tobytes())] for number, heat in shown.heats.items()
        },
    }


def _json(name: str, values: dict[str, Any]) -> str:
    """Data in the page; no text in it can end the element."""
    content = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    content = content.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{content}</script>'
