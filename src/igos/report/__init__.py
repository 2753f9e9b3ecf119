"""An evaluation as one HTML file: tables, curves, and a gallery of photos and heatmaps."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from igos.errors import IgosError
from igos.files import prepare_folder, write
from igos.models.sources import from_file
from igos.models.view import UNPREPARED, View, unprepared, view
from igos.report.gather import Card, Gathered, gather
from igos.report.page import Shown, page
from igos.report.pictures import Heat, finest, heat, picture, places
from igos.study.schema import reading


def write_report(
    store: Path,
    out: Path,
    *,
    photos: Path | None = None,
    model: str | None = None,
    limit: int = 500,
    against: str | None = None,
    min_probability: float = 0.0,
) -> list[str]:
    """Write the report of a store; returns what a reader will miss in it.

    Photos are read where the runs had them, or from `photos`. `model` names a network whose
    preprocessing may be used where the store's own is not known without running its code.
    """
    if os.path.isdir(out):
        raise IgosError(f"out {str(out)!r}: a folder; give a file such as report.html")
    if os.path.exists(out) and os.path.exists(store) and out.samefile(store):
        raise IgosError(f"out {str(out)!r}: that is the store; give another file")
    prepare_folder(out.parent)
    data = gather(store, against=against, min_probability=min_probability)
    views, notes = _views(data, model)
    folders = places(store, data.runs, photos)
    wanted = set(sorted({card.photo for card in data.cards})[:limit])
    cards = [card for card in data.cards if card.photo in wanted]
    side = finest(data.configurations, wanted)
    with reading(store) as db:
        shown = [
            _shown(card, views[card.question], folders, _heats(db, data, card, side))
            for card in cards
        ]
    if len(wanted) < data.photos:
        notes.append(f"The gallery has {len(wanted):,} of {data.photos:,} photos (--limit).")
    if missing := len({one.card.photo for one in shown if one.picture is None}):
        were = "photo was not found, or has" if missing == 1 else "photos were not found, or have"
        notes.append(f"{missing:,} {were} changed (--photos).")
    notes += _whole(shown)
    from igos.plot import colours

    content = b"".join(page(data, shown, colours=colours(), notes=notes))
    write(out.parent, out.name, {"": content})
    return notes


def _views(data: Gathered, model: str | None) -> tuple[dict[int, View | None], list[str]]:
    """Each question's view of photos, and what is missing."""
    given = None if model is None else _given(model)
    views: dict[int, View | None] = {}
    notes = []
    for number, question in data.questions.items():
        try:
            views[number] = view(question["model"])
        except IgosError as error:
            made = question["model"].endswith(UNPREPARED)
            views[number] = unprepared(given) if given and made else given
            if given is None:
                notes.append(f"Photos are whole, beside their heatmaps: {error} (--model).")
    return views, list(dict.fromkeys(notes))


def _whole(shown: Sequence[Shown]) -> list[str]:
    """What to say of photos on which the model's preprocessing failed."""
    troubles = {
        one.card.photo: f"{one.card.name}: {one.picture.trouble}"
        for one in shown
        if one.picture is not None and one.picture.trouble
    }
    if not troubles:
        return []
    are = "photo is whole, beside its" if len(troubles) == 1 else "photos are whole, beside their"
    return [f"{len(troubles):,} {are} heatmaps: {next(iter(troubles.values()))}."]


def _given(model: str) -> View:
    if ".py:" not in model:
        return view(model)
    own = from_file(model, None)
    return View(own.preprocess, own.normalisation, own.class_names)


def _heats(db: sqlite3.Connection, data: Gathered, card: Card, side: int) -> dict[int, Heat]:
    return {
        one.number: heat(db, one, card.photo, side)
        for one in data.of(card.question)
        if card.photo in one.answers and one.answers[card.photo].heatmap
    }


def _shown(card: Card, seen: View | None, folders: list[Path], heats: dict[int, Heat]) -> Shown:
    def name(index: int) -> str:
        known = () if seen is None else seen.class_names
        return known[index] if index < len(known) else f"class {index}"

    return Shown(
        card=card,
        target=name(card.prediction.target),
        predicted=name(card.prediction.predicted),
        picture=picture(card, folders, seen),
        heats=heats,
    )
