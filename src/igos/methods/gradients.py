"""Methods that ask every pixel by itself: gradients and occlusion, with Captum.

    heatmap = IntegratedGradients()(problem)  # (B, 1, H, W)

Captum attributes a signed number to each value of the image, (B, 3, H, W), which `attributions`
returns. A heatmap wants one number a pixel, larger = more important: `largest` or `total` of its
channels' magnitudes, as each method's authors draw it. The score explained is the class's logit,
as is customary for these methods; softmax's gradient dies where the model is certain.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from igos.errors import IgosError
from igos.methods.adapter import Scores, check_link, copied, library, pieces, scored
from igos.methods.base import Plain, check_counts, check_not_negative, check_seed
from igos.methods.rectifiers import check_rectifiers, replace_rectifiers
from igos.passes import evaluating
from igos.problem import Problem


def largest(attributions: Tensor) -> Tensor:
    """The largest magnitude of each pixel's channels: (B, 3, H, W) -> (B, 1, H, W)."""
    return attributions.abs().amax(dim=1, keepdim=True)


def total(attributions: Tensor) -> Tensor:
    """The sum of the magnitudes of each pixel's channels: (B, 3, H, W) -> (B, 1, H, W)."""
    return attributions.abs().sum(dim=1, keepdim=True)


@dataclass(frozen=True, kw_only=True)
class PixelMethod(Plain):
    """A method that attributes something to every value of the image."""

    link: str = "logit"  # or "probability"; not used where the target is a function

    def __post_init__(self) -> None:
        check_link(self.link)

    def native_resolution(self, problem: Problem) -> tuple[int, int]:
        library("captum.attr", self)  # before a study begins: no photo pays for that, or fails
        return problem.size

    def attributions(self, problem: Problem) -> Tensor:
        """What each value of the image adds to the score, signed: (B, 3, H, W)."""
        attr = library("captum.attr", self)
        scores = self._scores(problem)
        with evaluating(scores.model):
            parts = [self._attribute(attr, scores, *piece).detach() for piece in pieces(problem)]
        return torch.cat(parts).to(problem.image.dtype)  # occlusion is always float32 in Captum

    def __call__(self, problem: Problem) -> Tensor:
        """The heatmap, (B, 1, H, W)."""
        return total(self.attributions(problem))

    def _scores(self, problem: Problem) -> Scores:
        return Scores(scored(problem, self.link))

    def _attribute(self, attr: Any, scores: Scores, images: Tensor, rows: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Saliency(PixelMethod):
    """|∂score/∂image|, the largest of the channels (Simonyan et al. 2013)."""

    def __call__(self, problem: Problem) -> Tensor:
        return largest(self.attributions(problem))

    def _attribute(self, attr: Any, scores: Scores, images: Tensor, rows: Tensor) -> Tensor:
        return _gradient(attr, scores, images, rows)


@dataclass(frozen=True, kw_only=True)
class InputXGradient(PixelMethod):
    """image ⊙ ∂score/∂image (Shrikumar et al. 2016)."""

    def _attribute(self, attr: Any, scores: Scores, images: Tensor, rows: Tensor) -> Tensor:
        product: Tensor = attr.InputXGradient(scores).attribute(
            images, additional_forward_args=rows
        )
        return product


@dataclass(frozen=True, kw_only=True)
class IntegratedGradients(PixelMethod):
    """(image − baseline) ⊙ the mean gradient on the line between them (Sundararajan et al. 2017).

    The problem's baseline; Gauss and Legendre's points on the line. The attributions of an image
    sum to score(image) − score(baseline).
    """

    path_steps: int = 50  # Captum; the authors: 20 to 300

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "path_steps")

    def _attribute(self, attr: Any, scores: Scores, images: Tensor, rows: Tensor) -> Tensor:
        integral: Tensor = attr.IntegratedGradients(scores).attribute(
            images.detach(),
            baselines=scores.problem.baseline[rows].detach(),
            additional_forward_args=rows,
            n_steps=self.path_steps,
            internal_batch_size=scores.problem.chunk,
        )
        return integral


