"""A small study whose figures are known, and its report."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from igos.answer import Prediction
from igos.study.result import Failure, Result
from igos.study.store import Store
from test_store import RESULT

QUESTION = {
    "model": "efficientnet_lite0",  # its preprocessing needs no weights
    "weights": "00ff",
    "target": "predicted",
    "baseline": "blur",
    "score": "probability",
    "curves": "paper",
    "precision": "fp32",
}
EVIL = "<script>document.title='evil'</script><img src=x onerror=\"document.title='evil'\">"
NAMES = ("a.jpg", "b.jpg", "c.jpg", "<b>&amp;.jpg")
PROBABILITIES = (0.9, 0.5, 0.7, 0.3)
# (deletion, insertion) by photo.
FIGURES = {
    ("igos", 28): [(0.1, 0.6), (0.2, 0.8), (0.3, 0.7), (0.2, 0.3)],
    ("mask", 28): [(0.3, 0.5), (0.2, 0.9), (0.2, 0.8)],
    ("igos", 7): [(0.2, 0.5), (0.2, 0.9), (0.4, 0.7), (0.1, 0.3)],
}
CORNER = np.zeros((7, 7), np.float32)
CORNER[:3, 4:] = 1  # the top right is hot


def make_photos(folder: Path, names: Sequence[str] = NAMES) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in names:
        pixels = np.kron(rng.integers(0, 255, (4, 5, 3)), np.ones((60, 60, 1))).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)


def make_store(
    path: Path,
    photos: Path,
    *,
    names: Sequence[str] = NAMES,
    question: dict[str, str] = QUESTION,
    heatmaps: bool = True,
) -> None:
    """Photo number n is class n; the last has a warning that another class is predicted."""
    with Store(path) as store:
        store.begin(
            started="2026-01-02T03:04:05+00:00",
            arguments={"photos": str(photos), "methods": {"igos": {}}, "resolutions": "28,7"},
            environment={"igos": "0.1.0", "device": EVIL},
        )
        number = store.question(question)
        ids = [
            store.photo(name, hashlib.sha256((photos / name).read_bytes()).hexdigest())
            for name in names
        ]
        store.add_predictions(
            number,
            {
                one: Prediction(at, p, at if at < 3 else 0, 0.6 if at == 3 else p)
                for at, (one, p) in enumerate(zip(ids, PROBABILITIES, strict=True))
            },
        )
        for (method, side), figures in FIGURES.items():
            own = store.configuration(number, method, (side, side), {"note": EVIL})
            heat = np.kron(CORNER, np.ones((side // 7, side // 7))) if heatmaps else None
            answers: dict[int, Result | Failure] = {
                one: replace(
                    RESULT,
                    deletion=deletion,
                    insertion=insertion,
                    deletion_curve=[0.5, deletion],
                    insertion_curve=[0.1, insertion],
                    warnings=[f"the model predicts 'tench' (0.60), not {EVIL}"] if at == 3 else [],
                    heatmap=heat,
                )
                for at, (one, (deletion, insertion)) in enumerate(zip(ids, figures, strict=False))
            }
            store.add_answers(own, answers)
        store.add_failure(EVIL, "", f"photo {EVIL}: not an image")


def in_page(html: str, name: str) -> Any:
    """The data of that name in a report."""
    found = re.search(f'<script type="application/json" id="{name}">(.*?)</script>', html, re.S)
    assert found is not None
    return json.loads(found[1])
