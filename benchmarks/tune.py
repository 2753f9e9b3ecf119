"""The measurements behind the defaults of `IGOS`: every combination of some settings.

    python benchmarks/tune.py PHOTOS --resolution 28 --vary lambda1=0.03,0.1,0.3 --vary noise=0,0.03

Runs on photos whose class index is divisible by 4, so that benchmarks/quality.py can report on
photos that nothing was tuned on.
"""

import argparse
import itertools
from pathlib import Path

from igos.methods import adjust
from igos.methods.igos import IGOS
from igos.models import load
from quality import measure, problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--resolution", type=int, default=28)
    parser.add_argument("--vary", action="append", default=[], metavar="SETTING=VALUE,VALUE,…")
    parser.add_argument("--limit", type=int, default=96)
    parser.add_argument("--batch", type=int, default=48)
    args = parser.parse_args()
    classifier = load(args.model, weights=args.weights, device=args.device)
    over = problems(args.photos, classifier, remainder=0, limit=args.limit, batch=args.batch)
    names = [text.partition("=")[0] for text in args.vary]
    values = [text.partition("=")[2].split(",") for text in args.vary]
    for combination in itertools.product(*values):
        settings = dict(zip(names, combination, strict=True))
        quality = measure(adjust(IGOS(resolution=args.resolution), settings), over)
        shown = " ".join(f"{name}={value}" for name, value in settings.items())
        print(f"{args.resolution:4d}  {shown:32s}  {quality.row()}", flush=True)


if __name__ == "__main__":
    main()
