"""What is explained (`Problem`) and what is minimised (`Objective`).

`Problem.score` is the only place that runs the model. It works through the images in chunks and,
where gradients are wanted, takes each chunk's gradient at once: the model's activations are those
of one chunk, however many path points, trials or photos are asked for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from igos.errors import IgosError
from igos.image import l1, phi, tv

Link = Callable[[Tensor, Tensor], Tensor]


def probability(logits: Tensor, classes: Tensor) -> Tensor:
    """f_c as the softmax probability of each row's class: (N, C), (N,) -> (N,)."""
    return logits.softmax(dim=-1).gather(-1, classes[:, None])[:, 0]


def logit(logits: Tensor, classes: Tensor) -> Tensor:
    """f_c as the logit of each row's class: (N, C), (N,) -> (N,)."""
    return logits.gather(-1, classes[:, None])[:, 0]


LINKS: dict[str, Link] = {"probability": probability, "logit": logit}


@dataclass(frozen=True, eq=False)
class Problem:
    """Why does `model` see `target` in `image`, when it does not see it in `baseline`?

    `target` is a class index, one index for each image, or any function from the model's output
    for N images to N numbers; with a function, `link` is not used. `std` is that of the model's
    normalisation: it converts noise in pixel units (0..1) to the model's.
    """

    model: Callable[[Tensor], Any]
    image: Tensor  # (B, 3, H, W)
    baseline: Tensor  # (B, 3, H, W)
    target: int | Tensor | Callable[[Any], Tensor]
    link: Link = probability
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    chunk: int = 32  # images in one pass of the model
    _classes: Tensor | None = field(init=False, repr=False)  # (B,)
    _highest_class: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.image.ndim != 4:
            raise IgosError(f"image of shape {tuple(self.image.shape)}: give (B, 3, H, W)")
        if self.baseline.shape != self.image.shape:
            raise IgosError(
                f"baseline of shape {tuple(self.baseline.shape)}: give the image's, "
                f"{tuple(self.image.shape)}"
            )
        if self.chunk < 1 or len(self.image) == 0:
            raise IgosError(f"{len(self.image)} images in chunks of {self.chunk}: give at least 1")
        if len(self.std) != self.image.shape[1]:
            raise IgosError(f"std {self.std}: give one for each of the image's channels")
        classes = None if callable(self.target) else self._one_class_an_image(self.target)
        object.__setattr__(self, "_classes", classes)
        object.__setattr__(self, "_highest_class", -1 if classes is None else int(classes.max()))

    def _one_class_an_image(self, target: int | Tensor) -> Tensor:
        whole = isinstance(target, Integral) or (
            isinstance(target, Tensor) and not target.is_floating_point()
        )
        classes = torch.as_tensor(target if whole else -1, device=self.image.device).long()
        if classes.ndim > 1 or classes.numel() not in (1, len(self.image)) or classes.min() < 0:
            raise IgosError(
                f"target {target!r}: give one class index, or one for each of the "
                f"{len(self.image)} images"
            )
        return classes.expand(len(self.image))

    @property
    def size(self) -> tuple[int, int]:
        """(H, W)"""
        return self.image.shape[-2], self.image.shape[-1]

    def phi(self, masks: Tensor, noise: Tensor | None = None) -> Tensor:
        """Φ(I₀ + n, M) for K masks of each image: (B, K, 1, h, w) -> (B, K, 3, H, W).

        `noise`, broadcast against (B, K, 3, H, W), is in pixel units.
        """
        image = self.image[:, None]
        if noise is not None:
            image = image + noise / image.new_tensor(self.std).view(-1, 1, 1)
        return phi(image, self.baseline[:, None], masks)

    def score(self, images: Tensor) -> Tensor:
        """f_c of K versions of each image: (B, K, 3, H, W) -> (B, K), differentiable once."""
        batch, versions = images.shape[:2]
        flat = images.flatten(0, 1)
        rows = torch.arange(batch, device=images.device).repeat_interleave(versions)
        scores: Tensor
        if torch.is_grad_enabled() and images.requires_grad:
            scores = _ScoreWithGradient.apply(flat, rows, self)
        else:
            with evaluating(self.model), torch.no_grad():
                scores = torch.cat([self.run(*some) for some in self._chunks(flat, rows)])
        return scores.view(batch, versions)

    def _chunks(self, flat: Tensor, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(torch.split(flat, self.chunk), torch.split(rows, self.chunk), strict=True)

    def run(self, images: Tensor, rows: Tensor) -> Tensor:
        """One pass of the model: (n, 3, H, W) and the image each belongs to -> (n,)."""
        output = self.model(images.to(precision(self.model, images)))
        if callable(self.target):
            scores = self.target(output)
            if not isinstance(scores, Tensor) or scores.shape != (len(images),):
                raise IgosError(
                    f"the target function returned {_shape(scores)} for {len(images)} images: "
                    "it must return one number for each image"
                )
            return _at_least_float32(scores)
        if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != len(images):
            raise IgosError(
                f"the model returned {_shape(output)}, not ({len(images)} images, classes): "
                "give a function from its output to one number an image as the target"
            )
        if self._highest_class >= output.shape[1]:
            raise IgosError(
                f"class index {self._highest_class}: the model has {output.shape[1]} classes, "
                f"give one from 0 to {output.shape[1] - 1}"
            )
        assert self._classes is not None
        return self.link(_at_least_float32(output), self._classes[rows])


def precision(model: object, images: Tensor) -> torch.dtype:
    """The model's: masks and images stay in at least float32, also for a float16 model."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    return next((p.dtype for p in parameters if p.is_floating_point()), images.dtype)


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _shape(value: object) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__


class _ScoreWithGradient(torch.autograd.Function):
    """Scores whose gradient is taken chunk by chunk in the forward pass.

    A score depends on its own image alone, so d(any loss)/d(image) is the loss's derivative with
    respect to that one score times the gradient kept here.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, flat: Tensor, rows: Tensor, problem: Problem) -> Tensor:
        scores: list[Tensor] = []
        gradients: list[Tensor] = []
        with evaluating(problem.model), torch.enable_grad():
            for some, row in problem._chunks(flat, rows):
                images = some.detach().requires_grad_()
                score = problem.run(images, row)
                if not score.requires_grad:
                    raise IgosError("the model's output has no gradient: it must be differentiable")
                gradients += torch.autograd.grad(score.sum(), images)
                scores.append(score.detach())
        ctx.save_for_backward(torch.cat(gradients))
        return torch.cat(scores)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradients,) = ctx.saved_tensors
        return upstream[:, None, None, None] * gradients, None, None


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """The model in evaluation mode; afterwards every module is in the mode it was in."""
    modes = {m: m.training for m in model.modules()} if isinstance(model, nn.Module) else {}
    training = [module for module, mode in modes.items() if mode]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@dataclass(frozen=True, eq=False)
class Objective:
    """F_c(I₀, M) = f_c(Φ(I₀, up(M))) + λ₁‖1 − M‖₁ + λ₂TV(M), Eq. 9.

    Each function takes K masks of each image, (B, K, 1, h, w), and returns (B, K).
    """

    problem: Problem
    lambda1: float
    lambda2: float

    def f(self, masks: Tensor, noise: Tensor | None = None) -> Tensor:
        """The part that the path-integrated gradient is taken of."""
        return self.problem.score(self.problem.phi(masks, noise))

    def g(self, masks: Tensor) -> Tensor:
        """The part that the plain gradient is taken of."""
        return self.lambda1 * l1(masks) + self.lambda2 * tv(masks)

    def __call__(self, masks: Tensor) -> Tensor:
        return self.f(masks) + self.g(masks)
