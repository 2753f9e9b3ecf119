"""Milliseconds a heatmap on a GPU, next to what the bare network takes and to a plain loop.

    python benchmarks/speed.py --out speed.json
    python benchmarks/speed.py --photos PHOTOS/labels.csv    # and what the speed costs in quality

The floor of a time is that of its passes alone, at the rates of the same model measured in the same
run: `forward and back` images for the path, `forward` images for the line search and the curves.
Networks other than EfficientNet-Lite0 have random weights, which take as long as trained ones.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import get_model
from torchvision.models.resnet import Bottleneck

from igos.answer import pose
from igos.data import list_photos, read_photo
from igos.descent import Armijo
from igos.image import Normalisation, blur
from igos.methods.igos import IGOS
from igos.metrics.curves import deletion, insertion
from igos.models import load, pick_device, quicken
from igos.models.classifier import Classifier
from igos.models.sources import efficientnet_lite
from igos.problem import Problem
from reference_loop import reference

SIDE = 224
PAPER = replace(IGOS.paper(), tolerance=0.0)
OURS = replace(IGOS(), tolerance=0.0)
MODELS = ("torchvision:resnet50", "torchvision:vgg19", "efficientnet_lite0")
# Ways to run the plain loop: how its convolutions round, and whether a trial of the line search
# costs S passes. PyTorch by default rounds to tf32.
PLAIN = {"float32": ("ieee", True), "tf32": ("tf32", True), "tf32_one_pass": ("tf32", False)}


def network(name: str, device: str, args: argparse.Namespace) -> tuple[Classifier, nn.Module]:
    """A classifier ready to run, and the plain network that it was made of."""
    options = {"precision": args.precision, "compiled": args.compile}
    if name == "efficientnet_lite0":
        plain = efficientnet_lite(0)(None).module.eval()
        return load(name, device=device, **options), plain.to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = get_model(name.partition(":")[2], weights=None)
        calibrate(module)
    bare = Classifier(name, module.eval(), lambda _: torch.empty(0), Normalisation())
    ready = quicken(bare, pick_device(device), torch.rand(1, 3, SIDE, SIDE), **options)
    return ready, module.to(device)


@torch.no_grad()
def calibrate(module: nn.Module) -> None:
    """As tame as a trained network, for half precision: untrained ones amplify any rounding.

    Batch norms get the statistics of some noise; what a residual block adds is small.
    """
    for block in module.modules():
        if isinstance(block, Bottleneck):
            nn.init.constant_(block.bn3.weight, 0.2)
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the plain mean
    if norms:
        module.train()(torch.rand(8, 3, SIDE, SIDE))


def problem_of(classifier: Classifier, count: int, device: str) -> Problem:
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(count, 3, SIDE, SIDE, generator=generator).to(device)
    return pose(classifier, image, blur(image), torch.arange(count) % 1000)


def seconds(work: Callable[[], Any], repeat: int) -> float:
    """The median of some runs, after one to warm up."""

    def once() -> float:
        wait()
        start = time.perf_counter()
        work()
        wait()
        return time.perf_counter() - start

    once()
    return statistics.median(once() for _ in range(repeat))


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def rates(problem: Problem, passes: int, repeat: int) -> tuple[float, float]:
    """Images a second through the bare model: forward and back, and forward."""
    run, count = problem.fast, problem.chunk
    assert run is not None
    images = problem.image[:1].expand(count, -1, -1, -1).contiguous()

    def forward() -> None:
        with run.ready(), torch.no_grad():
            for _ in range(passes):
                run(images, count)

    def both() -> None:
        with run.ready(), torch.enable_grad():
            for _ in range(passes):
                inputs = images.detach().requires_grad_()
                output = run(inputs, count)
                torch.autograd.grad(output, inputs, torch.ones_like(output))

    return passes * count / seconds(both, repeat), passes * count / seconds(forward, repeat)


def floor(method: IGOS, back: float, forward: float) -> float:
    """Seconds a heatmap whose passes cost all."""
    assert isinstance(method.step_rule, Armijo)
    trials = len(method.step_rule.trials())
    its = method.max_iterations
    return its * method.path_steps / back + (1 + its * trials) / forward


def time_model(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    start = time.perf_counter()
    classifier, plain = network(name, args.device, args)
    prepared = time.perf_counter() - start
    problem = problem_of(classifier, args.count, args.device)
    assert classifier.fast is not None
    back, forward = rates(problem, args.passes, args.repeat)
    rows = []
    for title, method in (("S=20, 15 iterations", PAPER), ("defaults", OURS)):
        took = seconds(partial(method, problem), args.repeat) / args.count
        least = floor(method, back, forward)
        rows.append({"what": title, "ms": 1e3 * took, "floor_ms": 1e3 * least})
    heatmap = torch.rand(args.count, 1, 28, 28, device=args.device)
    points = 2 * len(deletion(problem, heatmap)[0].score)
    both = lambda: [metric(problem, heatmap) for metric in (deletion, insertion)]  # noqa: E731
    took = seconds(both, args.repeat) / args.count
    rows.append({"what": "both curves", "ms": 1e3 * took, "floor_ms": 1e3 * points / forward})
    for row in rows:
        row["efficiency"] = row["floor_ms"] / row["ms"]
    for kind, (rounding, search_on_path) in (PLAIN if args.reference else {}).items():
        took = plain_seconds(plain, problem, args.reference, rounding, search_on_path)
        rows[0][f"{kind}_ms"], rows[0][f"{kind}_times"] = 1e3 * took, 1e3 * took / rows[0]["ms"]
    common = {
        "model": name,
        "precision": classifier.fast.precision,
        "compiled": classifier.fast.compiled is not None,
        "chunk": problem.chunk,
        "prepared_s": prepared,
        "forward_and_back": back,
        "forward": forward,
    }
    return [{**common, **row} for row in rows]


def profile(name: str, args: argparse.Namespace) -> str:
    """Where the device's time goes, kernel by kernel, for the defaults."""
    from torch.profiler import ProfilerActivity, profile

    classifier, _ = network(name, args.device, args)
    problem = problem_of(classifier, args.count, args.device)
    OURS(problem)
    wait()
    on_device = args.device.startswith("cuda")
    kind = ProfilerActivity.CUDA if on_device else ProfilerActivity.CPU
    with profile(activities=[kind]) as found:
        OURS(problem)
        wait()
    by = "self_device_time_total" if on_device else "self_cpu_time_total"
    table: str = found.key_averages().table(sort_by=by, row_limit=12, max_name_column_width=70)
    return table


