"""Seconds for one heatmap on the CPU: as `igos explain` does it, and in plain PyTorch.

    python benchmarks/explain_cpu.py

Both run the same settings on the sample photo for the same number of iterations; plain means
benchmarks/reference_loop.py.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from igos.answer import pose
from igos.data import sample_photo
from igos.image import blur
from igos.methods.igos import IGOS
from igos.models import load
from igos.models.sources import efficientnet_lite
from reference_loop import reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resolution", type=int, default=28)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    fast = load("efficientnet_lite0", device="cpu")
    slow = efficientnet_lite(0)(None).module.eval()
    image = fast.preprocess(sample_photo())[None]
    target = int(fast.module(image).argmax())
    method = IGOS(resolution=args.resolution, tolerance=0.0, average=False)
    problem = pose(fast, image, blur(image), target)
    print(f"{torch.get_num_threads()} threads, {method.settings}")
    runs: dict[str, Callable[[], Tensor]] = {
        "igos": lambda: method(problem),
        "plain PyTorch": lambda: reference(
            slow,
            image,
            blur(image),
            target,
            method,
            std=fast.normalisation.std,
            search_on_path=False,
        ),
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
