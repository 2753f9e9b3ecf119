"""How a model is run: in evaluation mode, with the same answer every time, in its precision."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from igos.errors import IgosError, first_line


@dataclass(frozen=True, eq=False)
class Passes:
    """A model, and how it is run.

    `precision` is that of its parameters, and says whether CUDA may round float32 to tf32 ("fp16"
    and "tf32") or not ("fp32"); `None` leaves that as the caller has set it. `compiled` is the same
    model made for one number of images: a pass with a few less is filled up, and one with less than
    half runs the model as it is.
    """

    model: Callable[[Tensor], Any]
    precision: str | None = None
    compiled: Callable[[Tensor], Any] | None = None

    @contextmanager
    def ready(self) -> Iterator[None]:
        """All that must hold while the model runs, forward and back."""
        with evaluating(self.model), _rounding(self.precision):
            yield

    def __call__(self, images: Tensor, full: int) -> Any:
        """The model's output for at most `full` images, (n, 3, H, W)."""
        count = len(images)
        images = images.to(dtype_of(self.model, images))
        if self.compiled is None or 2 * count < full:
            return self.model(images)
        return self.compiled(F.pad(images, (0, 0, 0, 0, 0, 0, 0, full - count)))[:count]


def dtype_of(model: object, images: Tensor) -> torch.dtype:
    """The model's, or the images' where it has none.

    Images become it only when they enter the model: with masks they stay in at least float32.
    """
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    return next((p.dtype for p in parameters if p.is_floating_point()), images.dtype)


@contextmanager
def evaluating(model: object, *, beside: Passes | None = None) -> Iterator[None]:
    """The model in evaluation mode and, on a GPU, the same sums in the same order every time.

    `beside` passes in "fp32" nothing is rounded to tf32 either. Afterwards every module is in the
    mode it was in.
    """
    exact = beside is not None and beside.precision == "fp32"
    modules = model.modules() if isinstance(model, nn.Module) else ()
    training = [module for module in modules if module.training]
    try:
        for module in training:
            module.training = False
        # Which algorithm is the fastest is another answer every time.
        wanted = (("deterministic", True), ("benchmark", False))
        deterministic = _settings([(torch.backends.cudnn, *one) for one in wanted])
        with deterministic, _rounding("fp32" if exact else None):
            yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def blamed_on(culprit: str) -> Iterator[None]:
    """Somebody else's code, whose failure is a user's mistake and no traceback."""
    try:
        yield
    except IgosError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        raise IgosError(f"{culprit} failed: {first_line(error)}") from error


def out_of_memory(error: Exception) -> bool:
    """Also where a library says so in its own words: the CPU's, MPS's, CUDA's."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    signs = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def _rounding(precision: str | None) -> AbstractContextManager[None]:
    """Whether CUDA may round float32 to tf32; `None` leaves that as the caller has set it."""
    cudnn: Any = torch.backends.cudnn
    backends = () if precision is None else (cudnn.conv, torch.backends.cuda.matmul)
    how = "ieee" if precision == "fp32" else "tf32"
    return _settings([(backend, "fp32_precision", how) for backend in backends])


@contextmanager
def _settings(wanted: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """These attributes, for a while. One that has its value already is not touched.

    For torch tells a default from the same value that somebody has set: only the default follows
    `torch.backends.fp32_precision`. There is no way back to it for one that was touched.
    """
    other = [one for one in wanted if getattr(one[0], one[1]) != one[2]]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in other]
    try:
        for owner, name, value in other:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
