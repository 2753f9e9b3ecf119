"""Supplement IV: what does I-GOS show of a photo that was changed to fool the model?

Clean photos keep their class when only the marked parts are shown; adversarial ones need nearly
all of the photo. The attack is MI-FGSM (Dong et al., CVPR 2018).
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from igos.answer import classified, device_of, tried
from igos.data import Listed, decode, list_photos, read_content
from igos.errors import IgosError
from igos.experiments.bench import AsItIs, Bench, Kept, Report, save_pixels
from igos.experiments.failure import reach
from igos.experiments.pictures import explanations
from igos.files import prepare_folder
from igos.image import Normalisation
from igos.passes import evaluating
from igos.study.formats import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 28
METHOD = "igos"
KINDS = ("clean", "adversarial")
SHOWN = 3  # photos in the figure
AT_ONCE = 32  # photos attacked together


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
                loss = F.cross_entropy(model(normalisation.normalise(at)), classes, reduction="sum")
                (gradient,) = torch.autograd.grad(loss, at)
                size = gradient.abs().mean(dim=(1, 2, 3), keepdim=True)
                momentum = self.decay * momentum + gradient / size.clamp(min=1e-30)
                moved = moved + self.epsilon / self.steps * momentum.sign()
                moved = moved.clamp(pixels - self.epsilon, pixels + self.epsilon).clamp(0, 1)
        return moved.detach()


def adversarial(bench: Bench) -> Report:
    """I-GOS of each photo, clean and attacked, for the class that the model sees in it."""
    folder = bench.folder("adversarial")
    height, width = bench.size
    as_it_is = AsItIs(bench.classifier.normalisation, (width, height))
    ready = replace(bench.classifier, preprocess=as_it_is)
    pairs = list(_attacked(bench, folder))
    if not pairs:
        raise IgosError(f"no photo has a class of at least {bench.min_probability}")
    own = replace(bench, classifier=ready, target="predicted", min_probability=0.0, limit=None)
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


def _attacked(bench: Bench, folder: Path) -> Iterator[str]:
    """The names of the photos that lie in both folders, clean and attacked, once this is done."""
    for kind in KINDS:
        prepare_folder(folder / kind)
    left = bench.limit or len(bench.photos)
    for start in range(0, len(bench.photos), AT_ONCE):
        names = _attack(bench, bench.photos[start : start + AT_ONCE], folder, left)
        yield from names
        left -= len(names)
        if left == 0:
            return


def _attack(bench: Bench, photos: Sequence[Listed], folder: Path, most: int) -> list[str]:
    """Attack the first that the model is sure of; what is there already is not made again."""
    classifier, device = bench.classifier, device_of(bench.classifier)
    readable = []
    for photo in photos:
        try:
            content = read_content(photo.path)
            image = tried(classifier, classifier.preprocess, decode(photo.path, content))
            digest = hashlib.sha256(content).hexdigest()[:12]
            readable.append((f"{Path(photo.name).stem}-{digest}", image))
        except IgosError:
            continue  # igos evaluate says which; here they are just not there
    if not readable:
        return []
    images = torch.stack([image for _, image in readable]).to(device, torch.float32)
    sure, classes = classified(classifier, images).max(dim=1)
    chosen = [at for at in range(len(readable)) if sure[at] >= bench.min_probability][:most]
    names = [readable[at][0] for at in chosen]
    todo = [
        (at, name)
        for at, name in zip(chosen, names, strict=True)
        if not all((folder / kind / f"{name}.png").exists() for kind in KINDS)
    ]
    if todo:
        rows = [at for at, _ in todo]
        pixels = classifier.normalisation.pixels(images[rows]).clamp(0, 1)
        attacked = MIFGSM()(
            classifier.module, pixels, classes[rows].to(device), classifier.normalisation
        )
        for kind, pictures in zip(KINDS, (pixels, attacked), strict=True):
            for (_, name), picture in zip(todo, pictures, strict=True):
                save_pixels(picture, folder / kind / f"{name}.png")
    return names


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
) -> "dict[str, Figure]":
    from igos.plot import comparison

    wanted = {f"{kind}/{name}.png": kind for name in names for kind in KINDS}
    found = {
        photo: replace(one, method=wanted[photo])
        for photo, (one,) in explanations(bench, kept, [p for p in photos if p.name in wanted])
    }
    return {name: comparison([found[f"{kind}/{name}.png"] for kind in KINDS]) for name in names}
