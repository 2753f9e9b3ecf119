"""What is explained (`Problem`) and what is minimised (`Objective`).

`Problem.score` and `score_masked` are where the model runs. They work through the images in chunks
and, where gradients are wanted, take each chunk's gradient at once: the images composed and the
model's activations are those of one chunk, however many path points, trials or photos there are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from igos.errors import IgosError
from igos.image import l1, phi, tv
from igos.passes import Passes, blamed_on, dtype_of

Link = Callable[[Tensor, Tensor], Tensor]
Compose = Callable[[Tensor, Tensor], Tensor]  # n inputs and their places (n,) -> n images


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
    fast: Passes | None = None  # the same function, faster, for scores; None: the model itself
    _classes: Tensor | None = field(init=False, repr=False)  # (B,)
    _highest_class: int = field(init=False, repr=False)
    _std: Tensor = field(init=False, repr=False)  # (3, 1, 1)

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
        object.__setattr__(self, "_std", self.image.new_tensor(self.std).view(-1, 1, 1))

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

    def phi(self, masks: Tensor, rows: Tensor, noise: Tensor | None = None) -> Tensor:
        """Φ(I₀ + n, M), each mask on the image of its row: (n, 1, h, w), (n,) -> (n, 3, H, W).

        `noise`, (n, 3, H, W), is in pixel units.
        """
        image = self.image[rows]
        if noise is not None:
            image = image + noise / self._std
        return phi(image, self.baseline[rows], masks)

    def in_pixels(self, differences: Tensor) -> Tensor:
        """Differences between values of images, (…, 3, H, W), in pixel units (0..1)."""
        return differences * self._std

    def noise(self, count: int, deviation: float, generator: torch.Generator) -> Tensor | None:
        """n_s for `count` masks, (K, 3, H, W) in pixel units; `None` is no noise."""
        if deviation == 0:
            return None
        drawn = self.image.new_empty(count, *self.image.shape[1:])
        return deviation * drawn.normal_(generator=generator)

    def score(self, images: Tensor) -> Tensor:
        """f_c of K versions of each image: (B, K, 3, H, W) -> (B, K), differentiable once."""
        return self._score(images, lambda some, _: some)

    def score_masked(self, masks: Tensor, noise: Tensor | None = None) -> Tensor:
        """f_c(Φ(I₀ + n, M)) of K masks of each image: (B, K, 1, h, w) -> (B, K).

        Differentiable once. `noise`, (K, 3, H, W) in pixel units, is shared by the images.
        """
        versions = masks.shape[1]

        def compose(some: Tensor, at: Tensor) -> Tensor:
            return self.phi(some, at // versions, None if noise is None else noise[at % versions])

        return self._score(masks, compose)

    def _score(self, inputs: Tensor, compose: Compose) -> Tensor:
        batch, versions = inputs.shape[:2]
        flat = inputs.flatten(0, 1)
        scores: Tensor
        if torch.is_grad_enabled() and inputs.requires_grad:
            scores = _ScoreWithGradient.apply(flat, versions, compose, self)
        else:
            with self._passes.ready(), torch.no_grad():
                scores = torch.cat(
                    [
                        self._to_scores(self._output(compose(some, at)), at // versions)
                        for some, at in self._chunks(flat)
                    ]
                )
        return scores.view(batch, versions)

    @property
    def _passes(self) -> Passes:
        return self.fast or Passes(self.model)

    def _output(self, images: Tensor) -> Any:
        """The model's, for at most `chunk` images."""
        with blamed_on("the model"):
            return self._passes(images, self.chunk)

    def _chunks(self, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The inputs, at most `chunk` at once, and the places they have among all."""
        places = torch.arange(len(flat), device=flat.device)
        return zip(torch.split(flat, self.chunk), torch.split(places, self.chunk), strict=True)

    def run(self, images: Tensor, rows: Tensor) -> Tensor:
        """One plain pass of the model: (n, 3, H, W) and the image each belongs to -> (n,)."""
        with blamed_on("the model"):
            output = self.model(images.to(dtype_of(self.model, images)))
        return self._to_scores(output, rows)

    def _to_scores(self, output: Any, rows: Tensor) -> Tensor:
        """f_c from the model's output for n images, and the image each belongs to: (n,)."""
        count = len(rows)
        if isinstance(output, Tensor) and output.is_floating_point():
            output = _at_least_float32(output)  # what is made of it must not be rounded as well
        if callable(self.target):
            scores = self.target(output)
            if not isinstance(scores, Tensor) or scores.shape != (count,):
                raise IgosError(
                    f"the target function returned {_shape(scores)} for {count} images: "
                    "it must return one number for each image"
                )
            return _at_least_float32(scores)
        if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != count:
            raise IgosError(
                f"the model returned {_shape(output)}, not ({count} images, classes): "
                "give a function from its output to one number an image as the target"
            )
        if self._highest_class >= output.shape[1]:
            raise IgosError(
                f"class index {self._highest_class}: the model has {output.shape[1]} classes, "
                f"give one from 0 to {output.shape[1] - 1}"
            )
        assert self._classes is not None
        return self.link(output, self._classes[rows])


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _shape(value: object) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__


class _ScoreWithGradient(torch.autograd.Function):
    """Scores whose gradient is taken chunk by chunk in the forward pass.

    A score depends on its own input alone, so d(any loss)/d(input) is the loss's derivative with
    respect to that one score times the gradient kept here.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, flat: Tensor, versions: int, compose: Compose, problem: Problem
    ) -> Tensor:
        scores: list[Tensor] = []
        gradients: list[Tensor] = []
        with problem._passes.ready(), torch.enable_grad():
            for some, at in problem._chunks(flat):
                inputs = some.detach().requires_grad_()
                output = problem._output(compose(inputs, at))
                score, gradient = _differentiate(problem, output, at // versions, inputs)
                scores.append(score)
                gradients.append(gradient)
        ctx.save_for_backward(torch.cat(gradients))
        return torch.cat(scores)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (gradients,) = ctx.saved_tensors
        return upstream.view(-1, 1, 1, 1) * gradients, None, None, None


# What the largest derivative at a float16 model's output is scaled to on its way back: far above
# float16's smallest numbers (6e-8) and far below its largest (65504).
HALF_SCALE = 256.0


def _differentiate(
    problem: Problem, output: Any, rows: Tensor, inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """The scores (n,) and each one's gradient with respect to its input."""
    if not isinstance(output, Tensor) or output.dtype != torch.float16:
        scores = problem._to_scores(output, rows)
        check_differentiable(scores)
        with blamed_on("the model"):
            return scores.detach(), torch.autograd.grad(scores.sum(), inputs)[0]
    check_differentiable(output)
    wide = output.detach().float().requires_grad_()
    scores = problem._to_scores(wide, rows)
    check_differentiable(scores)
    (slope,) = torch.autograd.grad(scores.sum(), wide)
    steepest = slope.reshape(len(slope), -1).abs().amax(dim=1).clamp(min=1e-30)  # (n,)
    scale = HALF_SCALE / steepest
    scaled = (slope * scale.view(-1, *[1] * (slope.ndim - 1))).to(output.dtype)
    with blamed_on("the model"):
        (gradient,) = torch.autograd.grad(output, inputs, scaled)
    return scores.detach(), gradient / scale.view(-1, 1, 1, 1)


def check_differentiable(result: Tensor) -> None:
    if not result.requires_grad:
        raise IgosError(
            "the model's output, or the target made of it, has no gradient: "
            "it must be differentiable"
        )


@dataclass(frozen=True, eq=False)
class Objective:
    """F_c(I₀, M) = f_c(Φ(I₀, up(M))) + λ₁‖1 − M‖₁ + λ₂TV(M), Eq. 9.

    With w > 0, `reveal`, it is two-sided (docs/two_sided.md): − w·f_c(Φ(I₀, up(1 − M))) more, the
    score of what the heatmap marks, shown alone. Each function takes K masks of each image,
    (B, K, 1, h, w), and returns (B, K).
    """

    problem: Problem
    lambda1: float
    lambda2: float
    reveal: float = 0.0  # w

    def f(self, masks: Tensor, noise: Tensor | None = None) -> Tensor:
        """The part that the path-integrated gradient is taken of."""
        hidden = self.problem.score_masked(masks, noise)
        if self.reveal == 0:
            return hidden
        return hidden - self.reveal * self.problem.score_masked(1 - masks, noise)

    def g(self, masks: Tensor) -> Tensor:
        """The part that the plain gradient is taken of."""
        return self.lambda1 * l1(masks) + self.lambda2 * tv(masks)

    def __call__(self, masks: Tensor) -> Tensor:
        return self.f(masks) + self.g(masks)
