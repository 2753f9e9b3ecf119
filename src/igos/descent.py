"""Algorithm 1: the directions, the step rules and the loop, for independent images at once.

Masks are (B, 1, h, w); every loss and step size is (B,).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from igos.errors import IgosError
from igos.problem import Objective

Loss = Callable[[Tensor], Tensor]  # of K masks of each image: (B, K, 1, h, w) -> (B, K)
Direction = Callable[[Tensor], Tensor]


def path_gradient(f: Loss, mask: Tensor, *, path_steps: int) -> Tensor:
    """∇ᴵᴳf(M) = 1/S Σₛ ∇f at (s/S)·M, s = 1 … S: Eq. 4.

    `f` takes (B, S, 1, h, w) and returns (B, S). The gradient is the one *at* each point of the
    path, as in the supplement's proposition (no inner factor s/S).
    """
    fractions = torch.arange(1, path_steps + 1, device=mask.device, dtype=mask.dtype) / path_steps
    points = fractions.view(-1, 1, 1, 1) * mask[:, None]  # (B, S, 1, h, w)
    return gradient(f, points).mean(dim=1)


def total_gradient(
    objective: Objective, mask: Tensor, *, path_steps: int, noise: Tensor | None = None
) -> Tensor:
    """TG(M) = ∇ᴵᴳf(M) + ∇g(M), Eq. 6; `noise` (S, 3, H, W) is n_s, in pixel units."""
    integrated = path_gradient(lambda m: objective.f(m, noise), mask, path_steps=path_steps)
    return integrated + gradient(objective.g, mask[:, None])[:, 0]


def gradient(f: Loss, masks: Tensor) -> Tensor:
    """∇f at each of K masks of each image: (B, K, 1, h, w) -> (B, K, 1, h, w)."""
    with torch.enable_grad():
        masks = masks.detach().requires_grad_()
        (found,) = torch.autograd.grad(f(masks).sum(), masks)
    return found


# (F_c, M_k, F_c(M_k), TG(M_k)) -> the step α (B,), the mask after it, and F_c there (B,)
StepRule = Callable[[Loss, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


MOST_TRIALS = 200  # of one line search; η = 0.9 from 1000 down to 10⁻⁵ takes 175
SMALLEST = 1e-20  # of a gradient: keeps the unit of scaled steps finite where it is 0
# How far a scaled step of 1 goes. At exactly 1, rounding would decide whether an element that comes
# from 0 arrives at 1, and only below 1 does ‖1 − M‖₁ have a slope.
REACH = 1.0001


@cache
def _on(device: torch.device, dtype: torch.dtype, values: tuple[float, ...]) -> Tensor:
    """Copied to the device once: a copy waits for all that the device has to do."""
    return torch.tensor(values, device=device, dtype=dtype)


@dataclass(frozen=True)
class Armijo:
    """The revised backtracking line search, Eq. 8 and its three numbered steps.

    The steps tried are α_u, α_u·η, α_u·η², … as long as they are above α_l. The first one that
    meets the condition is taken; if none does, the step is α_l. So α_u = α_l is a fixed step.

    `scaled` steps are in units of `REACH`/max|TG|, so that 1 moves the steepest element from one
    end to the other, whatever the resolution and the network. Then α_l can be a step that leads
    out of where the class is so sure that to hide a little changes nothing.
    """

    alpha_upper: float = 1000.0  # authors' code: 8 to 1000
    alpha_lower: float = 1e-5  # authors' code
    beta: float = 1e-4  # paper
    eta: float = 0.2  # authors' code
    scaled: bool = False  # ours, docs/deviations.md

    def __post_init__(self) -> None:
        positive = all(0 < alpha < math.inf for alpha in (self.alpha_lower, self.alpha_upper))
        if not (positive and 0 < self.eta < 1 and 0 < self.beta < 1):
            raise IgosError(f"{self}: eta and beta must lie between 0 and 1, both alphas above 0")
        if math.log(self.alpha_lower / self.alpha_upper) / math.log(self.eta) > MOST_TRIALS:
            raise IgosError(f"{self}: more than {MOST_TRIALS} trials; give a smaller eta")

    def trials(self) -> list[float]:
        """Every step that may be taken, in the order of trying, α_l last; see `unit`."""
        alphas = []
        alpha = self.alpha_upper
        while alpha > self.alpha_lower:
            alphas.append(alpha)
            alpha *= self.eta
        return [*alphas, self.alpha_lower]

    def unit(self, gradient: Tensor) -> Tensor:
        """What a step of 1 is for each image, (B,)."""
        steepest = gradient.abs().amax(dim=(1, 2, 3))
        return REACH / steepest.clamp(min=SMALLEST) if self.scaled else torch.ones_like(steepest)

    def __call__(
        self,
        objective: Loss,
        mask: Tensor,
        loss: Tensor,
        gradient: Tensor,
        *,
        at_once: int | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`at_once` trials share one pass of the model; the answer does not depend on it.

        By default an accelerator gets all of them (it is wide and waiting for it is dear), the
        CPU one after another (every trial that is not made is time saved).
        """
        alphas = _on(loss.device, loss.dtype, tuple(self.trials()))
        at_once = at_once or (1 if loss.device.type == "cpu" else len(alphas))
        squared = gradient.square().sum(dim=(1, 2, 3))  # TGᵀTG, (B,)
        unit = self.unit(gradient)
        alpha, best, best_loss = torch.zeros_like(loss), mask, loss
        searching = torch.ones_like(loss, dtype=torch.bool)
        for trial in torch.split(alphas, at_once):
            some = unit[:, None] * trial  # (B, J)
            masks = mask[:, None] - some[..., None, None, None] * gradient[:, None]
            masks = masks.clamp(0, 1)  # P_[0,1], (B, J, 1, h, w)
            losses = objective(masks)  # (B, J)
            enough = losses - loss[:, None] <= -self.beta * some * squared[:, None]  # Eq. 8
            enough |= trial == alphas[-1]
            first = enough.int().argmax(dim=1)  # 0 where none is
            row = torch.arange(len(loss), device=loss.device)
            found = searching & enough.any(dim=1)
            alpha = torch.where(found, some[row, first], alpha)
            best = torch.where(found.view(-1, 1, 1, 1), masks[row, first], best)
            best_loss = torch.where(found, losses[row, first], best_loss)
            searching = searching & ~found
            if at_once < len(alphas) and not searching.any():
                break
        return alpha, best, best_loss


