"""The paper's small letters: up, Φ, blur, TV, the L1 norm, and the baselines Ĩ₀.

Pure tensor functions. Images are `(..., 3, H, W)`, normalised as the model wants them; masks are
`(..., 1, h, w)` in [0, 1], where 1 keeps the image and 0 shows the baseline. Leading dimensions
are independent of one another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
import torch.nn.functional as F
from torch import Tensor

from igos.errors import IgosError

# The authors' blur at 224 px (nearly a box); we scale both with the image's short side.
BLUR_KERNEL, BLUR_SIGMA, BLUR_SIDE = 51, 50.0, 224


def up(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """up(M) of Eq. 9: the mask at the image's size, bilinear with aligned corners.

    As two matrix products: the gradient of `F.interpolate` is not deterministic on a GPU.
    """
    if tuple(mask.shape[-2:]) == size:
        return mask
    rows = _interpolation(mask.shape[-2], size[0], mask)
    columns = _interpolation(mask.shape[-1], size[1], mask)
    return rows @ mask @ columns.T


def _interpolation(small: int, large: int, like: Tensor) -> Tensor:
    """The (large, small) matrix of linear interpolation between aligned end points."""
    at = torch.linspace(0, small - 1, large, device=like.device, dtype=like.dtype)
    knots = torch.arange(small, device=like.device, dtype=like.dtype)
    return (1 - (at[:, None] - knots).abs()).clamp(min=0)


def phi(image: Tensor, baseline: Tensor, mask: Tensor) -> Tensor:
    """Φ(I₀, M) = I₀ ⊙ up(M) + Ĩ₀ ⊙ (1 − up(M)), Eq. 2 with the upsampling of Eq. 9.

    >>> image, baseline = torch.ones(3, 2, 2), torch.zeros(3, 2, 2)
    >>> phi(image, baseline, torch.tensor([[[0.25]]]))[0].tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    large = up(mask, (image.shape[-2], image.shape[-1]))
    return image * large + baseline * (1 - large)


def l1(mask: Tensor) -> Tensor:
    """‖1 − M‖₁ of Eq. 2, as a mean over the mask's elements: (..., 1, h, w) -> (...)."""
    return (1 - mask).abs().mean(dim=(-3, -2, -1))


def tv(mask: Tensor) -> Tensor:
    """TV(M) of Eq. 2: mean squared step between rows plus that between columns, (...).

    >>> tv(torch.tensor([[[0.0, 1.0], [0.0, 1.0]]])).item()
    1.0
    """
    total = mask.new_zeros(mask.shape[:-3])
    for dim in (-2, -1):
        if mask.shape[dim] > 1:  # one row has no step between rows
            total = total + mask.diff(dim=dim).square().mean(dim=(-3, -2, -1))
    return total


def heatmap_of(mask: Tensor) -> Tensor:
    """The heatmap 1 − M: larger is more important. The only place where one becomes the other."""
    return 1 - mask


def blur(image: Tensor, kernel: int | None = None, sigma: float | None = None) -> Tensor:
    """Gaussian blur with reflected borders; without sizes, strong enough to hide the class."""
    short = min(image.shape[-2:])
    if kernel is None:
        kernel = max(3, 2 * int(BLUR_KERNEL * short / BLUR_SIDE / 2) + 1)
    if sigma is None:
        sigma = BLUR_SIGMA * short / BLUR_SIDE
    if kernel % 2 == 0 or kernel > 2 * short - 1:
        raise IgosError(f"blur kernel {kernel}: give an odd number below {2 * short}")
    half = kernel // 2
    at = torch.arange(-half, half + 1, device=image.device, dtype=image.dtype)
    weights = (-0.5 * (at / sigma).square()).exp()
    weights = weights / weights.sum()
    flat = image.reshape(-1, 1, *image.shape[-2:])  # every channel by itself
    flat = F.conv2d(F.pad(flat, (half, half, 0, 0), "reflect"), weights.view(1, 1, 1, -1))
    flat = F.conv2d(F.pad(flat, (0, 0, half, half), "reflect"), weights.view(1, 1, -1, 1))
    return flat.reshape(image.shape)


@dataclass(frozen=True)
class Normalisation:
    """The affine map a model's preprocessing ends with, between pixels in 0..1 and its input."""

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def normalise(self, pixels: Tensor) -> Tensor:
        return (pixels - self._column(self.mean, pixels)) / self._column(self.std, pixels)

    def pixels(self, image: Tensor) -> Tensor:
        return image * self._column(self.std, image) + self._column(self.mean, image)

    @staticmethod
    def _column(values: tuple[float, ...], like: Tensor) -> Tensor:
        return like.new_tensor(values).view(-1, 1, 1)


def _blurred(image: Tensor, _: Normalisation) -> Tensor:
    return blur(image)


def _grey(image: Tensor, _: Normalisation) -> Tensor:
    return torch.zeros_like(image)  # the mean colour: the paper's "grey zero image"


def _black(image: Tensor, normalisation: Normalisation) -> Tensor:
    return normalisation.normalise(torch.zeros_like(image))


def _noise(image: Tensor, normalisation: Normalisation) -> Tensor:
    generator = torch.Generator().manual_seed(0)  # on the CPU: the same baseline on every device
    pixels = torch.rand(image.shape[-3:], generator=generator).to(image)
    return normalisation.normalise(pixels).expand_as(image).contiguous()


Baseline = Callable[[Tensor, Normalisation], Tensor]

BASELINES: dict[str, Baseline] = {
    "blur": _blurred,
    "grey": _grey,
    "black": _black,
    "noise": _noise,
}


def check_resolution(resolution: int | tuple[int, int]) -> tuple[int, int]:
    """The mask's (h, w) from one number or two."""
    sides = resolution if isinstance(resolution, Sequence) else (resolution, resolution)
    if len(sides) != 2 or any(not isinstance(side, Integral) or side < 1 for side in sides):
        raise IgosError(f"resolution {resolution!r}: give one or two whole numbers from 1 up")
    return int(sides[0]), int(sides[1])
