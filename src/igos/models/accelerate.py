"""A model made faster without changing what it computes.

Frozen parameters, channels-last memory and batch norms folded into convolutions;
`benchmarks/explain_cpu.py` times a heatmap with and without all of them.
"""

import copy
import logging
from collections import Counter

import torch
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from igos.errors import IgosError, first_line
from igos.passes import out_of_memory

log = logging.getLogger(__name__)


SAME = 1e-3  # of the largest output: what folding may change by rounding


def accelerate(module: nn.Module, device: torch.device, example: Tensor) -> nn.Module:
    """A faster copy on `device`, in evaluation mode, with frozen parameters.

    `example`, (1, 3, H, W), shows that folding changed nothing. A module that cannot be copied
    (a scripted one, say) is returned as it is, and refused if it lies on another device.
    """
    try:
        plain = copy.deepcopy(module).eval().requires_grad_(False)
        folded = copy.deepcopy(plain)
    except Exception as error:  # the module's own code, which may raise anything
        if out_of_memory(error):
            raise
        here = {parameter.device.type for parameter in module.parameters()}
        if here - {device.type}:
            raise IgosError(
                f"a model on {', '.join(sorted(here))} that cannot be copied to {device.type} "
                f"({first_line(error)}): move it there, or give device {here.pop()}"
            ) from error
        log.debug("not copied, runs as it is: %s", error)
        return module
    if fold_batch_norms(folded) and not same(plain, folded, example):
        log.debug("folding changed the output, batch norms stay")
        folded = plain
    tensors = (*folded.parameters(), *folded.buffers())
    volumes = any(tensor.ndim == 5 for tensor in tensors)  # have no such memory format
    layout = torch.preserve_format if volumes else torch.channels_last
    return folded.to(device=device, memory_format=layout)  # type: ignore[call-overload,no-any-return]


def same(one: nn.Module, other: nn.Module, example: Tensor, tolerance: float = SAME) -> bool:
    """Do both answer `example` alike? Outputs that are no tensors are not."""
    outputs = []
    with torch.no_grad():
        for net in (one, other):
            parameter = next(net.parameters())
            outputs.append(net(example.to(parameter)))
    if not all(isinstance(output, Tensor) for output in outputs):
        return False  # no simple way to compare
    return close(outputs[0], outputs[1], tolerance)


def close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Their largest difference, as a share of the largest of `one`."""
    difference = (one.float() - other.float()).abs().max()
    return bool(difference <= tolerance * one.float().abs().max())  # no NaN is


def fold_batch_norms(module: nn.Module) -> int:
    """Fold every batch norm that directly follows a convolution into it, in place.

    Symbolic tracing shows which batch norm sees the output of which convolution and nothing else
    does; only those are folded, and `module.forward` stays the one that runs. What cannot be
    traced is left alone. Returns the number folded.
    """
    try:
        graph = _Tracer().trace(module)
    except Exception as error:  # tracing runs the model's own code, which may raise anything
        log.debug("not traceable, batch norms stay: %s", error)
        return 0
    modules = dict(module.named_modules())
    calls = [node for node in graph.nodes if node.op == "call_module"]
    called = Counter(str(node.target) for node in calls)
    read = {str(node.target).rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}
    folded = 0
    for node in calls:
        before = node.args[0] if node.args else None
        if not (isinstance(before, fx.Node) and before.op == "call_module"):
            continue
        conv, norm = str(before.target), str(node.target)
        alone = len(before.users) == 1 and called[conv] == called[norm] == 1
        if alone and not read & {conv, norm} and _foldable(modules[conv], modules[norm]):
            module.set_submodule(conv, fuse_conv_bn_eval(modules[conv], modules[norm]))
            module.set_submodule(norm, _after_norm(modules[norm]))
            folded += 1
    return folded


class _Tracer(fx.Tracer):
    """Convolutions and batch norms are leaves, also subclasses from outside torch.nn."""

    def is_leaf_module(self, m: nn.Module, qualified_name: str) -> bool:
        known = isinstance(m, nn.Conv2d | nn.BatchNorm2d)
        return known or super().is_leaf_module(m, qualified_name)


def _foldable(conv: nn.Module, norm: nn.Module) -> bool:
    """A convolution and a batch norm with fixed statistics and known forwards, unobserved."""
    observed = any(m._forward_hooks or m._forward_pre_hooks for m in (conv, norm))
    return (
        type(conv) in (nn.Conv2d, Conv2dSame)
        and type(norm) in (nn.BatchNorm2d, BatchNormAct2d)
        and norm.running_var is not None
        and not norm.training
        and not observed
    )


def _after_norm(norm: nn.Module) -> nn.Module:
    """What remains of a batch norm once its affine map is folded away."""
    if isinstance(norm, BatchNormAct2d):  # timm's: norm, dropout, activation
        return nn.Sequential(norm.drop, norm.act)
    return nn.Identity()
