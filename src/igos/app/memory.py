"""Memory that visitors have used goes back to the system.

glibc keeps what was freed, and a heap for every few threads: a server that was busy once would stay
large. Other C libraries are left alone.
"""

import ctypes
import sys
from contextlib import suppress

ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def share_one_heap() -> None:
    """From now on new threads have no heaps of their own, with holes that nobody else fills."""
    _ask_glibc("mallopt", ARENA_MAX, 1)


def give_back() -> None:
    """Hand what is free to the system."""
    _ask_glibc("malloc_trim", 0)


def _ask_glibc(function: str, *arguments: int) -> None:
    if sys.platform == "linux":
        with suppress(AttributeError):  # musl has neither
            getattr(ctypes.CDLL(None), function)(*arguments)