def plain_seconds(
    net: nn.Module, problem: Problem, count: int, rounding: str, search_on_path: bool
) -> float:
    """Seconds a heatmap by the plain loop."""
    cudnn: Any = torch.backends.cudnn
    convolutions = cudnn.conv
    before = convolutions.fp32_precision
    try:
        convolutions.fp32_precision = rounding
        loop = partial(plain_loop, net, problem, search_on_path=search_on_path)
        return seconds(lambda: [loop(at) for at in range(count)], 1) / count
    finally:
        convolutions.fp32_precision = before


def plain_loop(net: nn.Module, problem: Problem, at: int, *, search_on_path: bool) -> Tensor:
    one = slice(at, at + 1)
    return reference(
        net,
        problem.image[one],
        problem.baseline[one],
        at,
        PAPER,
        std=problem.std,
        search_on_path=search_on_path,
    )


def quality(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Deletion and insertion, all photos at once and fast, and a few at a time in float32."""
    rows: list[dict[str, Any]] = []
    fast = load("efficientnet_lite0", device=args.device, compiled=args.compile)
    exact = load("efficientnet_lite0", device=args.device, precision="fp32")
    photos = list_photos(args.photos)[: args.quality]
    image = torch.stack([fast.preprocess(read_photo(photo.path)) for photo in photos])
    image = image.to(args.device)
    with torch.no_grad():
        target = exact.module(image).argmax(dim=1)
    for side in (28, 224):
        method = IGOS(resolution=side)
        together = method(pose(fast, image, blur(image), target))
        few = args.at_a_time
        slow = [
            method(pose(exact, some, blur(some), of))
            for some, of in zip(image.split(few), target.split(few), strict=True)
        ]
        judge = pose(exact, image, blur(image), target)
        for metric in (deletion, insertion):
            ours, theirs = (
                torch.tensor([curve.auc for curve in metric(judge, heatmap)])
                for heatmap in (together, torch.cat(slow))
            )
            rows.append(
                {
                    "what": f"{metric.__name__} {side}×{side}, {len(image)} photos",
                    "fast": ours.mean().item(),
                    "float32": theirs.mean().item(),
                    "difference": (ours.mean() - theirs.mean()).item(),
                    "standard_error": ((ours - theirs).std() / len(image) ** 0.5).item(),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--count", type=int, default=128, help="photos at once")
    parser.add_argument("--repeat", type=int, default=3, help="timings, of which the median counts")
    parser.add_argument("--passes", type=int, default=10, help="to measure the raw rates")
    parser.add_argument("--reference", type=int, default=2, help="photos for the plain loop")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--profile", action="store_true", help="the kernels of the first model")
    parser.add_argument("--photos", type=Path, help="CSV of photos, to compare the quality")
    parser.add_argument("--quality", type=int, default=96, help="photos for that")
    parser.add_argument("--at-a-time", type=int, default=1, help="of those, in float32")
    parser.add_argument("--out", type=Path, default=Path("speed.json"))
    args = parser.parse_args()
    rows = []
    for name in filter(None, args.models.split(",")):
        for row in time_model(name, args):
            rows.append(row)
            print(
                f"{name:22s} {row['precision']} {'compiled' if row['compiled'] else 'eager'}  "
                f"{row['what']:20s} {row['ms']:7.2f} ms, floor {row['floor_ms']:6.2f}, "
                f"efficiency {row['efficiency']:.2f}"
                + "".join(
                    f", {row[f'{kind}_times']:.0f} times the plain loop ({kind})"
                    for kind in PLAIN
                    if f"{kind}_times" in row
                ),
                flush=True,
            )
        print(
            f"{'':22s} {row['forward_and_back']:.0f} images/s forward and back, "
            f"{row['forward']:.0f} forward, prepared in {row['prepared_s']:.0f} s",
            flush=True,
        )
        args.out.write_text(json.dumps(rows, indent=1))  # kept if the next one fails
    if args.photos is not None:
        for row in quality(args):
            rows.append(row)
            print(f"{row['what']}: " + ", ".join(f"{k} {v:.4f}" for k, v in list(row.items())[1:]))
    if args.profile:
        print(profile(args.models.partition(",")[0], args))
    args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
