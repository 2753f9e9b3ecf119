"""The measurements behind the defaults: a method over photos, with some settings varied.

    python benchmarks/tune.py PHOTOS/labels.csv --resolution 28 --vary lambda1=0.1,0.3
    python benchmarks/tune.py PHOTOS/labels.csv --method mask --vary average=true,false

Runs on the photos whose class index is divisible by 4 and whose label the model gives at least 0.3,
so that `igos evaluate` can report on others, which nothing was tuned on.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

import igos.descent
from igos.answer import Answer, answer, pose
from igos.data import list_photos, read_photo
from igos.image import blur
from igos.methods import make
from igos.models import load
from igos.models.classifier import Classifier
from igos.problem import Problem

MIN_PROBABILITY = 0.3


def problems(
    table: Path, classifier: Classifier, *, limit: int, batch: int, every: int = 1
) -> list[Problem]:
    """The first `limit` suitable photos, in `igos evaluate`'s order, a batch in each problem."""
    device = next(classifier.module.parameters()).device
    suitable: list[tuple[Tensor, int]] = []
    for photo in list_photos(table):
        label = int(photo.label or 1)
        if label % 4 == 0 and len(suitable) < limit:
            image = classifier.preprocess(read_photo(photo.path)).to(device)
            with torch.no_grad():
                probability = classifier.module(image[None]).softmax(dim=1)[0, label]
            if probability >= MIN_PROBABILITY:
                suitable.append((image, label))
    suitable = suitable[::every]
    return [
        pose(
            classifier,
            image := torch.stack([image for image, _ in some]),
            blur(image),
            torch.tensor([label for _, label in some]),
        )
        for some in (suitable[at : at + batch] for at in range(0, len(suitable), batch))
    ]


def figures(answers: Iterable[Answer]) -> str:
    """Mean deletion / insertion, their difference, and the seconds for a heatmap."""
    found = list(answers)
    deletion, insertion = (
        torch.tensor([curve.auc for one in found for curve in getattr(one, metric)]).mean().item()
        for metric in ("deletion", "insertion")
    )
    seconds = sum(one.seconds for one in found) / sum(len(one.heatmap) for one in found)
    return f"{deletion:.3f} / {insertion:.3f} ({insertion - deletion:.3f})  {seconds:.3f} s"


def with_inner_factor(f: Callable[[Tensor], Tensor], mask: Tensor, *, path_steps: int) -> Tensor:
    """Eq. 4 read literally: ∂f((s/S)·M)/∂M has an inner factor s/S. See docs/deviations.md."""

    def along_path(masks: Tensor) -> Tensor:  # (B, 1, 1, h, w) -> (B, 1)
        fractions = torch.arange(1, path_steps + 1, device=mask.device) / path_steps
        return f(fractions.view(-1, 1, 1, 1) * masks).mean(dim=1, keepdim=True)

    with torch.enable_grad():
        here = mask[:, None].detach().requires_grad_()
        (gradient,) = torch.autograd.grad(along_path(here).sum(), here)
    return gradient[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path, help="CSV with the columns file and class_index")
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--every", type=int, default=1, help="take every n-th suitable photo")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--method", default="igos")
    parser.add_argument("--resolution", type=int)
    parser.add_argument("--vary", action="append", default=[], metavar="SETTING=VALUE,VALUE,…")
    parser.add_argument("--inner-factor", action="store_true", help="Eq. 4 with its factor s/S")
    args = parser.parse_args()
    if args.inner_factor:
        if args.method not in ("igos", "igos-two-sided", "igos-paper"):
            parser.error(f"--inner-factor is I-GOS's: it does nothing for {args.method!r}")
        igos.descent.path_gradient = with_inner_factor
    classifier = load(
        args.model,
        weights=args.weights,
        device=args.device,
        precision=args.precision,
        compiled=args.compile,
    )
    over = problems(args.photos, classifier, limit=args.limit, every=args.every, batch=args.batch)
    certainty = torch.cat([problem.score(problem.image[:, None]) for problem in over])
    print(f"{args.model}, {len(certainty)} photos, mean probability {certainty.mean():.3f}")
    names = [text.partition("=")[0] for text in args.vary]
    values = [text.partition("=")[2].split(",") for text in args.vary]
    for combination in itertools.product(*values):
        settings = dict(zip(names, combination, strict=True))
        method = make(args.method, resolution=args.resolution, settings=settings)
        shown = " ".join(f"{name}={value}" for name, value in settings.items())
        row = figures(answer(method, problem, model=args.model) for problem in over)
        print(f"{args.method} {shown:32s}  {row}", flush=True)


if __name__ == "__main__":
    main()
