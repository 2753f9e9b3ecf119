"""What a method is: settings, and what they make of a problem."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from igos.descent import Armijo, Step
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


Maker = Callable[[tuple[int, int] | None], Method]  # from a resolution; None: the default one


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
    """This method cannot explain this model here, whatever the photo."""


def check_seed(seed: int) -> None:
    """One that a `torch.Generator` takes."""
    if not 0 <= seed < 2**63:
        raise IgosError(f"seed {seed}: give a whole number from 0 to 2⁶³ − 1")


def check_counts(method: object, *names: str) -> None:
    """Settings that are whole numbers from 1 up."""
    for name in names:
        value = getattr(method, name)
        if not isinstance(value, int) or value < 1:
            raise IgosError(f"{name} {value!r}: give a whole number from 1 up")


def check_not_negative(method: object, *names: str) -> None:
    """Settings that are finite numbers from 0 up, or not set."""
    for name in names:
        value = getattr(method, name)
        if value is not None and not (isinstance(value, float | int) and 0 <= value < math.inf):
            raise IgosError(f"{name} {value!r}: give a number from 0 up")


def check_step_rule(rule: object) -> None:
    if not isinstance(rule, Armijo):
        raise IgosError(f"step_rule {rule!r}: give Armijo(…)")


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