@dataclass(frozen=True, eq=False)
class Step:
    """The state after an iteration."""

    iteration: int
    mask: Tensor  # (B, 1, h, w)
    mean_mask: Tensor  # (B, 1, h, w) over the steps each image has taken
    loss: Tensor  # (B,) F_c
    alpha: Tensor  # (B,) the step just taken; 0 for an image that had stopped
    iterations: Tensor  # (B,) steps each image has taken
    converged: Tensor  # (B,) bool
    first_direction: Tensor | None = None  # (B, 1, h, w) TG at the start, from `descend`


def descend(
    objective: Loss,
    mask: Tensor,
    *,
    direction: Direction,
    step_rule: StepRule,
    max_iterations: int,
    tolerance: float,
    patience: int,
) -> Iterator[Step]:
    """Algorithm 1 from `mask`, one `Step` an iteration, until every image has converged.

    An image has converged when its last `patience` iterations together lowered F_c by less than
    `tolerance` times |F_c| at the start (a tolerance of 0: never). It then stays as it is while the
    others go on.
    """
    with torch.no_grad():
        loss = objective(mask[:, None])[:, 0]
    history = [loss]
    mean_mask = first_direction = torch.zeros_like(mask)
    converged = torch.zeros_like(loss, dtype=torch.bool)
    iterations = torch.zeros_like(loss, dtype=torch.long)
    for iteration in range(1, max_iterations + 1):
        with torch.no_grad():
            towards = direction(mask)
            first_direction = towards if iteration == 1 else first_direction
            alpha, stepped, stepped_loss = step_rule(objective, mask, loss, towards)
            mask = torch.where(converged.view(-1, 1, 1, 1), mask, stepped)
            loss = torch.where(converged, loss, stepped_loss)
            alpha = torch.where(converged, 0.0, alpha)
            iterations = iterations + ~converged
            change = (mask - mean_mask) / iterations.view(-1, 1, 1, 1)
            mean_mask = torch.where(converged.view(-1, 1, 1, 1), mean_mask, mean_mask + change)
            history.append(loss)
            if tolerance > 0 and iteration >= patience:
                gained = history[-1 - patience] - loss
                converged = converged | (gained < tolerance * history[0].abs())
        yield Step(iteration, mask, mean_mask, loss, alpha, iterations, converged, first_direction)
        if tolerance > 0 and iteration >= patience and converged.all():  # asking is waiting
            return
