"""The pointing game: does the heatmap's hottest pixel lie on the object?"""

import torch
from torch import Tensor

from igos.image import up

TOLERANCE = 15  # pixels; Zhang et al. 2016 (Excitation BP)


def hit(heatmap: Tensor, inside: Tensor, *, tolerance: float = TOLERANCE) -> bool:
    """Is the hottest pixel of `heatmap`, (h, w), within `tolerance` of `inside`, (H, W) bool?

    At the image's size; of equal pixels the first from the top left counts.
    """
    large = up(heatmap[None], (inside.shape[0], inside.shape[1]))[0]
    hottest = torch.tensor(divmod(int(large.argmax()), inside.shape[1]))
    objects = inside.nonzero()  # (N, 2)
    if len(objects) == 0:
        return False
    return bool((objects - hottest).square().sum(dim=1).min() <= tolerance**2)


def share(heatmap: Tensor, inside: Tensor) -> float:
    """How much of what is positive in `heatmap`, (h, w), lies in `inside`, (H, W) bool.

    >>> quarter = torch.tensor([[True, False], [False, False]])
    >>> share(torch.tensor([[3.0, 1.0], [-5.0, 0.0]]), quarter)
    0.75
    """
    large = up(heatmap[None], (inside.shape[0], inside.shape[1]))[0].clamp(min=0).double()
    total = float(large.sum())
    return float(large[inside].sum()) / total if total > 0 else float(inside.double().mean())
