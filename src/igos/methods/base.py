"""What a method is: settings, and what they make of a problem."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from igos.descent import Step
from igos.errors import IgosError
from igos.problem import Problem


class Method(Protocol):
    """Settings, and what they make of a problem."""

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting in force, as plain values: the method's identity."""
        ...

    def __call__(self, problem: Problem) -> Tensor:
        """The heatmap, (B, 1, h, w), larger = more important."""
        ...


@runtime_checkable
class Iterative(Protocol):
    """A method whose work can be watched."""

    def steps(self, problem: Problem) -> Iterator[Step]: ...

    def heatmap(self, step: Step) -> Tensor: ...


@runtime_checkable
class Native(Protocol):
    """A method whose heatmaps have a resolution of their own: the image's, or that of a layer."""

    def native_resolution(self, problem: Problem) -> tuple[int, int]: ...


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A method whose fields are its settings."""

    @property
    def settings(self) -> dict[str, Any]:
        return asdict(self)


class UnsuitedError(IgosError):
    """This method cannot explain this model, whatever the photo."""


def check_seed(seed: int) -> None:
    """One that a `torch.Generator` takes."""
    if not 0 <= seed < 2**63:
        raise IgosError(f"seed {seed}: give a whole number from 0 to 2⁶³ − 1")


def check_fits(shape: tuple[int, int], size: tuple[int, int]) -> None:
    """A mask may not be finer than the image."""
    if any(small > large for small, large in zip(shape, size, strict=True)):
        raise IgosError(
            f"resolution {shape[0]}×{shape[1]}: the image is {size[0]}×{size[1]}, give at most that"
        )


def check_native(
    method: object, resolution: int | tuple[int, int] | None, own: tuple[int, int]
) -> None:
    """A method with a resolution of its own refuses any other."""
    wanted = (resolution, resolution) if isinstance(resolution, int) else resolution
    if wanted is not None and tuple(wanted) != own:
        raise UnsuitedError(
            f"resolution {wanted[0]}×{wanted[1]}: {type(method).__name__} makes heatmaps of "
            f"{own[0]}×{own[1]} for this model and no others; give that, or none"
        )
