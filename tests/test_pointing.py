"""The pointing games: on heatmaps, on VOC and COCO as they lie on disk, and on grids."""

import importlib
import json
from pathlib import Path
from statistics import fmean

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from igos.boxes import Boxed, coco, is_voc, voc
from igos.data import Listed
from igos.errors import IgosError
from igos.experiments.bench import Bench
from igos.experiments.pointing import cell, make_grids, pointing, seen
from igos.image import Normalisation
from igos.metrics.pointing import hit, share
from igos.models import load
from igos.models.classifier import Classifier
from igos.models.view import AsItIs
from igos.study.result import unpack
from igos.study.schema import reading
from small import Run

NET = ("--model", "net.py:classifier", "--device", "cpu")


def test_a_hit_is_within_the_tolerance() -> None:
    inside = torch.zeros(40, 50, dtype=torch.bool)
    inside[10:20, 30:40] = True
    for row, column, distance in ((15, 35, 0), (10, 27, 3), (23, 42, 5), (0, 0, 31.6)):
        heatmap = torch.zeros(40, 50)
        heatmap[row, column] = 1
        assert hit(heatmap, inside, tolerance=distance + 0.1)
        assert distance == 0 or not hit(heatmap, inside, tolerance=distance - 0.1)
    assert not hit(torch.ones(4, 5), torch.zeros(40, 50, dtype=torch.bool))  # there is nothing


def test_a_coarse_heatmap_is_enlarged_and_the_first_of_equals_counts() -> None:
    inside = torch.zeros(30, 30, dtype=torch.bool)
    inside[:3, :3] = True
    assert hit(torch.ones(3, 3), inside, tolerance=0)  # all are equal: the top left one
    coarse = torch.zeros(3, 3)
    coarse[2, 2] = 1
    assert not hit(coarse, inside, tolerance=15)
    assert hit(coarse, inside.flip(0, 1), tolerance=0)


def test_share() -> None:
    inside = torch.zeros(4, 4, dtype=torch.bool)
    inside[:, 2:] = True
    heatmap = torch.tensor([[1.0, 1.0, 3.0, 3.0]] * 4)
    assert share(heatmap, inside) == pytest.approx(0.75)
    assert share(-heatmap, inside) == 0.5  # nothing is positive: what chance gives
    assert share(heatmap - 1, inside) == 1


VOC_XML = """<annotation><filename>{name}.jpg</filename>
<size><width>60</width><height>40</height><depth>3</depth></size>{objects}</annotation>"""
VOC_OBJECT = """<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>
<xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox>
</object>"""


def write_voc(root: Path) -> None:
    """Two photos of 60×40 px: red is small beside blue in one, alone and large in the other."""
    base = root / "VOCdevkit" / "VOC2007"
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (base / folder).mkdir(parents=True)
    (base / "ImageSets/Main/test.txt").write_text("000001\n000002\n")
    found = {
        "000001": [
            ("red", 0, (10, 10, 20, 20)),
            ("red", 0, (30, 5, 35, 10)),
            ("blue", 0, (0, 0, 59, 39)),
            ("neither", 1, (1, 1, 3, 3)),
        ],
        "000002": [("red", 0, (0, 0, 50, 30))],
    }
    for name, objects in found.items():
        text = "".join(VOC_OBJECT.format(name=n, difficult=d, box=b) for n, d, b in objects)
        (base / f"Annotations/{name}.xml").write_text(VOC_XML.format(name=name, objects=text))
        picture = Image.new("RGB", (60, 40), (20, 20, 20))
        for which, _, box in objects:
            if which == "red":
                picture.paste((240, 10, 10), (*box,))
        picture.save(base / f"JPEGImages/{name}.jpg")


def test_voc_as_it_lies_on_disk(tmp_path: Path) -> None:
    write_voc(tmp_path)
    assert is_voc(tmp_path)
    samples = {sample.photo.name: sample for sample in voc(tmp_path)}
    assert list(samples) == ["000001.jpg#blue", "000001.jpg#red", "000002.jpg#red"]
    red = samples["000001.jpg#red"]
    assert red.class_name == red.photo.label == "red"
    assert red.boxes == ((10, 10, 20, 20), (30, 5, 35, 10))
    assert [sample.difficult for sample in samples.values()] == [False, True, False]
    with pytest.raises(IgosError, match="VOC 2012 in"):
        voc(tmp_path, year="2012")
    (tmp_path / "VOCdevkit/VOC2007/Annotations/000002.xml").write_text("<annotation>")
    with pytest.raises(IgosError, match="VOC 2007 in"):
        voc(tmp_path)


