"""The control: a heatmap that knows nothing."""

import zlib
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from igos.image import check_resolution
from igos.methods.base import check_fits, check_seed
from igos.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Random:
    """Independent random pixels: what any method must beat."""

    resolution: int | tuple[int, int] = 28
    seed: int = 0

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        check_seed(self.seed)

    @property
    def settings(self) -> dict[str, Any]:
        return {**asdict(self), "resolution": list(check_resolution(self.resolution))}

    def __call__(self, problem: Problem) -> Tensor:
        """Drawn for each image from the seed and the image, so that no two photos share a map."""
        shape = check_resolution(self.resolution)
        check_fits(shape, problem.size)
        heatmaps = []
        for image in problem.image:
            content = zlib.crc32(image.cpu().contiguous().numpy().tobytes())
            generator = torch.Generator().manual_seed((self.seed + content) % 2**63)
            heatmaps.append(torch.rand(1, *shape, generator=generator))
        return torch.stack(heatmaps).to(problem.image)
