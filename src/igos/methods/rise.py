"""RISE: the mean of random masks, weighted by the score they leave (Petsiuk et al., BMVC 2018)."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from igos.errors import IgosError
from igos.methods.base import Plain, check_seed
from igos.problem import Problem


@dataclass(frozen=True, kw_only=True)
class RISE(Plain):
    """RISE: random masks, weighted by the score that they leave."""

    masks: int = 4000  # N; the paper: 4,000 for VGG, 8,000 for ResNet
    keep: float = 0.25  # p, the share of cells that stay; ours, docs/deviations.md (theirs: 0.5)
    cells: int = 7  # s, the grid's side; Petsiuk et al.
    seed: int = 0

    def __post_init__(self) -> None:
        if self.masks < 1 or self.cells < 1:
            raise IgosError(f"{self}: masks and cells must be from 1 up")
        if not 0 < self.keep < 1:
            raise IgosError(f"keep {self.keep}: give a share between 0 and 1")
        check_seed(self.seed)

    def native_resolution(self, problem: Problem) -> tuple[int, int]:
        return problem.size

    def __call__(self, problem: Problem) -> Tensor:
        """Σ score · mask / (N·p), (B, 1, H, W); what a mask hides is 0 in the model's input.

        The masks come as they are needed, so memory does not grow with their number, and from the
        CPU's generator, so that every device and every image of a batch meets the same ones.
        """
        generator = torch.Generator().manual_seed(self.seed)
        each = max(1, problem.chunk // len(problem.image))
        total = torch.zeros_like(problem.image[:, :1])
        for start in range(0, self.masks, each):
            masks = self.draw(min(each, self.masks - start), problem.size, generator)
            masks = masks.to(problem.image)  # (N, 1, H, W)
            with torch.no_grad():
                scores = problem.score(problem.image[:, None] * masks)  # (B, N)
            total += torch.einsum("bn,nchw->bchw", scores.to(masks), masks)
        return total / (self.masks * self.keep)

    def draw(self, count: int, size: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Grids of cells kept with probability p, upsampled and shifted by less than a cell."""
        cell = [math.ceil(side / self.cells) for side in size]
        # One draw for each mask, so that the masks do not depend on how many come at once.
        drawn = torch.stack(
            [torch.rand(self.cells**2 + 2, generator=generator) for _ in range(count)]
        )
        grid = (drawn[:, 2:] < self.keep).float().view(count, 1, self.cells, self.cells)
        large = F.interpolate(grid, [(self.cells + 1) * c for c in cell], mode="bilinear")
        shifts = (drawn[:, :2] * torch.tensor(cell)).long().tolist()
        return torch.stack(
            [
                one[:, y : y + size[0], x : x + size[1]]
                for one, (y, x) in zip(large, shifts, strict=True)
            ]
        )
