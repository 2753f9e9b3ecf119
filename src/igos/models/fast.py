"""How to run a model fast on its device: in which precision, compiled or not, how many at once.

    passes = make_fast(module, example)  # half precision on CUDA
    chunk = images_at_once(passes, example)  # what its memory holds
    passes = compiled(passes, example, chunk)  # a minute now, faster ever after

Each falls back to the slower way where the faster one would change what the model says.
"""

import copy
import logging
from dataclasses import replace

import torch
from torch import Tensor, nn

from igos.errors import IgosError, first_line, unknown
from igos.models.accelerate import close, same
from igos.passes import Passes, out_of_memory

log = logging.getLogger(__name__)

PRECISIONS = ("auto", "fp32", "tf32", "fp16")
HALF = 0.02  # of the largest output: what half precision may change; ours
MOST = {"cpu": 4, "cuda": 256, "mps": 32}  # images in one pass: 4 fit a CPU's caches; ours
MEMORY = 0.5  # the share of free memory that a pass may take; masks and images need some, too


def make_fast(module: nn.Module, example: Tensor, *, precision: str = "auto") -> Passes:
    """Passes of `module` in that precision.

    "auto" is fp32 and, on CUDA, fp16 or, where that changes the output for `example`, (1, 3, H, W),
    by more than `HALF`, tf32. A model that is not in float32 keeps its own.
    """
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS, remedy=f"give {', '.join(PRECISIONS)}")
    first = next(module.parameters(), torch.empty(0))
    if first.dtype != torch.float32 and precision != "fp16":
        return Passes(module)
    if precision == "auto":
        precision = "fp32" if first.device.type != "cuda" else "fp16 or tf32"
    if "fp16" not in precision:
        return Passes(module, precision)
    half = _half(module, example)
    if half is not None:
        return Passes(half, "fp16")
    if precision == "fp16":
        raise IgosError("precision 'fp16': it changes this model's output; give auto or tf32")
    return Passes(module, "tf32")


def _half(module: nn.Module, example: Tensor) -> nn.Module | None:
    """A copy in half precision; `None` where that is not the same model."""
    try:
        half = copy.deepcopy(module).half()
        return half if all(same(module, half, one, HALF) for one in _examples(example)) else None
    except Exception as error:  # the module's own code, which may raise anything
        if out_of_memory(error):
            raise  # it says nothing of half precision
        log.debug("no half precision: %s", error)
        return None


def _examples(example: Tensor) -> list[Tensor]:
    """The example, which may be flat, and one full of edges."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.empty(example.shape).normal_(generator=generator).to(example)
    return [example, noise]


def compiled(passes: Passes, example: Tensor, chunk: int) -> Passes:
    """The same passes, compiled for `chunk` images; or else as they are, with a warning."""
    quick = replace(passes, compiled=torch.compile(passes.model, dynamic=False))
    try:
        before, after = (_run(way, example, chunk) for way in (passes, quick))
    except Exception as error:  # no compiler, too little memory, or a model that it cannot take
        log.warning("not compiled: %s", first_line(error))
        return passes
    if before is None or after is None or not close(before, after, HALF):
        log.warning("not compiled: it would change the model's output")
        return passes
    return quick


def images_at_once(passes: Passes, example: Tensor) -> int:
    """How many images one pass may have: what suits the device and, on CUDA, what fits."""
    device = _device(passes, example)
    if device.type != "cuda":
        return MOST.get(device.type, MOST["mps"])
    few, more = 4, 12
    try:
        if _run(passes, example, 1) is None:  # no tensor: its memory on the way back is not known
            return MOST["mps"]
        bytes_an_image = (_peak(passes, example, more) - _peak(passes, example, few)) / (more - few)
    except Exception as error:
        if not out_of_memory(error):
            raise
        return 1
    free = torch.cuda.mem_get_info(device)[0]
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return fitting(MEMORY * free, bytes_an_image, MOST["cuda"])


def fitting(free: float, each: float, most: int) -> int:
    """The largest power of two that fits, from 1 to `most`.

    >>> fitting(1000, 10, 256), fitting(1000, 1, 256), fitting(1, 10, 256)
    (64, 256, 1)
    """
    count = most
    while count > 1 and count * each > free:
        count //= 2
    return count


def _device(passes: Passes, example: Tensor) -> torch.device:
    parameters = passes.model.parameters() if isinstance(passes.model, nn.Module) else ()
    return next((p.device for p in parameters), example.device)


def _peak(passes: Passes, example: Tensor, count: int) -> int:
    """Bytes in use at the height of a pass, forward and back."""
    device = _device(passes, example)
    torch.cuda.reset_peak_memory_stats(device)
    _run(passes, example, count)
    return torch.cuda.max_memory_allocated(device)


def _run(passes: Passes, example: Tensor, count: int) -> Tensor | None:
    """The output for `count` copies, after a pass forward and one back; `None`: it is no tensor."""
    images = example.to(_device(passes, example)).repeat(count, 1, 1, 1)
    with passes.ready():
        with torch.no_grad():
            answer = passes(images, count)
        if not isinstance(answer, Tensor):
            return None
        with torch.enable_grad():
            output = passes(images.requires_grad_(), count)
            if output.requires_grad:  # methods that only look at scores need no gradient
                torch.autograd.grad(output.float().sum(), images)
    return answer