def write_coco(root: Path) -> Path:
    (root / "annotations").mkdir(parents=True)
    (root / "val2014").mkdir()
    for at in (1, 2):
        picture = Image.new("RGB", (60, 40), (20, 20, 20))
        picture.paste((240, 10, 10), (10, 10, 40, 30))
        picture.save(root / f"val2014/{at}.jpg")
    data = {
        "categories": [{"id": 7, "name": "red"}, {"id": 9, "name": "blue"}],
        "images": [
            {"id": 31, "file_name": "1.jpg", "width": 60, "height": 40},
            {"id": 32, "file_name": "2.jpg", "width": 60, "height": 40},
        ],
        "annotations": [
            {"image_id": 31, "category_id": 7, "bbox": [10, 10, 30, 20], "iscrowd": 0},
            {"image_id": 31, "category_id": 9, "bbox": [1, 1, 2, 2], "iscrowd": 0},
            {"image_id": 32, "category_id": 9, "bbox": [0, 0, 60, 40], "iscrowd": 1},
        ],
    }
    path = root / "annotations/instances_val2014.json"
    path.write_text(json.dumps(data))
    return path


def test_coco_as_it_lies_on_disk(tmp_path: Path) -> None:
    path = write_coco(tmp_path)
    blue, red = coco(path)
    assert red.boxes == ((10, 10, 40, 30),)  # width and height are no corners
    assert red.photo.path == tmp_path / "val2014/1.jpg"
    assert (blue.difficult, red.difficult) == (True, False)  # 600 of 2400 pixels is no longer small
    path.write_text('{"images": []}')
    with pytest.raises(IgosError, match=r"KeyError.*give annotations/instances_NAME\.json"):
        coco(path)


def test_boxes_go_through_the_models_preprocessing(place: Path) -> None:
    """The photo of 60×40 is squeezed to 32×32; so is the box."""
    write_voc(place)
    bench = Bench(classifier=load("net.py:classifier", device="cpu"), source=place, out=place)
    sample = Boxed(
        Listed("x", place / "VOCdevkit/VOC2007/JPEGImages/000001.jpg", "red"),
        ((30, 0, 59, 19),),
        False,
    )
    inside = seen(sample, bench)
    assert inside.shape == (32, 32)
    assert inside[:16, 16:].float().mean() > 0.9
    assert inside[17:].float().mean() == 0
    assert inside[:, :15].float().mean() == 0


def test_accuracy_is_the_mean_over_classes() -> None:
    """Two cats of which one is hit, one dog that is: 75 %, not two thirds."""
    module = importlib.import_module("igos.experiments.pointing")  # the function has its name
    scores = [
        module._Score("cat", difficult=True, hit=True),
        module._Score("cat", difficult=False, hit=False),
        module._Score("dog", difficult=False, hit=True),
    ]
    assert module._accuracy(scores) == "75.00"
    assert module._accuracy([]) == "–"


@pytest.mark.usefixtures("quick")
def test_the_game_on_voc_and_coco(place: Path, run: Run) -> None:
    write_voc(place / "voc")
    coco_file = write_coco(place / "coco")
    for source, title in ((place / "voc", "VOC07 test"), (coco_file, "instances_val2014")):
        out = place / f"out-{title[:3]}"
        code, text, err = run(
            "experiment", "pointing", "--photos", str(source), *NET, "-o", str(out)
        )
        assert code == 0, err
        assert title in text
        assert "Published (Table 6, VGG16, all)" in text
        assert "| igos 28×28 |" in text
        assert "| rise 32×32 |" in text  # at the resolution that it has
        assert text.count("| random ") == 3  # at every resolution
        _check_hits(out / "pointing.sqlite", source, text)


