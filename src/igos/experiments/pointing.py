"""Table 6: the pointing game on VOC07 and COCO, and the grid pointing game on any photos.

The grid pointing game (Böhle et al., CVPR 2021) needs no boxes: photos of different classes, of
which the model is sure, make the cells of one picture; the heatmap of a class should point at its
cell.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean

import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor

from igos.boxes import Boxed, coco, is_voc, voc
from igos.data import Listed, read_photo
from igos.errors import IgosError
from igos.experiments.bench import Bench, Kept, Report, save_pixels
from igos.experiments.sure import sure
from igos.files import prepare_folder
from igos.methods import METHODS
from igos.methods.base import Maker
from igos.metrics.pointing import hit, share
from igos.study.formats import markdown
from igos.study.result import unpack

SIDES = (28, 14, 7)
NAMES = [name for name in METHODS if name != "mwp"]  # the same map as excitation-bp
CELLS = 2  # a side of the grid
SEEN = 0.1  # the probability in the grid from which the model still sees a cell's class
GRID_HEAD = ("heatmaps", "hits, %", "share")
# Mean accuracy in % on COCO and VOC07; VGG16.
PUBLISHED = {
    "AM": (37.10, 76.00),
    "Deconv": (38.60, 75.50),
    "MWP": (39.50, 76.90),
    "Excitation BP": (49.60, 80.00),
    "RISE": (50.71, 87.33),
    "Mask (14×14)": (40.03, 79.45),
    "Mask (28×28)": (43.24, 77.57),
    "I-GOS (14×14)": (47.16, 85.81),
    "I-GOS (28×28)": (49.62, 83.61),
}


def pointing(bench: Bench) -> Report:
    """VOC if PHOTOS holds a VOCdevkit, COCO if it is an instances_….json, else grids of photos."""
    if is_voc(bench.source):
        return _with_boxes(bench, voc(bench.source), "VOC07 test")
    if bench.source.suffix == ".json":
        return _with_boxes(bench, coco(bench.source), bench.source.stem)
    return _with_grids(bench)


@dataclass(frozen=True)
class _Score:
    class_name: str
    difficult: bool
    hit: bool


def _with_boxes(bench: Bench, samples: Sequence[Boxed], title: str) -> Report:
    """Every class in every photo is explained, whatever its probability."""
    by_name = {sample.photo.name: sample for sample in samples}
    photos = [sample.photo for sample in samples]
    own = replace(bench, target="label", min_probability=0.0)
    kept = own.study("pointing", _methods(bench), SIDES, photos=photos, heatmaps=True)
    inside = lru_cache(1)(lambda name: seen(by_name[name], bench))
    scores = defaultdict(list)
    for method, name, heatmap in _heatmaps(kept):
        if name in by_name:
            sample = by_name[name]
            found = _Score(sample.class_name, sample.difficult, hit(heatmap, inside(name)))
            scores[method].append(found)
    lines = [
        [name, _accuracy(found), _accuracy([one for one in found if one.difficult])]
        for name, found in scores.items()
    ]
    theirs = [[name, *(f"{value:.2f}" for value in pair)] for name, pair in PUBLISHED.items()]
    text = "\n\n".join(
        [
            f"# Pointing game\n\n{bench.classifier.name}, {title}: {len(kept.photos)} classes in "
            "photos; accuracy in %, the mean over classes; a hit is within 15 pixels of a box:",
            markdown(["method", "all", "difficult"], lines),
            "Published (Table 6, VGG16, all):",
            markdown(["method", "COCO", "VOC07"], theirs),
        ]
    )
    return Report("pointing", text)


def seen(sample: Boxed, bench: Bench) -> Tensor:
    """Where the boxes are in what the model sees, (H, W) bool: they are preprocessed as a photo."""
    photo = read_photo(sample.photo.path)
    picture = Image.new("RGB", photo.size)
    draw = ImageDraw.Draw(picture)
    for box in sample.boxes:
        draw.rectangle(box, fill="white")
    image = bench.classifier.preprocess(picture)
    return bench.classifier.normalisation.pixels(image).mean(dim=0) > 0.5


def _accuracy(scores: Sequence[_Score]) -> str:
    """The mean over classes of the share of hits, in %."""
    by_class = defaultdict(list)
    for score in scores:
        by_class[score.class_name].append(score.hit)
    return f"{100 * fmean(fmean(hits) for hits in by_class.values()):.2f}" if by_class else "–"


def _with_grids(bench: Bench) -> Report:
    cells = make_grids(bench, bench.folder("grids"))
    if not cells:
        raise IgosError(
            f"photos {str(bench.source)!r}: the grid pointing game needs {CELLS**2} photos of "
            f"different classes with a probability of at least {bench.min_probability}"
        )
    own = replace(
        bench, classifier=bench.unprepared, target="label", min_probability=0.0, limit=None
    )
    photos = [Listed(name, path, label) for name, (path, label, _) in cells.items()]
    kept = own.study("pointing", _methods(bench), SIDES, photos=photos, heatmaps=True)
    sees = {name for name, p in kept.select("f.name, p.probability") if p >= SEEN}
    scores = defaultdict(list)
    for title, name, heatmap in _heatmaps(kept):
        if name in cells:
            inside = cell(cells[name][2], bench.size)
            found = _InCell(hit(heatmap, inside, tolerance=0), share(heatmap, inside), name in sees)
            scores[title].append(found)
    lines = [
        [title, *_in_cells(some), *_in_cells([one for one in some if one.seen])]
        for title, some in scores.items()
    ]
    text = "\n\n".join(
        [
            f"# Grid pointing game\n\n{bench.classifier.name}, {len(cells) // CELLS**2} grids of "
            f"{CELLS}×{CELLS} photos. Hits: the hottest pixel lies in the class's cell. Share: of "
            f"the heatmap's mass, in that cell. By chance {100 / CELLS**2:.0f} % and "
            f"{1 / CELLS**2:.2f}. Seen: the class has at least {SEEN} in the grid.",
            markdown(["method", *GRID_HEAD, *(f"seen: {what}" for what in GRID_HEAD)], lines),
            "The paper has no figures for this game.",
        ]
    )
    return Report("pointing", text)


@dataclass(frozen=True)
class _InCell:
    hit: bool
    share: float
    seen: bool


def _in_cells(found: Sequence[_InCell]) -> list[str]:
    """As `GRID_HEAD` has it."""
    if not found:
        return ["0", "–", "–"]
    hits, shares = fmean(one.hit for one in found), fmean(one.share for one in found)
    return [str(len(found)), f"{100 * hits:.1f}", f"{shares:.3f}"]


def make_grids(bench: Bench, folder: Path) -> dict[str, tuple[Path, int, int]]:
    """Pictures of CELLS × CELLS photos; for each cell's name the file, its class and its place."""
    prepare_folder(folder)
    cells: dict[str, tuple[Path, int, int]] = {}
    waiting: dict[int, deque[Tensor]] = {}  # photos of each class, not in a grid yet
    for photo in sure(bench):
        pixels = bench.classifier.normalisation.pixels(photo.image).clamp(0, 1)
        waiting.setdefault(photo.label, deque()).append(pixels)
        if len(waiting) < CELLS**2:
            continue
        name = f"grid{len(cells) // CELLS**2:04d}"
        path = folder / f"{name}.png"
        labels = list(waiting)
        photos = [waiting[one].popleft() for one in labels]
        waiting = {one: rest for one, rest in waiting.items() if rest}
        save_pixels(tiled(photos, bench.size), path)
        for place, one in enumerate(labels):
            cells[f"{name}#{place}"] = (path, one, place)
    return cells


