"""Our methods for users of Captum: `as_attribution(IGOS(), model).attribute(inputs, target=3)`.

The only module of igos that needs Captum to be imported.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from igos.errors import IgosError
from igos.image import blur, up
from igos.methods.base import Method
from igos.problem import Problem

Target = int | Sequence[int] | tuple[int, ...] | Tensor | None


def as_attribution(
    method: Method,
    model: Callable[[Tensor], Any],
    *,
    std: tuple[float, ...] = (1.0, 1.0, 1.0),
    chunk: int = 32,
) -> Attribution:
    """A Captum `Attribution` that explains `model`, from images to logits, with our method.

    `std` is that of the model's normalisation, `chunk` the images in one pass, as in `Problem`.
    """
    return IgosAttribution(method, model, std=std, chunk=chunk)


class IgosAttribution(Attribution):  # type: ignore[misc]
    """See `as_attribution`."""

    def __init__(
        self,
        method: Method,
        model: Callable[[Tensor], Any],
        *,
        std: tuple[float, ...],
        chunk: int,
    ) -> None:
        super().__init__(model)
        self.method, self.std, self.chunk = method, std, chunk

    @log_usage()  # type: ignore[untyped-decorator] # Captum's NoiseTunnel looks for what it wraps
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor],
        target: Target = None,
        baselines: Tensor | float | tuple[Tensor | float] | None = None,
        additional_forward_args: None = None,
    ) -> Tensor | tuple[Tensor]:
        """The heatmap at the inputs' size, the same for each channel: (N, 3, H, W).

        `inputs` is one tensor, or a tuple of one, and so is the answer. `target` is what Captum
        takes: a class index, one for each image, or a tuple that picks from a larger output; none
        for a model that returns one number an image. Without `baselines`, blurred inputs.
        """
        if additional_forward_args is not None:
            raise IgosError("additional_forward_args: igos gives the model images alone")
        images = _only(inputs).detach()
        problem = Problem(
            self.forward_func,
            images,
            _baseline(images, baselines),
            _target(target),
            std=self.std,
            chunk=self.chunk,
        )
        with torch.enable_grad():  # Captum may call without
            heatmap = self.method(problem).detach()
        attributions = up(heatmap, problem.size).expand_as(images).clone()
        return (attributions,) if isinstance(inputs, tuple) else attributions


def _only(given: Any) -> Any:
    """The one element of a tuple; anything else as it is."""
    if not isinstance(given, tuple):
        return given
    if len(given) != 1:
        raise IgosError(f"{len(given)} inputs or baselines: igos explains one tensor of images")
    return given[0]


def _baseline(images: Tensor, baselines: Any) -> Tensor:
    given = _only(baselines)
    if given is None:
        return blur(images)
    return torch.as_tensor(given, dtype=images.dtype, device=images.device).expand_as(images)


def _target(target: Target) -> int | Tensor | Callable[[Any], Tensor]:
    """Captum's kinds of target as ours."""
    if target is None:
        return _flat
    if isinstance(target, tuple):
        return lambda output: output[(slice(None), *target)]
    return target if isinstance(target, int) else torch.as_tensor(target)


def _flat(output: Tensor) -> Tensor:
    return output.flatten()  # (N,) or (N, 1) -> (N,); anything else `Problem` refuses
