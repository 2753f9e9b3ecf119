"""Does a heatmap made for one network convince another? A mask that only fools its own does not.

    python benchmarks/transfer.py PHOTOS/labels.csv --judge torchvision:resnet50 --weights FILE

Heatmaps are made for `--model` and tested on it and on the judge: the same pixels, the same
baseline, each network's own normalisation. Photos count whose label both give at least 0.3.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from igos.answer import pose
from igos.data import list_photos, read_photo
from igos.image import blur
from igos.methods import make
from igos.metrics.curves import deletion, insertion
from igos.models import load
from igos.models.classifier import Classifier
from igos.problem import Problem

MIN_PROBABILITY = 0.3


def posed(maker: Classifier, judge: Classifier, pixels: Tensor, label: int) -> list[Problem]:
    """The same question, to the network that the heatmap is made for and to the judge."""
    images = [one.normalisation.normalise(pixels)[None] for one in (maker, judge)]
    return [
        pose(one, image, blur(image), label)
        for one, image in zip((maker, judge), images, strict=True)
    ]


def sure(problem: Problem) -> bool:
    return float(problem.score(problem.image[:, None])) >= MIN_PROBABILITY


def areas(problem: Problem, heatmap: Tensor) -> Tensor:
    return torch.tensor([metric(problem, heatmap)[0].auc for metric in (deletion, insertion)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path, help="CSV with the columns file and class_index")
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--judge", required=True)
    parser.add_argument("--weights", type=Path, help="of the judge")
    parser.add_argument("--methods", default="igos,igos-two-sided,random")
    parser.add_argument("--resolutions", default="224,28")
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    maker = load(args.model, device=args.device)
    judge = load(args.judge, weights=args.weights, device=args.device)
    device = next(maker.module.parameters()).device
    asked: list[list[Problem]] = []
    for photo in list_photos(args.photos):
        if len(asked) < args.limit and photo.label is not None:
            pixels = maker.normalisation.pixels(maker.preprocess(read_photo(photo.path)).to(device))
            question = posed(maker, judge, pixels, int(photo.label))
            if all(map(sure, question)):
                asked.append(question)
    print(f"{len(asked)} photos: deletion / insertion on {args.model} and on {args.judge}")
    for side in map(int, args.resolutions.split(",")):
        for name in args.methods.split(","):
            method = make(name, resolution=side)
            found = []
            for question in asked:
                heatmap = method(question[0])
                found.append(torch.stack([areas(problem, heatmap) for problem in question]))
            own, other = torch.stack(found).mean(dim=0).tolist()
            shown = "   ".join(f"{a:.3f} / {b:.3f}" for a, b in (own, other))
            print(f"{side:4d} {name:20s} {shown}", flush=True)


if __name__ == "__main__":
    main()
