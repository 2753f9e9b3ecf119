"""Supplement IV: what does I-GOS show of a photo that was changed to fool the model?

Clean photos keep their class when only the marked parts are shown; adversarial ones need nearly
all of the photo. The attack is MI-FGSM (Dong et al., CVPR 2018).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from igos.answer import tried
from igos.data import Listed, list_photos
from igos.errors import IgosError
from igos.experiments.bench import Bench, Kept, Report, save_pixels
from igos.experiments.failure import reach
from igos.experiments.pictures import explanations
from igos.experiments.sure import AT_ONCE, Sure, sure, together
from igos.files import png, prepare_folder
from igos.image import Normalisation
from igos.passes import dtype_of, evaluating
from igos.study.formats import markdown
from igos.study.halving import batches, halving
from igos.study.result import Failure

SIDE = 28
METHOD = "igos"
KINDS = ("clean", "adversarial")
SHOWN = 3  # photos in the figure


@dataclass(frozen=True)
class MIFGSM:
    """The momentum iterative fast gradient sign method, untargeted."""

    epsilon: float = 16 / 255  # Dong et al.; how far a pixel (0..1) may move
    steps: int = 10  # Dong et al.
    decay: float = 1.0  # Dong et al.

    def __call__(
        self, model: nn.Module, pixels: Tensor, classes: Tensor, normalisation: Normalisation
    ) -> Tensor:
        """Photos (B, 3, H, W) in 0..1, each within `epsilon` of its own, away from its class."""
        momentum = torch.zeros_like(pixels)
        moved = pixels.clone()
        with evaluating(model), torch.enable_grad():
            for _ in range(self.steps):
                at = moved.detach().requires_grad_()
                images = normalisation.normalise(at)
                logits = model(images.to(dtype_of(model, images))).float()
                loss = F.cross_entropy(logits, classes, reduction="sum")
                (gradient,) = torch.autograd.grad(loss, at)
                size = gradient.abs().mean(dim=(1, 2, 3), keepdim=True)
                momentum = self.decay * momentum + gradient / size.clamp(min=1e-30)
                moved = moved + self.epsilon / self.steps * momentum.sign()
                moved = moved.clamp(pixels - self.epsilon, pixels + self.epsilon).clamp(0, 1)
        return moved.detach()


def adversarial(bench: Bench) -> Report:
    """I-GOS of each photo, clean and attacked, for the class that the model sees in it."""
    folder = bench.folder("adversarial")
    pairs = _attacked(bench, folder)
    own = replace(
        bench, classifier=bench.unprepared, target="predicted", min_probability=0.0, limit=None
    )
    wanted = {f"{kind}/{name}.png" for name in pairs for kind in KINDS}
    photos = [photo for photo in list_photos(folder) if photo.name in wanted]
    methods = {METHOD: bench.maker(METHOD)}
    kept = own.study("adversarial", methods, [SIDE], photos=photos, heatmaps=True)
    found = _found(kept)
    pairs = [name for name in pairs if all(f"{kind}/{name}.png" in found for kind in KINDS)]
    fooled = [
        name
        for name in pairs
        if found[f"clean/{name}.png"].predicted != found[f"adversarial/{name}.png"].predicted
    ]
    lines = [
        _line(kind, [found[f"{kind}/{name}.png"] for name in fooled]) for kind in KINDS if fooled
    ]
    attack = MIFGSM()
    text = "\n\n".join(
        [
            "# Adversarial photos",
            f"{bench.classifier.name}, MI-FGSM with ε = {attack.epsilon * 255:.0f}/255 and "
            f"{attack.steps} steps: {len(fooled)} of {len(pairs)} photos are now another class. "
            f"Of those, {METHOD} at {SIDE}×{SIDE} for the class that the model sees:",
            markdown(
                ["", "photos", "probability", "deletion", "insertion", "ratio, mean", "median"],
                lines,
            ),
            "Ratio: the share of the photo that must be shown, most important pixels first, until "
            "the class has half of its probability. The paper has pictures of this and no figures: "
            "normal photos need the highlighted parts alone, adversarial ones almost everything.",
        ]
    )
    return Report("adversarial", text, _figures(own, kept, photos, fooled[:SHOWN]))


def _attacked(bench: Bench, folder: Path) -> list[str]:
    """The names of the photos that lie in both folders, clean and attacked, once this is done."""
    for kind in KINDS:
        prepare_folder(folder / kind)

    def attacked(photo: Sure) -> bool:
        return all((folder / kind / f"{photo.name}.png").exists() for kind in KINDS)

    names: list[str] = []
    failures: list[str] = []
    for some in batches(sure(bench), AT_ONCE):
        new = [photo for photo in some if not attacked(photo)]
        made = halving(partial(_save_both, bench, folder), new)
        failures += [one.reason for one in made if isinstance(one, Failure)]
        names += [photo.name for photo in some if attacked(photo)]
    if not names:
        raise IgosError(f"no photo could be attacked: {failures[0]}")
    return names


def _save_both(bench: Bench, folder: Path, photos: Sequence[Sure]) -> Sequence[object]:
    """The pictures as the model sees them, clean and attacked."""
    classifier, normalisation = bench.classifier, bench.classifier.normalisation
    clean = normalisation.pixels(together(bench, [photo.image for photo in photos])).clamp(0, 1)
    classes = torch.tensor([photo.label for photo in photos], device=clean.device)
    attacked = tried(
        classifier,
        lambda pixels: MIFGSM()(classifier.module, pixels, classes, normalisation),
        clean,
    )
    for kind, pictures in zip(KINDS, (clean, attacked), strict=True):
        for photo, picture in zip(photos, pictures, strict=True):
            save_pixels(picture, folder / kind / f"{photo.name}.png")
    return photos


@dataclass(frozen=True)
class _Found:
    predicted: int
    probability: float
    deletion: float
    insertion: float
    ratio: float


def _found(kept: Kept) -> dict[str, _Found]:
    rows = kept.select(
        "f.name, p.predicted, p.probability, r.deletion, r.insertion, r.fraction, r.insertion_curve"
    )
    return {
        name: _Found(*(*figures, reach(json.loads(fraction), json.loads(curve))))
        for name, *figures, fraction, curve in rows
    }


def _line(kind: str, found: Sequence[_Found]) -> list[str]:
    means = [
        fmean(getattr(one, name) for one in found)
        for name in ("probability", "deletion", "insertion", "ratio")
    ]
    middle = median(one.ratio for one in found)
    return [kind, str(len(found)), *(f"{value:.3f}" for value in (*means, middle))]


def _figures(
    bench: Bench, kept: Kept, photos: Sequence[Listed], names: Sequence[str]
) -> dict[str, bytes]:
    from igos.plot import comparison

    wanted = {f"{kind}/{name}.png": kind for name in names for kind in KINDS}
    found = {
        photo: replace(one, method=wanted[photo])
        for photo, (one,) in explanations(bench, kept, [p for p in photos if p.name in wanted])
    }
    return {
        name: png(comparison([found[f"{kind}/{name}.png"] for kind in KINDS])) for name in names
    }
