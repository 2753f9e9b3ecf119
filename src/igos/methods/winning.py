"""The rules of excitation backpropagation as zennit's hooks, and what they do not cover."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from igos.errors import first_line
from igos.methods.adapter import library
from igos.methods.base import UnsuitedError
from igos.methods.layers import Call
from igos.methods.rectifiers import graph
from igos.problem import Problem

PASSING = (nn.ReLU, nn.ReLU6, nn.BatchNorm1d, nn.BatchNorm2d)

# What may happen between modules with a rule, by autograd's names: to move values about, to keep
# the largest, to drop those that excite nothing.
HARMLESS = {
    "AliasBackward",
    "CatBackward",
    "CloneBackward",
    "ConstantPadNdBackward",
    "GatherBackward",
    "IdentityBackward",  # zennit's
    "MaxPool2DWithIndicesBackward",
    "PermuteBackward",
    "ReluBackward",
    "ReshapeAliasBackward",
    "SelectBackward",
    "SliceBackward",
    "SplitBackward",
    "SqueezeBackward",
    "StackBackward",
    "ToCopyBackward",
    "TransposeBackward",
    "UnsafeViewBackward",
    "UnsqueezeBackward",
    "ViewBackward",
    "torch::autograd::AccumulateGrad",
}


@contextmanager
def rules(model: nn.Module, method: object) -> Iterator[tuple[type[nn.Module], ...]]:
    """zennit's hooks in a model of the caller's own; yields the kinds of module with a rule."""
    layer_map = _layer_map(method)
    composite = library("zennit.composites", method).LayerMapComposite(
        layer_map, canonizers=[library("zennit.torchvision", method).ResNetCanonizer()]
    )
    try:
        composite.register(model)
    except RuntimeError as error:  # a norm that does not belong to the convolution before it
        raise UnsuitedError(
            f"{type(method).__name__} cannot merge this model's batch norms into its "
            f"convolutions: {first_line(error)}"
        ) from error
    try:
        yield tuple(kind for kinds, _ in layer_map for kind in kinds)
    finally:
        composite.remove()


def _layer_map(method: object) -> list[tuple[Any, Any]]:
    """Which modules have which rule, in zennit's terms."""
    zennit = library("zennit.rules", method)
    positive_weights = zennit.ClampMod(min=0.0, zero_params=["bias"])
    unweighted = zennit.NoMod(param_keys=[])
    residual_sum = library("zennit.layer", method).Sum
    return [
        ((nn.Conv2d, nn.Linear), _excitation(positive_weights, method)),
        ((nn.AvgPool2d, nn.AdaptiveAvgPool2d, residual_sum), _excitation(unweighted, method)),
        (PASSING, zennit.Pass()),
    ]


def _excitation(positive: Any, method: object) -> Any:
    """p′ = x ⊙ W⁺ᵀ(p ⊘ W⁺x), as a zennit rule; `positive` makes W⁺ of the parameters."""
    return library("zennit.core", method).BasicHook(
        input_modifiers=[lambda x: x.clamp(min=0)],
        param_modifiers=[positive],
        output_modifiers=[lambda output: output],
        gradient_mapper=lambda p, outputs: [
            torch.where(outputs[0] > 0, p / outputs[0], torch.zeros_like(p))
        ],
        reducer=lambda x, gradients: x[0] * gradients[0],
    )


def probabilities(own: Problem, layer: Call, images: Tensor, rows: Tensor) -> Tensor:
    """Under `rules`, the gradient of the logit is p: 1 at the class, (n, 1, h, w) at the layer."""
    kept: list[Tensor] = []
    hook = layer.module.register_forward_hook(lambda *call: kept.append(call[2]))
    try:
        with torch.enable_grad():
            (p,) = torch.autograd.grad(own.run(images, rows).sum(), kept)  # (n, c, h, w)
    finally:
        hook.remove()
    return p.sum(dim=1, keepdim=True)


def ruleless(
    own: Problem, layer: Call, kinds: tuple[type[nn.Module], ...], method: object
) -> set[str]:
    """What the model does above the layer, with the first image, that has no rule.

    Every module with a rule gets an output without history, so that the histories of what the
    modules read hold only what happens between them.
    """
    assert isinstance(own.model, nn.Module)
    ruled = {module for module in own.model.modules() if isinstance(module, kinds)}
    above: list[nn.Module] = []  # the layer, and those that ran after it
    ends: list[Any] = []  # the histories' ends

    def before(module: nn.Module, inputs: tuple[Tensor]) -> None:
        if above:
            ends.append(inputs[0].grad_fn)
            if module in above and not isinstance(module, PASSING):
                raise UnsuitedError(  # zennit keeps but one input of a module
                    f"{type(method).__name__} does not suit this model: above layer "
                    f"{layer.name!r} it uses a {type(module).__name__} twice"
                )
            above.append(module)

    def after(module: nn.Module, _: tuple[Tensor], output: Tensor) -> Tensor:
        if module is layer.module:
            above.append(module)
        return output.detach().requires_grad_().clone()  # no leaf: it may be changed in place

    hooks = [module.register_forward_pre_hook(before) for module in ruled]
    hooks += [module.register_forward_hook(after) for module in ruled | {layer.module}]
    try:
        with torch.enable_grad():
            image = own.image[:1].detach().clone().requires_grad_()
            score = own.run(image, torch.zeros(1, dtype=torch.long, device=image.device))
    finally:
        for hook in hooks:
            hook.remove()
    histories = [graph(end) for end in (*ends, score.grad_fn) if end is not None]
    names = {node.name().rstrip("0123456789") for history in histories for node in history}
    return {name.removesuffix("Backward") for name in names - HARMLESS}