def _check_hits(store: Path, source: Path, text: str) -> None:
    """The game once more for one method, from the heatmaps that were kept and the boxes."""
    samples = voc(source) if source.is_dir() else coco(source)
    bench = Bench(classifier=load("net.py:classifier", device="cpu"), source=source, out=store)
    hits: dict[str, list[bool]] = {}
    with reading(store) as db:
        for sample in samples:
            rows = db.execute(
                "SELECT r.heatmap FROM results r JOIN configurations c ON c.id = r.configuration "
                "JOIN photos f ON f.id = r.photo "
                "WHERE c.method = 'random' AND c.height = 7 AND f.name = ?",
                (sample.photo.name,),
            )
            for (heatmap,) in rows:
                found = torch.from_numpy(unpack(heatmap, (7, 7)).copy())
                hits.setdefault(sample.class_name, []).append(hit(found, seen(sample, bench)))
    share = 100 * fmean(fmean(one) for one in hits.values())
    (line,) = [one for one in text.splitlines() if one.startswith("| random 7×7 |")]
    assert line.split("|")[2].strip() == f"{share:.2f}"


COLOURS = {"red": (240, 10, 10), "green": (10, 240, 10), "blue": (10, 10, 240), "white": (250,) * 3}


class Colours(nn.Module):
    """How much of the picture has each of four colours."""

    def forward(self, x: Tensor) -> Tensor:
        wanted = torch.tensor(list(COLOURS.values())).view(1, 4, 3, 1, 1) / 255
        alike = (-8 * (x[:, None] - wanted).square().sum(dim=2)).exp()  # (N, 4, H, W)
        return 12 * alike.mean(dim=(2, 3))


def test_the_game_on_grids_is_won_by_who_sees_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("igos.experiments.pointing")  # the function has its name
    monkeypatch.setattr(module, "NAMES", ("igos", "random"))
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, colour in COLOURS.items():
        for at in range(2):
            Image.new("RGB", (40, 40), colour).save(folder / f"{name}{at}.png")
    (folder / "broken.png").write_text("hello")
    normalisation = Normalisation()
    colours = Classifier(
        "colours", Colours().eval(), AsItIs(normalisation, (32, 32)), normalisation, (*COLOURS,)
    )
    bench = Bench(classifier=colours, source=folder, out=tmp_path)
    report = pointing(bench).text
    names = {name: path for name, (path, _, _) in make_grids(bench, tmp_path / "grids").items()}
    assert list(names) == [f"grid000{grid}#{place}" for grid in (0, 1) for place in range(4)]
    for name, (path, label, place) in make_grids(bench, tmp_path / "grids").items():
        with Image.open(path) as picture:
            middle = (8 + 16 * (place % 2), 8 + 16 * (place // 2))
            assert picture.size == (32, 32)
            assert picture.getpixel(middle) == list(COLOURS.values())[label], name
    scores = {
        line.split("|")[1].strip(): [float(one) for one in line.split("|")[2:5]]
        for line in report.splitlines()
        if line.startswith("| ") and "×" in line
    }
    assert scores["igos 14×14"][:2] == [8, 100]
    assert scores["igos 14×14"][2] > 0.8
    assert scores["random 28×28"][2] == pytest.approx(0.25, abs=0.05)
    (line,) = [one for one in report.splitlines() if one.startswith("| igos 14×14")]
    assert line.split("|")[5:8] == line.split("|")[2:5]  # each class has a quarter: all are seen
    monkeypatch.setattr(module, "SEEN", 0.3)
    (line,) = [one for one in pointing(bench).text.splitlines() if one.startswith("| igos 14×14")]
    assert [one.strip() for one in line.split("|")[5:8]] == ["0", "–", "–"]


@pytest.mark.usefixtures("quick")
def test_the_game_on_grids_needs_classes(place: Path, run: Run) -> None:
    (place / "photos").mkdir()
    for at in range(5):
        Image.new("RGB", (40, 40), (240, 10, 10 * at)).save(place / f"photos/{at}.png")
    code, _, err = run("experiment", "pointing", "--photos", "photos", *NET)
    assert code == 2
    assert "the grid pointing game needs 4 photos of different classes" in err


def test_cells_share_a_picture_out() -> None:
    total = sum(cell(place, (7, 6)).int() for place in range(4))
    assert isinstance(total, torch.Tensor)
    assert total[:6].eq(1).all()
    assert total[6].eq(0).all()  # the odd line belongs to none
    assert cell(1, (4, 4)).nonzero().tolist() == [[0, 2], [0, 3], [1, 2], [1, 3]]
