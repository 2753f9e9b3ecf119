"""Deletion and insertion of I-GOS over a folder of labelled photos.

    python benchmarks/quality.py PHOTOS --resolutions 224,112,28,14,7 --limit 64

PHOTOS holds `labels.csv` (file, class_index). The class explained is the label. Photos count whose
label the model gives at least 0.3 and whose class the defaults were not tuned on (class_index % 4
== 2; benchmarks/tune.py takes 0). Of those, --limit are taken evenly spaced: ImageNet's classes are
in order, all animals first.
"""

import argparse
import csv
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from igos.answer import CHUNK
from igos.data import read_photo
from igos.descent import Step
from igos.image import blur
from igos.methods import make
from igos.methods.igos import IGOS
from igos.metrics.curves import deletion, insertion
from igos.models import load
from igos.models.classifier import Classifier
from igos.problem import Problem

MIN_PROBABILITY = 0.3


@dataclass(frozen=True)
class Quality:
    """Mean figures of one method over photos."""

    deletion: float
    insertion: float
    iterations: float
    loss: float
    seconds: float  # a heatmap, curves not counted

    def row(self) -> str:
        return (
            f"{self.deletion:.3f} / {self.insertion:.3f} ({self.insertion - self.deletion:.3f})  "
            f"F {self.loss:.3f}  iterations {self.iterations:4.1f}  {self.seconds:.3f} s"
        )


def eligible(folder: Path, classifier: Classifier, *, remainder: int) -> list[tuple[Tensor, int]]:
    """Image and label of every photo with class_index % 4 == remainder that the model knows."""
    device = next(classifier.module.parameters()).device
    found = []
    with (folder / "labels.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            label = int(row["class_index"])
            if label % 4 != remainder:
                continue
            image = classifier.preprocess(read_photo(folder / row["file"])).to(device)
            with torch.no_grad():
                probability = classifier.module(image[None]).softmax(dim=1)[0, label]
            if probability >= MIN_PROBABILITY:
                found.append((image, label))
    return found


def spread(photos: list[tuple[Tensor, int]], limit: int) -> list[tuple[Tensor, int]]:
    """`limit` of them, evenly spaced."""
    count = min(limit, len(photos))
    return [photos[at * len(photos) // count] for at in range(count)]


def problems(
    photos: list[tuple[Tensor, int]], classifier: Classifier, *, batch: int
) -> list[Problem]:
    return [
        Problem(
            classifier.module,
            image := torch.stack([image for image, _ in some]),
            blur(image),
            torch.tensor([label for _, label in some]),
            std=classifier.normalisation.std,
            chunk=CHUNK["cpu"] if image.device.type == "cpu" else 256,
        )
        for some in (photos[at : at + batch] for at in range(0, len(photos), batch))
    ]


def measure(method: IGOS, over: list[Problem]) -> Quality:
    sums = torch.zeros(5, dtype=torch.float64)
    for problem in over:
        seconds, last = timed(method.steps(problem))
        heatmap = method.heatmap(last)
        for d, i in zip(deletion(problem, heatmap), insertion(problem, heatmap), strict=True):
            sums += torch.tensor([d.auc, i.auc, 0, 0, 0])
        totals = [0, 0, last.iterations.sum().item(), last.loss.sum().item(), seconds]
        sums += torch.tensor(totals)
    return Quality(*(sums / sum(len(problem.image) for problem in over)).tolist())


def timed(steps: Iterator[Step]) -> tuple[float, Step]:
    start = time.perf_counter()
    *_, last = steps
    last.mask.sum().item()  # waits for the device
    return time.perf_counter() - start, last


def arguments(description: str, *, limit: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int, default=limit)
    parser.add_argument("--batch", type=int, default=32)
    return parser


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], limit=64)
    parser.add_argument("--methods", default="igos,igos-paper")
    parser.add_argument("--resolutions", default="224,112,28,14,7")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    classifier = load(args.model, weights=args.weights, device=args.device)
    photos = spread(eligible(args.photos, classifier, remainder=2), args.limit)
    over = problems(photos, classifier, batch=args.batch)
    certainty = torch.cat([problem.score(problem.image[:, None]) for problem in over]).mean()
    print(f"{args.model}, {len(photos)} photos, mean probability {certainty:.3f}")
    print("deletion / insertion (ins − del)")
    figures = []
    for resolution in map(int, args.resolutions.split(",")):
        for name in args.methods.split(","):
            method = make(name, resolution=resolution)
            assert isinstance(method, IGOS)
            quality = measure(method, over)
            print(f"{resolution:4d}  {name:10s}  {quality.row()}", flush=True)
            figures.append({"resolution": resolution, "method": name, **vars(quality)})
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
