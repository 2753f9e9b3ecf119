"""The one error a user's mistake raises."""

from collections.abc import Iterable
from difflib import get_close_matches


class IgosError(Exception):
    """A mistake in what was asked for; the message names the value and the remedy."""


def first_line(error: BaseException) -> str:
    """What somebody else's code raised, in a line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def unknown(kind: str, name: str, known: Iterable[str], *, remedy: str) -> IgosError:
    """An `IgosError` for a name that does not exist, with the nearest ones that do."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return IgosError(f"unknown {kind} {name!r}: {hint}{remedy}")
