"""Photos with boxes around their objects: PASCAL VOC and MS COCO, as they lie on disk."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from igos.data import Listed
from igos.errors import IgosError, first_line

Box = tuple[float, float, float, float]  # left, top, right, bottom, in the photo's pixels


@dataclass(frozen=True)
class Boxed:
    """A class in a photo: the photo, labelled with the class, and the class's boxes."""

    photo: Listed
    boxes: tuple[Box, ...]
    difficult: bool  # small, and not alone: the pointing game's difficult subset

    @property
    def class_name(self) -> str:
        return str(self.photo.label)


def is_voc(root: Path) -> bool:
    return (root / "VOCdevkit").is_dir()


def voc(root: Path, *, year: str = "2007", image_set: str = "test") -> list[Boxed]:
    """PASCAL VOC below `root`/VOCdevkit; objects that its annotators call difficult are skipped."""
    from torchvision.datasets import VOCDetection

    try:
        data = VOCDetection(str(root), year=year, image_set=image_set)
        found = [
            data.parse_voc_xml(ElementTree.parse(path).getroot())["annotation"]
            for path in data.annotations
        ]
        return [
            sample
            for path, annotation in zip(data.images, found, strict=True)
            for sample in _of_voc(Path(path), annotation)
        ]
    except (OSError, RuntimeError, ValueError, LookupError, ElementTree.ParseError) as error:
        raise IgosError(f"VOC {year} in {str(root)!r}: {first_line(error)}") from error


def _of_voc(path: Path, annotation: dict[str, Any]) -> list[Boxed]:
    objects = [
        (str(one["name"]), _voc_box(one["bndbox"]))
        for one in annotation.get("object", [])
        if one.get("difficult", "0") != "1"
    ]
    size = annotation["size"]
    return _samples(path, objects, float(size["width"]) * float(size["height"]))


def _voc_box(box: dict[str, str]) -> Box:
    return float(box["xmin"]), float(box["ymin"]), float(box["xmax"]), float(box["ymax"])


def coco(instances: Path) -> list[Boxed]:
    """MS COCO: annotations/instances_NAME.json, its photos in NAME/ beside annotations/."""
    try:
        data = json.loads(instances.read_text())
        classes = {one["id"]: one["name"] for one in data["categories"]}
        objects = defaultdict(list)
        for one in data["annotations"]:
            if not one.get("iscrowd", 0):
                left, top, width, height = one["bbox"]
                box = (left, top, left + width, top + height)
                objects[one["image_id"]].append((classes[one["category_id"]], box))
        photos = [
            (one["id"], one["file_name"], one["width"] * one["height"]) for one in data["images"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IgosError(
            f"COCO {str(instances)!r}: {first_line(error)}; give annotations/instances_NAME.json"
        ) from error
    folder = instances.parent.parent / instances.stem.removeprefix("instances_")
    return [
        sample
        for number, name, area in photos
        for sample in _samples(folder / name, objects[number], area)
    ]


def _samples(path: Path, objects: Iterable[tuple[str, Box]], area: float) -> list[Boxed]:
    """One for each class in the photo."""
    by_class: dict[str, list[Box]] = defaultdict(list)
    for name, box in objects:
        by_class[name].append(box)
    return [
        Boxed(
            Listed(f"{path.name}#{name}", path, name),
            tuple(boxes),
            difficult=len(by_class) > 1 and sum(map(_area, boxes)) < area / 4,
        )
        for name, boxes in sorted(by_class.items())
    ]


def _area(box: Box) -> float:
    left, top, right, bottom = box
    return (right - left) * (bottom - top)
