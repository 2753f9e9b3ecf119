"""Rectifiers as Captum's guided backpropagation and deconvnet can find them.

Captum sets its rule on modules of the class `nn.ReLU` alone. It silently leaves out ReLU6 and
functional calls, and where a rectifier's input goes elsewhere too (a skip connection), it changes
the gradient of all its uses. So rectifiers are replaced, and a model whose rectifiers cannot be
is refused.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from igos.methods.adapter import Scores
from igos.methods.base import UnsuitedError

# What autograd calls the gradients of relu, relu6, clamp and threshold, and where it keeps the
# lower bound; a bound other than 0 makes no rectifier (`F.normalize` clamps at 1e-12, say).
NODES = {
    "ReluBackward0": None,
    "HardtanhBackward0": "_saved_min_val",
    "ClampBackward0": "_saved_min",
    "ClampBackward1": "_saved_min",
    "ClampMinBackward0": "_saved_min",
    "ClampMinBackward1": "_saved_min",
    "ThresholdBackward0": "_saved_threshold",
}


class _Rectifier(nn.ReLU):
    """x from 0 to `top`; not in place, which Captum's hooks cannot bear."""

    def __init__(self, top: float | None) -> None:
        super().__init__(inplace=False)
        self.top = top

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) if self.top is None else x.clamp(0.0, self.top)


class _OwnInput(nn.Module):
    """Gives the next module an input that nothing else reads."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


def replace_rectifiers(root: nn.Module) -> list[nn.Module]:
    """Put a rectifier that Captum finds in the place of each, in place; returns the new ones."""
    new: list[nn.Module] = []
    for parent in list(root.modules()):
        for name, child in parent._modules.items():  # `named_children` gives a shared one once
            if child is not None and _is_rectifier(child):
                new.append(_Rectifier(getattr(child, "max_val", None)))
                setattr(parent, name, nn.Sequential(_OwnInput(), new[-1]))
    return new


def _is_rectifier(module: nn.Module) -> bool:
    """ReLU, or a clamp from 0 to something, such as ReLU6."""
    return isinstance(module, nn.ReLU) or (
        isinstance(module, nn.Hardtanh) and module.min_val == 0  # ReLU6 is a Hardtanh
    )


def check_rectifiers(scores: Scores, rectifiers: list[nn.Module], method: object) -> None:
    """Every rectifier that shapes the score is one of these modules, and there is one."""
    name = type(method).__name__
    found: list[Any] = []  # holds the graph's nodes, whose identity lasts as long as they do
    hooks = [m.register_forward_hook(lambda *a: found.append(a[2].grad_fn)) for m in rectifiers]
    image = scores.problem.image[:1].detach().clone().requires_grad_()
    try:
        with torch.enable_grad():
            score = scores(image, torch.zeros(1, dtype=torch.long, device=image.device))
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        raise UnsuitedError(
            f"{name} changes the gradient of rectifiers (ReLU, ReLU6): this model runs no module "
            "of that kind"
        )
    known = set(found)
    hidden = sum(_rectifies(node) and node not in known for node in graph(score.grad_fn))
    if hidden:
        raise UnsuitedError(
            f"{name} changes the gradient of rectifiers, which must be modules (nn.ReLU, "
            f"nn.ReLU6): {hidden} of this model's are function calls, out of its reach"
        )


def _rectifies(node: Any) -> bool:
    if node.name() not in NODES:
        return False
    bound = NODES[node.name()]
    return bound is None or getattr(node, bound, 0) == 0


def graph(end: Any) -> Iterator[Any]:
    """Every node of the autograd graph that ends here."""
    seen, waiting = {end}, [end]
    while waiting:
        node = waiting.pop()
        yield node
        new = {before for before, _ in node.next_functions if before is not None} - seen
        seen |= new
        waiting += new
