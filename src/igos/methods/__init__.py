"""The explanation methods by name. A new one costs its file and a line in `METHODS`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, get_args, get_type_hints, runtime_checkable

from torch import Tensor

from igos.descent import Step
from igos.errors import IgosError, unknown
from igos.methods.igos import IGOS
from igos.problem import Problem

M = TypeVar("M")


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


METHODS: dict[str, Callable[..., Method]] = {
    "igos": IGOS,
    "igos-paper": IGOS.paper,
}


def make(
    name: str,
    *,
    resolution: int | tuple[int, int] = 28,
    seed: int = 0,
    settings: Mapping[str, str | float] | None = None,
) -> Method:
    """The method of that name; `settings` are numbers or texts, such as {"lambda1": "0.5"}."""
    if name not in METHODS:
        raise unknown("method", name, METHODS, remedy="see: igos methods")
    return adjust(METHODS[name](resolution=resolution, seed=seed), settings or {})


def adjust(method: M, settings: Mapping[str, str | float]) -> M:
    """A copy with some settings changed; "step_rule.eta" reaches into a nested one."""
    assert is_dataclass(method)
    assert not isinstance(method, type)
    hints = get_type_hints(type(method))
    known = [field.name for field in fields(method)]
    changed: Any = method
    for key, value in settings.items():
        name, _, inner = key.partition(".")
        if name not in known:
            remedy = f"{type(method).__name__} has {', '.join(known)}"
            raise unknown("setting", name, known, remedy=remedy)
        nested = getattr(changed, name)
        if is_dataclass(nested) != bool(inner):
            wanted = f"{name}=VALUE" if inner else f"{name}.SETTING=VALUE"
            raise IgosError(f"setting {key!r}: give {wanted}")
        new = adjust(nested, {inner: value}) if inner else _parse(key, str(value), hints[name])
        changed = replace(changed, **{name: new})
    return changed  # type: ignore[no-any-return]


def _parse(key: str, text: str, hint: Any) -> int | float:
    wanted = get_args(hint) or (hint,)
    if bool in wanted:
        if text.lower() not in ("true", "false"):
            raise IgosError(f"setting {key}={text}: give true or false")
        return text.lower() == "true"
    number = int if int in wanted else float
    try:
        return number(text)
    except ValueError:
        kind = "a whole number" if number is int else "a number"
        raise IgosError(f"setting {key}={text}: give {kind}") from None