def tiled(photos: Sequence[Tensor], size: tuple[int, int]) -> Tensor:
    """CELLS × CELLS photos in one picture; a line that an odd size leaves is grey."""
    full = torch.full((3, *size), 0.5)
    height, width = size[0] // CELLS, size[1] // CELLS
    for place, photo in enumerate(photos):
        row, column = divmod(place, CELLS)
        small = F.interpolate(photo[None], (height, width), mode="area")[0]
        full[:, row * height : (row + 1) * height, column * width : (column + 1) * width] = small
    return full


def cell(place: int, size: tuple[int, int]) -> Tensor:
    """The pixels of that cell of a grid, (H, W) bool."""
    height, width = size[0] // CELLS, size[1] // CELLS
    row, column = divmod(place, CELLS)
    inside = torch.zeros(size, dtype=torch.bool)
    inside[row * height : (row + 1) * height, column * width : (column + 1) * width] = True
    return inside


def _methods(bench: Bench) -> dict[str, Maker]:
    return {name: bench.maker(name) for name in NAMES}


def _heatmaps(kept: Kept) -> Iterable[tuple[str, str, Tensor]]:
    """The method with its resolution, the photo's name and the heatmap, (h, w), by photo."""
    for method, height, width, name, heatmap in kept.each(
        "c.method, c.height, c.width, f.name, r.heatmap", order="f.id, c.id"
    ):
        array = unpack(heatmap, (height, width)).copy()
        yield f"{method} {height}×{width}", name, torch.from_numpy(array)
