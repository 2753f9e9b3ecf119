"""The answer to one question about one photo: a heatmap and the curves that test it."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from igos.files import png, write
from igos.image import Normalisation
from igos.metrics.curves import Curve, changed, rank

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]

HOTTEST = 0.99  # of the pixels lie below the hottest colour


def warmth(heatmap: Array) -> Array:
    """How hot each pixel is drawn, in 0 … 1.

    What is below 0 speaks against the class and is drawn cold. Up to five times hotter where a few
    pixels would leave the rest cold, as gradients do.
    """
    low, top = float(heatmap.min()), float(heatmap.max())
    if top > 0:
        low = max(low, 0.0)
    high = max(float(np.quantile(heatmap, HOTTEST)), low + (top - low) / 5)
    drawn: Array = ((heatmap - low) / max(high - low, 1e-12)).clip(0, 1)
    return drawn


@dataclass(frozen=True, eq=False)
class Explanation:
    """A heatmap, the curves that test it, and everything needed to make it again."""

    photo: str
    model: str
    target: int | None  # None: a function of the model's output
    class_name: str
    probability: float | None  # of the target; None where the target is a function
    predicted: list[tuple[int, str, float]]  # the most probable classes: index, name, probability
    method: str
    settings: dict[str, Any]
    heatmap: Tensor  # (h, w)
    deletion: Curve
    insertion: Curve
    seconds: float  # for the heatmap; the curves are not counted
    iterations: int | None  # None: the method has none
    converged: bool | None
    losses: list[float] | None  # F_c after each iteration
    warnings: list[str]
    image: Tensor  # (3, H, W), as the model saw it
    baseline: Tensor  # (3, H, W)
    normalisation: Normalisation

    @property
    def resolution(self) -> tuple[int, int]:
        return self.heatmap.shape[-2], self.heatmap.shape[-1]

    @property
    def stem(self) -> str:
        """The name of the files: STEM.METHOD.RES"""
        h, w = self.resolution
        return f"{Path(self.photo).stem}.{self.method}.{h if h == w else f'{h}x{w}'}"

    def deleted(self, ratio: float) -> Tensor:
        """The photo with the most important `ratio` of it replaced by the baseline, in 0..1."""
        return self._changed(self.image, self.baseline, ratio)

    def inserted(self, ratio: float) -> Tensor:
        """The baseline with the most important `ratio` of it replaced by the photo, in 0..1."""
        return self._changed(self.baseline, self.image, ratio)

    @cached_property
    def _ranks(self) -> Tensor:
        return rank(self.heatmap)[None, None]  # (1, 1, h, w)

    def _changed(self, start: Tensor, end: Tensor, ratio: float) -> Tensor:
        count = torch.tensor([round(ratio * self.heatmap.numel())])
        images = changed(start[None], end[None], self._ranks, count)
        return self.normalisation.pixels(images[0, 0]).clamp(0, 1)

    def record(self) -> dict[str, Any]:
        """What `save` writes as JSON."""
        h, w = self.resolution
        return {
            "photo": self.photo,
            "model": self.model,
            "target": self.target,
            "class_name": self.class_name,
            "probability": self.probability,
            "predicted": [
                {"target": index, "class_name": name, "probability": value}
                for index, name, value in self.predicted
            ],
            "method": self.method,
            "resolution": h if h == w else [h, w],
            "settings": self.settings,
            "deletion": self.deletion.auc,
            "insertion": self.insertion.auc,
            "seconds": self.seconds,
            "iterations": self.iterations,
            "converged": self.converged,
            "losses": self.losses,
            "warnings": self.warnings,
            "curves": {
                name: {"fraction": curve.fraction.tolist(), "score": curve.score.tolist()}
                for name, curve in (("deletion", self.deletion), ("insertion", self.insertion))
            },
        }

    def json(self, indent: int | None = None) -> str:
        return json.dumps(self.record(), indent=indent, ensure_ascii=False, allow_nan=False)

    def plot(self, *, ratio: float = 0.2, opacity: float = 1.0) -> "Figure":
        """Photo, heatmap, deletion and insertion image at `ratio`, and both curves.

        `opacity` is that of the heatmap over the photo.
        """
        from igos.plot import panel

        return panel(self, ratio=ratio, opacity=opacity)

    def png(self, *, ratio: float = 0.2, opacity: float = 1.0) -> bytes:
        return png(self.plot(ratio=ratio, opacity=opacity))

    def npy(self) -> bytes:
        """The native heatmap as a file of NumPy's, float32."""
        array = io.BytesIO()
        np.save(array, self.heatmap.numpy().astype(np.float32))
        return array.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def save(self, folder: str | Path, *, ratio: float = 0.2) -> list[Path]:
        """Write the picture, the native heatmap (.npy, float32) and the record (.json)."""
        contents = {
            ".png": self.png(ratio=ratio),
            ".npy": self.npy(),
            ".json": self.json(indent=2).encode(errors="replace"),  # a name that is no text
        }
        return write(folder, self.stem, contents)


def save_comparison(
    explanations: Sequence[Explanation], folder: str | Path, *, ratio: float = 0.2
) -> list[Path]:
    """Write one picture of a photo's explanations by several methods, and their records."""
    contents = {
        ".png": comparison_png(explanations, ratio=ratio),
        ".json": comparison_json(explanations),
    }
    return write(folder, comparison_stem(explanations), contents)


def comparison_stem(explanations: Sequence[Explanation]) -> str:
    return f"{Path(explanations[0].photo).stem}.compare"


def comparison_png(explanations: Sequence[Explanation], *, ratio: float = 0.2) -> bytes:
    from igos.plot import comparison

    return png(comparison(explanations, ratio=ratio))


def comparison_json(explanations: Sequence[Explanation]) -> bytes:
    records = [explanation.record() for explanation in explanations]
    return json.dumps(records, indent=2, ensure_ascii=False).encode(errors="replace")