@dataclass(frozen=True, kw_only=True)
class SmoothGrad(PixelMethod):
    """The mean of the gradients at noisy copies of the image (Smilkov et al. 2017)."""

    samples: int = 50  # the authors
    noise: float = 0.15  # standard deviation, as a share of the image's range; the authors
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "samples")
        check_not_negative(self, "noise")
        check_seed(self.seed)

    def _attribute(self, attr: Any, scores: Scores, images: Tensor, rows: Tensor) -> Tensor:
        pairs = zip(images.detach(), rows, strict=True)
        return torch.stack([self._smooth(attr, scores, image, row) for image, row in pairs])

    def _smooth(self, attr: Any, scores: Scores, image: Tensor, row: Tensor) -> Tensor:
        """(3, H, W) -> (3, H, W).

        Not Captum's NoiseTunnel: it draws from the global random state, and otherwise for another
        chunk. Here an image meets the noise it would meet alone, drawn sample by sample.
        """
        generator = torch.Generator(image.device).manual_seed(self.seed)
        deviation = self.noise * (image.amax() - image.amin())
        gradient = torch.zeros_like(image)
        for some in torch.arange(self.samples).split(scores.problem.chunk):
            noise = [torch.empty_like(image).normal_(generator=generator) for _ in some]
            noisy = (image + deviation * torch.stack(noise)).requires_grad_()
            gradient += _gradient(attr, scores, noisy, row.expand(len(some))).sum(dim=0)
        return gradient / self.samples


@dataclass(frozen=True, kw_only=True)
class _Guided(PixelMethod):
    """A method that changes the gradient of rectifiers, in a copy of the model."""

    def _scores(self, problem: Problem) -> Scores:
        scores = Scores(copied(scored(problem, self.link), self))
        check_rectifiers(scores, replace_rectifiers(scores), self)
        return scores

    def _attribute(self, attr: Any, scores: Scores, images: Tensor, rows: Tensor) -> Tensor:
        with warnings.catch_warnings():  # Captum announces its hooks at every call
            warnings.filterwarnings("ignore", message="Setting backward hooks")
            changed: Tensor = getattr(attr, self._captum)(scores).attribute(
                images, additional_forward_args=rows
            )
        return changed

    @property
    def _captum(self) -> str:
        """The name of Captum's class."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class GuidedBackprop(_Guided):
    """The gradient, where rectifiers let only positive gradients pass (Springenberg et al. 2014).

    Other activations keep their gradient.
    """

    @property
    def _captum(self) -> str:
        return "GuidedBackprop"


@dataclass(frozen=True, kw_only=True)
class Deconvnet(_Guided):
    """Guided backpropagation whose rectifiers forget which units were active (Zeiler 2013)."""

    @property
    def _captum(self) -> str:
        return "Deconvolution"


@dataclass(frozen=True, kw_only=True)
class Occlusion(PixelMethod):
    """How far the score falls when a window shows the baseline (Zeiler and Fergus 2013).

    The mean of the windows that cover a pixel, with its sign: hiding what speaks against the
    class raises the score. The last window of a row or column is cut off at the image's border.
    """

    window: float = 1 / 7  # of the image's height and width: a cell of a 7×7 grid; ours
    stride: float = 1 / 14  # half a window; ours

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "stride"):
            share = getattr(self, name)
            if not (isinstance(share, float | int) and 0 < share <= 1):
                raise IgosError(f"{name} {share!r}: give a share of the image's side, up to 1")
        if self.stride > self.window:
            raise IgosError(f"stride {self.stride}: give at most the window, {self.window}")

    def __call__(self, problem: Problem) -> Tensor:
        return self.attributions(problem)[:, :1]  # a window hides all channels: they are equal

    def _attribute(self, attr: Any, scores: Scores, images: Tensor, rows: Tensor) -> Tensor:
        windows, strides = (
            (images.shape[1], *(max(1, round(share * side)) for side in images.shape[2:]))
            for share in (self.window, self.stride)
        )
        occlusion = attr.Occlusion(scores)
        parts = [
            occlusion.attribute(
                images[at : at + 1].detach(),
                sliding_window_shapes=windows,
                strides=strides,
                baselines=scores.problem.baseline[row : row + 1].detach(),
                additional_forward_args=rows[at : at + 1],
                perturbations_per_eval=scores.problem.chunk,
            )
            for at, row in enumerate(rows.tolist())
        ]
        return torch.cat(parts)


def _gradient(attr: Any, scores: Scores, images: Tensor, rows: Tensor) -> Tensor:
    gradient: Tensor = attr.Saliency(scores).attribute(
        images, abs=False, additional_forward_args=rows
    )
    return gradient
