"""RISE: the mean of random masks, weighted by the score they leave (Petsiuk et al., BMVC 2018)."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from igos.errors import IgosError
from igos.methods.base import Plain, check_counts, check_seed
from igos.problem import Problem


@dataclass(frozen=True, kw_only=True)
class RISE(Plain):
    """RISE: random masks, weighted by the score that they leave."""

    masks: int = 4000  # N; the paper: 4,000 for VGG, 8,000 for ResNet
    keep: float = 0.25  # p, the share of cells that stay; ours, docs/deviations.md (theirs: 0.5)
    cells: int = 7  # s, the grid's side; Petsiuk et al.
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(self, "masks", "cells")
        if not 0 < self.keep < 1:
            raise IgosError(f"keep {self.keep}: give a share between 0 and 1")
        check_seed(self.seed)

    def native_resolution(self, problem: Problem) -> tuple[int, int]:
        return problem.size

    def __call__(self, problem: Problem) -> Tensor:
        """Σ score · mask / (N·p), (B, 1, H, W); what a mask hides is 0 in the model's input.

        The masks are made as they are needed, on the device, so memory hardly grows with their
        number. They are drawn by the CPU's generator, so that every device and every image of a
        batch meets the same ones, and copied once: a copy waits for all that the device has to do.
        """
        generator = torch.Generator().manual_seed(self.seed)
        each = max(1, problem.chunk // len(problem.image))
        hidden = replace(problem, baseline=torch.zeros_like(problem.image))
        total = torch.zeros_like(problem.image[:, :1])
        for drawn in self.draw(self.masks, generator).to(problem.image).split(each):
            masks = self.enlarge(drawn, problem.size)  # (N, 1, H, W)
            with torch.no_grad():
                scores = hidden.score_masked(masks.expand(len(total), *masks.shape))  # (B, N)
            total += torch.einsum("bn,nchw->bchw", scores.to(masks), masks)
        return total / (self.masks * self.keep)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """For each mask its shift, two shares of a cell, and its cells, 1 where kept: (N, 2 + s²).

        The numbers do not depend on how many masks come at once.
        """
        drawn = torch.rand(count, 2 + self.cells**2, generator=generator)
        return torch.cat([drawn[:, :2], (drawn[:, 2:] < self.keep).float()], dim=1)

    def enlarge(self, drawn: Tensor, size: tuple[int, int]) -> Tensor:
        """Grids of cells, upsampled bilinearly and shifted by less than a cell: (N, 1, H, W)."""
        grids = drawn[:, 2:].view(-1, self.cells, self.cells)
        rows, columns = (
            self._shifted(share, side) for share, side in zip(drawn[:, :2].T, size, strict=True)
        )
        return (rows @ grids @ columns.mT)[:, None]

    def _shifted(self, share: Tensor, side: int) -> Tensor:
        """The interpolation from cells to pixels, shifted by that share of a cell: (N, side, s)."""
        cell = math.ceil(side / self.cells)
        shift = (share.float() * cell).long()
        at = torch.arange(side, device=share.device) + shift[:, None]  # of (s + 1) · cell pixels
        stretch = self.cells / ((self.cells + 1) * cell)
        centre = ((at + 0.5) * stretch - 0.5).clamp(0, self.cells - 1).to(share.dtype)
        knots = torch.arange(self.cells, device=share.device, dtype=share.dtype)
        return (1 - (centre[..., None] - knots).abs()).clamp(min=0)
