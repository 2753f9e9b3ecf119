"""Algorithm 1 for one photo in plain PyTorch, as a reader of the paper would write it first.

What our speed is measured against. The network as it was loaded: float32, parameters that want
gradients, batch norms as they are, channels first. All path points share one pass; the line search
tries step after step.
"""

import torch
from torch import Tensor, nn

from igos.descent import Armijo
from igos.image import l1, phi, tv
from igos.methods.igos import IGOS


def reference(
    model: nn.Module,
    image: Tensor,
    baseline: Tensor,
    target: int,
    method: IGOS,
    *,
    std: tuple[float, ...],
    search_on_path: bool,
) -> Tensor:
    """The heatmap (1, 1, h, w) of one photo (1, 3, H, W), after `max_iterations` iterations.

    `search_on_path`: a trial of the line search costs S forward passes, on the noisy path, as in
    the paper's authors' later program. Otherwise it costs one, as Eq. 8 needs.
    """
    assert isinstance(method.resolution, int)
    assert isinstance(method.step_rule, Armijo)
    weights, rule, count = method.regularisation, method.step_rule, method.path_steps
    side, device, dtype = method.resolution, image.device, image.dtype
    generator = torch.Generator(device).manual_seed(method.seed)
    deviation = weights.noise / image.new_tensor(std).view(-1, 1, 1)
    fractions = (torch.arange(1, count + 1, device=device, dtype=dtype) / count).view(-1, 1, 1, 1)
    mask = image.new_ones(1, 1, side, side)

    def regulariser(m: Tensor) -> Tensor:
        return (weights.lambda1 * l1(m) + weights.lambda2 * tv(m)).sum()

    for _ in range(method.max_iterations):
        noise = image.new_empty(count, *image.shape[1:]).normal_(generator=generator)

        def on_path(m: Tensor, noise: Tensor = noise) -> Tensor:
            points = phi(image + deviation * noise, baseline, fractions * m)
            scores: Tensor = model(points).softmax(dim=1)[:, target]
            return scores.mean()

        def objective(m: Tensor) -> float:
            with torch.no_grad():
                if search_on_path:
                    score = on_path(m)
                else:
                    score = model(phi(image, baseline, m)).softmax(dim=1)[0, target]
                return float(score + regulariser(m))

        points = (fractions * mask).requires_grad_()
        scores = model(phi(image + deviation * noise, baseline, points)).softmax(dim=1)[:, target]
        scores.mean().backward()
        own = mask.clone().requires_grad_()
        regulariser(own).backward()
        assert points.grad is not None
        assert own.grad is not None
        total = points.grad.sum(dim=0, keepdim=True) + own.grad
        before, moved = objective(mask), mask
        squared, unit = float(total.square().sum()), float(rule.unit(total))
        for trial in rule.trials():
            alpha = trial * unit
            moved = (mask - alpha * total).clamp(0, 1)
            if objective(moved) - before <= -alpha * rule.beta * squared:
                break
        mask = moved
    return 1 - mask
