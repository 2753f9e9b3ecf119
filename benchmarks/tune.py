"""The measurements behind the defaults of `IGOS`: every combination of some settings.

    python benchmarks/tune.py PHOTOS --resolution 28 --vary lambda1=0.03,0.1,0.3 --vary noise=0,0.03

Runs on photos whose class index is divisible by 4, so that benchmarks/quality.py can report on
photos that nothing was tuned on.
"""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

import igos.descent
from igos.methods import adjust
from igos.methods.igos import IGOS
from igos.models import load
from quality import arguments, eligible, measure, problems, spread


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
    parser = arguments(__doc__.splitlines()[0], limit=250)
    parser.add_argument("--resolution", type=int, default=28)
    parser.add_argument("--vary", action="append", default=[], metavar="SETTING=VALUE,VALUE,…")
    parser.add_argument("--inner-factor", action="store_true", help="Eq. 4 with its factor s/S")
    args = parser.parse_args()
    if args.inner_factor:
        igos.descent.path_gradient = with_inner_factor
    classifier = load(args.model, weights=args.weights, device=args.device)
    photos = spread(eligible(args.photos, classifier, remainder=0), args.limit)
    over = problems(photos, classifier, batch=args.batch)
    names = [text.partition("=")[0] for text in args.vary]
    values = [text.partition("=")[2].split(",") for text in args.vary]
    for combination in itertools.product(*values):
        settings = dict(zip(names, combination, strict=True))
        quality = measure(adjust(IGOS(resolution=args.resolution), settings), over)
        shown = " ".join(f"{name}={value}" for name, value in settings.items())
        print(f"{args.resolution:4d}  {shown:32s}  {quality.row()}", flush=True)


if __name__ == "__main__":
    main()
