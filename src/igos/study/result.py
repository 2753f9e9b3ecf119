"""What came of a configuration and a photo, and how a row of the store holds it."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np


@dataclass(frozen=True)
class Result:
    """A row of `results`, without its keys."""

    deletion: float
    insertion: float
    fraction: list[float]
    deletion_curve: list[float]
    insertion_curve: list[float]
    seconds: float
    iterations: int | None
    converged: bool | None
    losses: list[float] | None
    warnings: list[str]
    heatmap: np.ndarray[Any, Any] | None

    def row(self) -> tuple[Any, ...]:
        lists = (self.fraction, self.deletion_curve, self.insertion_curve)
        return (
            self.deletion,
            self.insertion,
            *(json.dumps(values) for values in lists),
            self.seconds,
            self.iterations,
            self.converged,
            None if self.losses is None else json.dumps(self.losses),
            json.dumps(self.warnings, ensure_ascii=False),
            None if self.heatmap is None else pack(self.heatmap),
        )

    @classmethod
    def of(cls, row: Sequence[Any], resolution: tuple[int, int]) -> Self:
        """The result that `row` wrote."""
        values = dict(zip((field.name for field in fields(cls)), row, strict=True))
        for name in ("fraction", "deletion_curve", "insertion_curve", "losses", "warnings"):
            values[name] = None if values[name] is None else json.loads(values[name])
        if values["converged"] is not None:
            values["converged"] = bool(values["converged"])
        if values["heatmap"] is not None:
            values["heatmap"] = unpack(values["heatmap"], resolution)
        return cls(**values)


@dataclass(frozen=True)
class Failure:
    """Why there is no result."""

    reason: str


def pack(heatmap: np.ndarray[Any, Any]) -> bytes:
    """A native heatmap as `results.heatmap` holds it: float32, row by row, deflated."""
    return zlib.compress(np.ascontiguousarray(heatmap, dtype="<f4").tobytes())


def unpack(blob: bytes, resolution: tuple[int, int]) -> np.ndarray[Any, Any]:
    return np.frombuffer(zlib.decompress(blob), dtype="<f4").reshape(resolution)
