"""Seconds for one heatmap on the CPU: as `igos explain` does it, and in plain PyTorch.

    python benchmarks/explain_cpu.py

Both run the same settings on the sample photo for the same number of iterations. Plain means the
network as loaded (parameters that want gradients, batch norms, channels first), all path points in
one pass, one line-search trial after another.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from igos.answer import pose
from igos.data import sample_photo
from igos.descent import Armijo
from igos.image import blur, l1, phi, tv
from igos.methods.igos import IGOS
from igos.models import load
from igos.models.sources import efficientnet_lite


def plain(model: torch.nn.Module, image: Tensor, target: int, std: Tensor, method: IGOS) -> Tensor:
    """Algorithm 1 for one photo, written straight from the paper."""
    assert isinstance(method.resolution, int)
    assert isinstance(method.step_rule, Armijo)
    weights, rule, steps = method.regularisation, method.step_rule, method.path_steps
    baseline = blur(image)
    mask = torch.ones(1, 1, method.resolution, method.resolution, requires_grad=True)
    generator = torch.Generator().manual_seed(method.seed)

    def regulariser(m: Tensor) -> Tensor:
        return (weights.lambda1 * l1(m) + weights.lambda2 * tv(m)).sum()

    @torch.no_grad()
    def objective(m: Tensor) -> float:
        score = model(phi(image, baseline, m)).softmax(dim=1)[0, target]
        return float(score + regulariser(m))

    for _ in range(method.max_iterations):
        noise = torch.randn(steps, *image.shape[1:], generator=generator) * weights.noise / std
        fractions = (torch.arange(1, steps + 1) / steps).view(-1, 1, 1, 1)
        points = (fractions * mask.detach()).requires_grad_()
        scores = model(phi(image + noise, baseline, points)).softmax(dim=1)[:, target]
        scores.sum().backward()
        mask.grad = None
        regulariser(mask).backward()
        assert points.grad is not None
        assert mask.grad is not None
        total = points.grad.mean(dim=0, keepdim=True) + mask.grad
        before, squared, alpha = objective(mask.detach()), float(total.square().sum()), 0.0
        for alpha in rule.trials():
            moved = (mask.detach() - alpha * total).clamp(0, 1)
            if objective(moved) - before <= -alpha * rule.beta * squared:
                break
        mask = (mask.detach() - alpha * total).clamp(0, 1).requires_grad_()
    return 1 - mask.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resolution", type=int, default=28)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    fast = load("efficientnet_lite0", device="cpu")
    slow = efficientnet_lite(0)(None).module.eval()
    image = fast.preprocess(sample_photo())[None]
    target = int(fast.module(image).argmax())
    std = torch.tensor(fast.normalisation.std).view(-1, 1, 1)
    method = IGOS(resolution=args.resolution, tolerance=0.0)
    problem = pose(fast, image, blur(image), target)
    print(f"{torch.get_num_threads()} threads, {method.settings}")
    runs: dict[str, Callable[[], Tensor]] = {
        "igos": lambda: method(problem),
        "plain PyTorch": lambda: plain(slow, image, target, std, method),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(args.repeat):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    for name, values in seconds.items():
        best = min(values)
        print(f"{name:14s} {best:5.1f} s  (of {', '.join(f'{v:.1f}' for v in values)})")
    print(f"{min(seconds['plain PyTorch']) / min(seconds['igos']):.1f} times as fast")


if __name__ == "__main__":
    main()
