"""Work on a batch that survives a bad photo and too little memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import torch

from igos.errors import IgosError
from igos.methods.base import UnsuitedError
from igos.passes import out_of_memory
from igos.study.result import Failure

T = TypeVar("T")
R = TypeVar("R")


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def halving(
    work: Callable[[Sequence[T]], Sequence[R]],
    items: Sequence[T],
    on_memory: Callable[[int], None] = lambda _: None,
) -> list[R | Failure]:
    """`work` on all items; where it fails, on each half, down to the one that is to blame.

    `on_memory` is told how many may fit where memory ran out.
    """
    if not items:
        return []
    try:
        return list(work(items))
    except UnsuitedError:
        raise
    except Exception as error:
        memory = out_of_memory(error)
        if not memory and not isinstance(error, IgosError):
            raise
        reason = "out of memory, even for this photo alone" if memory else str(error)
    # Not within `except`: the error holds the frames, and they the memory.
    half = len(items) // 2
    if memory:
        on_memory(max(1, half))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    if half == 0:
        return [Failure(reason)]
    return [*halving(work, items[:half], on_memory), *halving(work, items[half:], on_memory)]
