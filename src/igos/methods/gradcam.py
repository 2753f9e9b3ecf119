"""GradCAM (Selvaraju et al. 2017): which of the last convolution's maps speak for the class.

    L = ReLU(Σₖ αₖ Aᵏ),   αₖ = the mean over positions of ∂score/∂Aᵏ

at the layer's own resolution: 7×7 for ResNet50, 14×14 for VGG19 at 224 px. With Captum.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from igos.methods.adapter import Scores, check_link, copied, library, pieces, scored
from igos.methods.base import Plain
from igos.methods.layers import Call, calls, last_map, named
from igos.problem import Problem


@dataclass(frozen=True, kw_only=True)
class GradCAM(Plain):
    """GradCAM at the model's last map, or at the layer of that name."""

    layer: str | None = None  # None: found by `last_map`
    link: str = "logit"  # or "probability"; not used where the target is a function

    def __post_init__(self) -> None:
        check_link(self.link)

    def native_resolution(self, problem: Problem) -> tuple[int, int]:
        """The layer's."""
        library("captum.attr", self)  # before a study begins: no photo pays for that, or fails
        size = self._layer(copied(problem, self)).size
        assert size is not None
        return size

    def __call__(self, problem: Problem) -> Tensor:
        """The heatmap, (B, 1, h, w)."""
        attr = library("captum.attr", self)
        own = copied(scored(problem, self.link), self)
        captum = attr.LayerGradCam(Scores(own), self._layer(own).module)
        parts = [
            captum.attribute(images, additional_forward_args=rows, relu_attributions=True).detach()
            for images, rows in pieces(own)
        ]
        return torch.cat(parts).to(problem.image.dtype)

    def _layer(self, own: Problem) -> Call:
        assert isinstance(own.model, nn.Module)
        finished = calls(own)
        if self.layer is not None:
            return named(finished, own.model, self.layer)
        return last_map(finished, self)
