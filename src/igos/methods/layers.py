"""Which layer a method looks at: by name, or found by running the model once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from igos.errors import IgosError, unknown
from igos.methods.base import UnsuitedError
from igos.passes import evaluating
from igos.problem import Problem

# Layers with parameters that may follow the last convolution: VGG has 3. A transformer's only
# convolution cuts the image into patches, and dozens follow.
MOST_AFTER = 10


@dataclass(frozen=True, eq=False)
class Call:
    """A module that ran and finished, and its output's size, (h, w), where it is a map."""

    name: str
    module: nn.Module
    size: tuple[int, int] | None


def calls(problem: Problem) -> list[Call]:
    """The model's modules in the order in which they finish with the first image.

    `problem.model` is a module of the caller's own: hooks are set in it, and taken away.
    """
    assert isinstance(problem.model, nn.Module)
    finished: list[Call] = []

    def watch(name: str, module: nn.Module, output: object) -> None:
        is_map = isinstance(output, Tensor) and output.ndim == 4
        size = tuple(output.shape[-2:]) if isinstance(output, Tensor) and is_map else None
        finished.append(Call(name, module, size))  # type: ignore[arg-type]

    hooks = [
        module.register_forward_hook(lambda m, _, output, name=name: watch(name, m, output))
        for name, module in problem.model.named_modules()
        if name  # the model itself is no layer
    ]
    try:
        with evaluating(problem.model), torch.no_grad():
            problem.run(problem.image[:1], torch.zeros_like(problem.image[:1, 0, 0, 0]).long())
    finally:
        for hook in hooks:
            hook.remove()
    return finished


def named(finished: Sequence[Call], model: nn.Module, name: str) -> Call:
    """The layer of that name, which must run once and make a map."""
    known = dict(model.named_modules())
    if name not in known or not name:
        remedy = "give a name of the model's named_modules()"
        raise unknown("layer", name, known, remedy=remedy)
    ran = [call for call in finished if call.module is known[name]]
    if len(ran) != 1:
        raise IgosError(f"layer {name!r}: it runs {len(ran)} times, give one that runs once")
    if ran[0].size is None:
        raise IgosError(f"layer {name!r}: its output is no map, give one of shape (n, c, h, w)")
    return ran[0]


def last_map(finished: Sequence[Call], method: object) -> Call:
    """The outermost layer that finishes last at the size of the last convolution's output.

    ResNet: layer4. VGG19: features.35, the rectifier before the last pooling.
    """
    size = _size(finished[_last_convolution(finished, method)])
    found = max(_once(finished, size), default=None)
    after = 0 if found is None else sum(map(has_parameters, finished[found + 1 :]))
    if found is None or after > MOST_AFTER:
        raise _no_layer(method, f"{after} layers with parameters follow its last convolution")
    return finished[found]


def before_last_stage(finished: Sequence[Call], method: object) -> Call:
    """The map that enters the last stage: at twice the size of the last convolution's output.

    Of the layers that size the one highest in the model's tree, of those the last to finish; and
    where a max pooling follows, that. ResNet: layer3. VGG16: features.23.
    """
    last = _last_convolution(finished, method)
    h, w = _size(finished[last])
    sizes = {(2 * h + a, 2 * w + b) for a in (-1, 0, 1) for b in (-1, 0, 1)}  # an odd side: ±1
    found = [at for size in sizes for at in _once(finished, size) if at < last]
    if not found:
        raise _no_layer(method, f"no layer has about {2 * h}×{2 * w}, twice its last convolution's")
    at = min(found, key=lambda at: (finished[at].name.count("."), -at))
    pools = [call for call in finished[at + 1 : at + 2] if isinstance(call.module, nn.MaxPool2d)]
    return pools[0] if pools else finished[at]


def _last_convolution(finished: Sequence[Call], method: object) -> int:
    """Where in the list the last one is whose output is a map, and more than a point."""
    maps = [
        at
        for at, call in enumerate(finished)
        if isinstance(call.module, nn.Conv2d) and call.size not in (None, (1, 1))
    ]
    if not maps:
        raise _no_layer(method, "it has no convolution whose output is a map")
    return maps[-1]


def _size(call: Call) -> tuple[int, int]:
    assert call.size is not None
    return call.size


def _once(finished: Sequence[Call], size: tuple[int, int]) -> list[int]:
    """Where in the list layers of that size are that run once."""
    runs = Counter(call.name for call in finished)
    return [at for at, call in enumerate(finished) if call.size == size and runs[call.name] == 1]


def has_parameters(call: Call) -> bool:
    return next(call.module.parameters(recurse=False), None) is not None


def _no_layer(method: object, why: str) -> UnsuitedError:
    return UnsuitedError(
        f"{type(method).__name__} found no layer of this model to look at: {why}; name one with "
        "the setting layer"
    )
