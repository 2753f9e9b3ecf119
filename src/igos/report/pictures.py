"""Photos and heatmaps, small enough that hundreds of them fit into a page."""

import base64
import hashlib
import io
import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from igos.data import decode, quiet, read_content
from igos.errors import IgosError
from igos.explanation import warmth
from igos.models.view import View
from igos.report.gather import Card, Configuration, Run
from igos.study.result import unpack

SIDE = 224  # px of a photo in the page
QUALITY = 70  # of its JPEG: about 10 kB
SIDES = (112, 56, 28, 14)  # px that a heatmap may have; finer ones are averaged
HEAT_BYTES = 16_000_000  # of all heatmaps together

Heat = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class Picture:
    """A photo for the page."""

    jpeg: bytes
    fits: bool  # it is what the network saw, so a heatmap can be laid over it
    trouble: str = ""  # why it is not, though the network's view is known


def places(store: Path, runs: Sequence[Run], given: Path | None) -> list[Path]:
    """Folders that photos' names may start from, the likeliest first."""
    if given is not None:
        if not os.path.exists(given):
            raise IgosError(f"photos {str(given)!r}: no such file or folder")
        sources = [given]
    else:
        named = [
            Path(str(run.arguments["photos"]))
            for run in reversed(runs)
            if "photos" in run.arguments
        ]
        sources = [place for path in named for place in (path, store.parent / path)]
    return list(dict.fromkeys(one if os.path.isdir(one) else one.parent for one in sources))


def picture(card: Card, folders: Iterable[Path], view: View | None) -> Picture | None:
    """The card's photo from the first folder that has it, unchanged."""
    for folder in folders:
        try:
            content = read_content(folder / card.name)
        except IgosError:
            continue  # not there; another folder may have it
        if hashlib.sha256(content).hexdigest() == card.sha256:
            with quiet():
                photo = decode(card.name, content)
            return _seen(photo, view)
    return None


def _seen(photo: Image.Image, view: View | None) -> Picture:
    """As the network saw it; whole where that is not known or fails."""
    if view is None:
        return Picture(_jpeg(photo), fits=False)
    try:
        return Picture(_jpeg(view.seen(photo)), fits=True)
    except IgosError as error:  # the model's code; the other photos may pass it
        return Picture(_jpeg(photo), fits=False, trouble=str(error))


def _jpeg(photo: Image.Image) -> bytes:
    photo.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    photo.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()


def finest(configurations: Sequence[Configuration], photos: set[int]) -> int:
    """The longest side of heatmaps at which all of these photos' fit into `HEAT_BYTES`."""
    for side in SIDES:
        total = sum(
            min(side, one.row.resolution[0])
            * min(side, one.row.resolution[1])
            * sum(answer.heatmap for photo, answer in one.answers.items() if photo in photos)
            for one in configurations
        )
        if total <= HEAT_BYTES:
            break
    return side


def heat(db: sqlite3.Connection, configuration: Configuration, photo: int, side: int) -> Heat:
    """How hot a heatmap of the store is drawn, in 0 to 255, no finer than `side`."""
    (blob,) = db.execute(
        "SELECT heatmap FROM results WHERE configuration = ? AND photo = ?",
        (configuration.number, photo),
    ).fetchone()
    return scaled(unpack(blob, configuration.row.resolution), side)


def scaled(heatmap: np.ndarray[Any, Any], side: int) -> Heat:
    height, width = heatmap.shape
    if max(height, width) > side:
        size = (min(side, width), min(side, height))
        heatmap = np.asarray(Image.fromarray(heatmap).resize(size, Image.Resampling.BOX))
    return np.asarray((255 * warmth(heatmap)).round(), np.uint8)


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()
