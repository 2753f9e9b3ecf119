"""The experiments, from the command line, on photos and a model whose answers are known."""

import importlib
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from igos.answer import Prediction, pose
from igos.cli.experiment import NAMES
from igos.data import Listed, list_photos
from igos.errors import IgosError
from igos.experiments import EXPERIMENTS
from igos.experiments.adversarial import MIFGSM
from igos.experiments.bench import Bench, Kept, Report, published
from igos.experiments.convergence import mean_losses
from igos.experiments.pictures import explanations
from igos.experiments.sure import sure
from igos.explainer import explain
from igos.image import Normalisation, blur
from igos.methods.igos import IGOS
from igos.models import load
from igos.models.classifier import Classifier
from igos.models.view import AsItIs, view
from igos.passes import Passes
from igos.problem import Objective
from igos.study.formats import markdown
from igos.study.plan import Study
from igos.study.result import Result
from igos.study.run import Progress
from igos.study.schema import reading
from igos.study.store import Store
from small import Run, TinyNet, random

NET = ("--model", "net.py:classifier", "--device", "cpu")
pytestmark = pytest.mark.usefixtures("quick")
BINS = ("0 to 0.01", "0.01 to 0.1", "0.1 to 0.3", "0.3 to 0.6", "0.6 to 0.9", "0.9 to 1")
PUBLISHED = ("table1", "table2", "runtime", "ablation", "convergence")


@pytest.fixture
def photos(place: Path) -> Path:
    folder = place / "photos"
    folder.mkdir()
    for at in range(3):
        with Image.open(place / "red.png") as picture:
            picture.rotate(90 * at).save(folder / f"{at}.png")
    return folder


def cells(text: str, row: str) -> list[list[str]]:
    """The cells of every table's line that begins so."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {row} |")]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")][1:] for line in lines]


@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "pointing"])
def test_each_has_a_report_and_goes_on(name: str, place: Path, run: Run) -> None:
    words = ("experiment", name, "--photos", "photos", *NET, "--limit", "2", "--out", "there")
    code, out, err = run(*words)
    assert code == 0, err
    report = (place / "there" / f"{name}.md").read_text()
    assert out.strip() in report
    assert name not in PUBLISHED or "Published (Table" in report
    for picture in re.findall(r"\]\((.*\.png)\)", report):
        assert (place / "there" / picture).stat().st_size > 1000
    stores = sorted((place / "there").glob("*.sqlite"))
    before = [_results(store) for store in stores]
    assert before
    assert all(before)
    assert run(*words)[0] == 0
    assert [_results(store) for store in stores] == before  # nothing was done again


def test_a_photo_whose_label_has_changed_or_that_is_gone_is_left_out(
    place: Path, photos: Path, run: Run
) -> None:
    """What the store knows of it is not reported as if it were about the list of now."""
    options = ("--target", "label", "--min-probability", "0", "--out", "there")

    def counted(labels: dict[str, int]) -> tuple[int, str]:
        lines = [f"photos/{name},{label}" for name, label in labels.items()]
        (place / "list.csv").write_text("\n".join(["file,class_index", *lines]))
        code, out, err = run("experiment", "failure", "--photos", "list.csv", *NET, *options)
        assert code == 0, err
        return sum(int(row[0][0]) for row in (cells(out, name) for name in BINS) if row), err

    assert counted({"0.png": 0, "1.png": 0, "2.png": 0})[0] == 3
    count, err = counted({"0.png": 1, "1.png": 0, "2.png": 0})
    assert count == 2
    assert "with the class 0, not 1" in err
    (photos / "1.png").unlink()
    assert counted({"1.png": 0, "2.png": 0})[0] == 1


def test_the_reason_is_one_of_these_photos(place: Path, photos: Path, run: Run) -> None:
    (photos / "bad.png").write_text("no photo")
    words = ("experiment", "ablation", *NET, "--out", "there", "--photos")
    assert run(*words, "photos")[0] == 0
    (place / "list.csv").write_text("file,class_index\nphotos/0.png,0")
    code, _, err = run(*words, "list.csv", "--min-probability", "1")
    assert code == 2
    assert err.endswith("no photo could be explained: none has a class of at least 1.0\n")
    code, _, err = run(*words, "photos", "--min-probability", "1")
    assert code == 2
    assert "none has a class of at least 1.0; 1 failed, such as: photo 'photos/bad.png'" in err


def test_pictures_of_names_with_blanks_are_linked(tmp_path: Path) -> None:
    paths = Report("gallery", "text", {"my dog.jpg": b"PNG"}).save(tmp_path)
    (link,) = re.findall(r"\]\((.*)\)", (tmp_path / "gallery.md").read_text())
    assert tmp_path / unquote(link) in paths
    assert " " not in link


def test_models_made_by_hand_do_not_share_pictures(tmp_path: Path) -> None:
    folders = set()
    for bias in (0.0, 1.0):
        net = TinyNet()
        nn.init.constant_(net.fc.bias, bias)
        classifier = Classifier("net", net, lambda _: torch.zeros(3, 6, 5), Normalisation())
        folders.add(Bench(classifier, tmp_path, tmp_path).folder("grids"))
    assert len(folders) == 2


def test_a_gallery_goes_round_a_bad_photo(place: Path, photos: Path, run: Run) -> None:
    (photos / "bad.png").write_text("no photo")
    code, _, err = run("experiment", "gallery", "--photos", "photos", *NET, "--out", "there")
    assert code == 0
    assert "bad.png': not an image that Pillow can read" in err
    report = (place / "there" / "gallery.md").read_text()
    assert sorted(re.findall(r"- (.*): red", report)) == ["0.png", "1.png", "2.png"]


@pytest.mark.usefixtures("photos")
def test_figures_show_what_explain_would(place: Path) -> None:
    classifier = load("net.py:classifier", device="cpu")
    bench = Bench(classifier, place / "photos", place)
    methods = {name: bench.maker(name) for name in ("igos", "random")}
    kept = bench.study("some", methods, [4], heatmaps=True, batch=1)
    everything = list(explanations(bench, kept, bench.photos))
    assert sorted(name for name, _ in everything) == ["0.png", "1.png", "2.png"]
    for name, found in everything:
        assert [one.method for one in found] == ["igos", "random"]
        for one in found:
            method = methods[one.method]((4, 4))
            own = explain(place / "photos" / name, model=classifier, method=method)
            for what in ("heatmap", "image", "baseline"):
                torch.testing.assert_close(getattr(one, what), getattr(own, what))
            for curve in ("deletion", "insertion"):
                for what in ("fraction", "score"):
                    mine, theirs = (getattr(getattr(two, curve), what) for two in (one, own))
                    torch.testing.assert_close(mine, theirs)
            assert one.losses == pytest.approx(own.losses)
            mine, theirs = one.record(), own.record()
            for key in ("photo", "method", "seconds", "losses", "deletion", "insertion", "curves"):
                del mine[key], theirs[key]
            assert mine == theirs
    bare = bench.study("bare", methods, [4])
    with pytest.raises(IgosError, match="no heatmap of"):
        list(explanations(bench, bare, bench.photos))


def _results(store: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(store) as db:
        return db.execute("SELECT * FROM results ORDER BY configuration, photo").fetchall()


@pytest.mark.usefixtures("photos")
def test_the_ablation_takes_away_what_it_says(run: Run) -> None:
    code, out, _ = run("experiment", "ablation", "--photos", "photos", *NET, "--out", "there")
    assert code == 0
    rows = {}
    with sqlite3.connect("there/ablation.sqlite") as db:
        for method, settings in db.execute("SELECT method, settings FROM configurations"):
            rows[method] = json.loads(settings)
    full, bare = rows["igos-paper"], rows["igos-paper, no TV term"]
    assert (full["lambda2"], bare["lambda2"]) == (20, 0)
    assert rows["igos-paper, no noise"]["noise"] == 0
    for name in ("igos", "igos-paper"):
        rule = rows[name]["step_rule"]
        fixed = {**rule, "alpha_upper": 1, "alpha_lower": 1}  # in the same units
        assert rows[f"{name}, fixed step 1"]["step_rule"] == fixed
    for name, settings in rows.items():
        others = {"lambda2", "noise", "step_rule"}
        base = rows[name.partition(",")[0]]
        assert {key: value for key, value in settings.items() if key not in others} == {
            key: value for key, value in base.items() if key not in others
        }
    assert cells(out, "No TV term") == [["0.031", "0.371", "0.084", "0.518"]]


@pytest.mark.usefixtures("photos")
def test_another_model_in_the_same_folder_is_kept_apart(place: Path, run: Run) -> None:
    words = ("experiment", "failure", "--photos", "photos", *NET, "--out", "there")
    first = run(*words)[1]
    source = (place / "net.py").read_text()
    (place / "net.py").write_text(source.replace("gain=60.0", "gain=15.0"))
    second = run(*words)[1]
    assert first != second
    assert [cells(text, "its first choice")[0][0] for text in (first, second)] == ["3", "3"]


@pytest.mark.usefixtures("photos")
def test_a_report_is_about_what_was_asked_for(place: Path, run: Run) -> None:
    """Whatever else is in the store: other seeds, more photos, others of the same name."""
    words = ("experiment", "failure", "--photos", "photos", *NET, "--out", "there")
    first = run(*words, "--limit", "2")[1]
    shutil.copytree(place / "photos", place / "other")
    for path in (place / "other").iterdir():
        with Image.open(path) as picture:
            picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(path)
    for others in (("--seed", "1"), ("--limit", "3"), ("--photos", "other")):
        assert run(*words, *others)[0] == 0
        assert run(*words, "--limit", "2")[1] == first
    assert cells(first, "its first choice")[0][0] == "2"


@pytest.mark.usefixtures("photos")
def test_models_take_turns_in_one_folder(place: Path, run: Run) -> None:
    words = ("experiment", "adversarial", "--photos", "photos", *NET, "--out", "there")
    source = (place / "net.py").read_text()
    reports = []
    for gain in ("60.0", "15.0", "60.0"):
        (place / "net.py").write_text(source.replace("gain=60.0", f"gain={gain}"))
        code, out, err = run(*words)
        assert code == 0, err
        reports.append(out)
    assert reports[0] == reports[2] != reports[1]


@pytest.mark.usefixtures("photos")
def test_nothing_explained_is_a_failure(run: Run) -> None:
    words = ("experiment", "table2", "--photos", "photos", *NET, "--out", "there")
    code, out, err = run(*words, "--target", "label")
    assert (code, out) == (2, "")
    assert "no photo could be explained" in err
    assert "has no label" in err
    code, _, err = run(*words, "--min-probability", "1")
    assert code == 2


@pytest.mark.usefixtures("photos")
def test_the_total_loss_is_the_objective_of_the_last_mask(run: Run) -> None:
    words = ("experiment", "convergence", "--photos", "photos", *NET, "--out", "there")
    code, out, _ = run(*words, "--limit", "1")
    assert code == 0
    classifier = load("net.py:classifier", device="cpu")
    (path,) = [p.path for p in list_photos(Path("photos"))][:1]
    image = classifier.preprocess(Image.open(path).convert("RGB"))[None]
    target = int(classifier.module(image).argmax())
    problem = pose(classifier, image, blur(image), target)
    method = replace(
        IGOS.paper(), lambda1=0.1, lambda2=2.0, max_iterations=2, path_steps=2, tolerance=0.003
    )
    mask = 1 - method(problem)
    loss = Objective(problem, 0.1, 2.0)(mask[:, None]).item()
    third = cells(out, "Total loss")[0][2]  # I-GOS at λ 0.1/2
    assert float(third) == pytest.approx(loss, abs=1e-4)


def kept(path: Path, found: dict[str, list[Result]]) -> Kept:
    """A store in which each method has these results at 28×28, a photo each."""
    with Store(path) as store:
        store.begin(started="", arguments={}, environment={})
        question = store.question({"model": "net"})
        count = max(map(len, found.values()))
        photos = [store.photo(f"{at}.jpg", f"0{at}") for at in range(count)]
        store.add_predictions(question, {photo: Prediction(0, 0.9, 0, 0.9) for photo in photos})
        numbers = [store.configuration(question, method, (28, 28), {}) for method in found]
        for number, results in zip(numbers, found.values(), strict=True):
            store.add_answers(number, dict(zip(photos, results, strict=True)))
    return Kept(path, frozenset(numbers), frozenset(photos))


RESULT = Result(0, 0, [], [], [], 0, None, None, None, [], None)


def test_a_photo_that_has_stopped_keeps_its_loss(tmp_path: Path) -> None:
    stopped = [replace(RESULT, losses=[0.8, 0.4]), replace(RESULT, losses=[0.6])]
    found = kept(tmp_path / "run.sqlite", {"a": stopped, "b": [RESULT, RESULT]})
    assert mean_losses(found) == {"a": pytest.approx([0.7, 0.5])}


@pytest.mark.usefixtures("photos")
def test_the_runtime_of_methods_with_a_resolution_of_their_own(place: Path, run: Run) -> None:
    words = ("experiment", "runtime", "--photos", "photos", *NET, "--limit", "1", "--out", "there")
    code, out, _ = run(*words, "--batch", "2")
    assert code == 0
    assert "2 photos at once:" in out
    assert len(cells(out, "rise")) == len(cells(out, "igos")) == 2  # alone and in a batch
    names = sorted(path.stem for path in (place / "there").glob("*.sqlite"))
    assert [name.rpartition(".")[2] for name in names] == ["batch-1", "batch-2"]


def test_seconds_are_those_of_a_warm_device(tmp_path: Path) -> None:
    module = importlib.import_module("igos.experiments.runtime")  # the function has its name
    two_batches = [replace(RESULT, seconds=seconds) for seconds in (9.0, 9.0, 9.0, 0.0004)]
    found = kept(tmp_path / "run.sqlite", {"igos": two_batches})
    assert cells(module._seconds(found), "igos") == [["0.000400"]]


def test_seconds_of_another_way_of_running_have_a_store_of_their_own() -> None:
    where = importlib.import_module("igos.experiments.runtime")._where
    net = TinyNet().eval()
    plain = Classifier("net", net, lambda _: torch.zeros(3, 6, 5), Normalisation())
    ways = [Passes(net, "fp32"), Passes(net, "tf32"), Passes(net, "fp32", net)]
    names = [where(replace(plain, fast=fast)) for fast in ways]
    here = f"runtime.cpu-{torch.get_num_threads()}"
    assert names == [f"{here}.fp32", f"{here}.tf32", f"{here}.fp32.compiled"]


def test_the_command_line_knows_every_experiment() -> None:
    assert list(NAMES) == list(EXPERIMENTS)


class Brightness(nn.Module):
    """Class 1 if the mean pixel is above a half, else class 0."""

    def forward(self, x: Tensor) -> Tensor:
        bright = 20 * (x.mean(dim=(1, 2, 3)) - 0.5)
        return torch.stack([-bright, bright], dim=1)


def test_mi_fgsm_by_hand() -> None:
    """Every pixel's gradient has one sign, so every pixel moves by ε/10 at each of ten steps."""
    pixels = torch.stack([torch.full((3, 4, 4), 0.52), torch.full((3, 4, 4), 0.02)])
    moved = MIFGSM()(Brightness(), pixels, torch.tensor([1, 0]), Normalisation())
    torch.testing.assert_close(moved[0], pixels[0] - 16 / 255)
    torch.testing.assert_close(moved[1], pixels[1] + 16 / 255)
    dark = MIFGSM()(Brightness(), pixels[1:], torch.tensor([1]), Normalisation())
    assert torch.equal(dark[0], torch.zeros(3, 4, 4))  # clamped to what a pixel can be


def test_momentum_is_that_of_the_paper() -> None:
    """A naive loop for one photo, on a net whose gradients change from step to step."""
    net, attack = TinyNet().eval(), MIFGSM(epsilon=0.1, steps=4, decay=0.7)
    normalisation = Normalisation(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
    photo = random(2, 3, 12, 10).sigmoid().float()
    moved = attack(net, photo, torch.tensor([2, 1]), normalisation)
    for at, label in enumerate((2, 1)):
        x, g = photo[at], torch.zeros(3, 12, 10)
        for _ in range(4):
            x = x.detach().requires_grad_()
            loss = -net(normalisation.normalise(x)[None]).log_softmax(dim=1)[0, label]
            (gradient,) = torch.autograd.grad(loss, x)
            g = 0.7 * g + gradient / gradient.abs().mean()
            x = (x + 0.025 * g.sign()).clamp(photo[at] - 0.1, photo[at] + 0.1).clamp(0, 1)
        torch.testing.assert_close(moved[at], x.detach())


@pytest.mark.usefixtures("photos")
def test_only_as_many_photos_are_attacked_as_asked_for(place: Path, run: Run) -> None:
    words = ("experiment", "adversarial", "--photos", "photos", *NET, "--out", "there")
    assert run(*words, "--limit", "2")[0] == 0
    for kind in ("clean", "adversarial"):
        (folder,) = (place / "there").glob(f"adversarial-*/{kind}")
        assert len(list(folder.iterdir())) == 2


def test_an_attack_in_the_models_precision() -> None:
    pixels = random(2, 3, 12, 10).float().sigmoid()
    classes = torch.tensor([0, 1])
    ours, exact = (
        MIFGSM(steps=1)(net.eval(), pixels, classes, Normalisation())
        for net in (TinyNet().bfloat16(), TinyNet())
    )
    assert ours.dtype == torch.float32
    assert (ours == exact).float().mean() > 0.9  # signs of gradients, some of them near 0


def test_an_attack_goes_round_what_evaluate_would_refuse(place: Path, photos: Path) -> None:
    """A photo for which the model returns NaN, and one that is preprocessed to another size."""
    classifier = load("net.py:classifier", device="cpu")
    plain, module = classifier.preprocess, classifier.module
    sizes = {"0.png": (40, 40), "1.png": (41, 40), "2.png": (42, 40)}
    for name, size in sizes.items():
        with Image.open(photos / name) as picture:
            picture.resize(size).save(photos / name)

    def preprocess(photo: Image.Image) -> Tensor:
        image = plain(photo)
        odd = {41: image[:, 1:], 42: torch.full_like(image, torch.nan)}
        return odd.get(photo.width, image)

    class NaN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = module

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.net(x)
            return logits + 0 * x.sum(dim=(1, 2, 3))[:, None]

    own = replace(classifier, preprocess=preprocess, module=NaN(), fast=None)
    report = EXPERIMENTS["adversarial"](Bench(own, photos, place / "there"))
    assert re.search(r"\d of 1 photos are now another class", report.text)


def test_a_photo_in_two_folders_is_attacked_once(place: Path, photos: Path) -> None:
    for folder in ("a", "b"):
        (photos / folder).mkdir()
        shutil.copy(photos / "0.png", photos / folder / "same.png")
    bench = Bench(load("net.py:classifier", device="cpu"), photos, place / "there")
    names = [one.name.partition("-")[0] for one in sure(bench)]
    assert sorted(names) == ["0", "1", "2", "same"]
    assert [one.name for one in sure(replace(bench, limit=2))] == [
        one.name for one in list(sure(bench))[:2]
    ]


@pytest.mark.parametrize("name", ["adversarial", "pointing"])
def test_why_no_photo_could_be_used(name: str, photos: Path, run: Run) -> None:
    words = ("experiment", name, "--photos", "photos", *NET, "--out", "there")
    code, _, err = run(*words, "--min-probability", "1")
    assert (code, "none has a class of at least 1" in err) == (2, True)
    (photos / "bad.png").write_text("no photo")
    code, _, err = run(*words, "--min-probability", "1")
    assert (code, "none has a class of at least 1.0; 1 failed, such as" in err) == (2, True)
    for photo in photos.iterdir():
        photo.write_text("no photo")
    code, _, err = run(*words)
    assert (code, "no photo could be used: photo 'photos/" in err) == (2, True)


def test_an_attack_needs_a_gradient(place: Path, photos: Path) -> None:
    classifier = load("net.py:classifier", device="cpu")

    class Detached(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = classifier.module(x)
            return logits.detach()

    own = replace(classifier, module=Detached(), fast=None)
    with pytest.raises(IgosError, match=r"no photo could be attacked: model .* failed"):
        EXPERIMENTS["adversarial"](Bench(own, photos, place / "there"))


def test_a_model_with_images_too_small_for_an_experiment(place: Path, photos: Path) -> None:
    normalisation = Normalisation()
    small = Classifier("small", TinyNet().eval(), AsItIs(normalisation, (20, 20)), normalisation)
    with pytest.raises(IgosError, match="no method fits small: its images of 20×20 are too small"):
        EXPERIMENTS["failure"](Bench(small, photos, place))


@pytest.mark.usefixtures("photos")
def test_failures_by_probability(run: Run) -> None:
    words = ("experiment", "failure", "--photos", "photos", *NET, "--out", "there")
    code, out, _ = run(*words)
    assert code == 0
    counts = [int(line[0]) for title in BINS for line in cells(out, title)]
    assert sum(counts) == 3
    assert cells(out, "its first choice")[0][0] == "3"
    with sqlite3.connect("there/failure.sqlite") as db:
        rows = db.execute(
            "SELECT r.deletion / p.probability FROM results r JOIN predictions p "
            "ON p.photo = r.photo"
        ).fetchall()
    mean = sum(row[0] for row in rows) / 3
    assert float(cells(out, "its first choice")[0][1]) == pytest.approx(mean, abs=1e-3)


def test_mistakes(place: Path, run: Run) -> None:
    (place / "photos").mkdir()
    for words, message in (
        (("tabel1", "--photos", "photos"), "unknown experiment 'tabel1': did you mean 'table1'"),
        (("table1", "--photos", "gone"), "gone"),
        (("table1", "--photos", "photos", "--batch", "x"), "batch 'x'"),
        (("table1", "--photos", "photos", "--out", "red.png"), "folder 'red.png': not writable"),
    ):
        code, out, err = run("experiment", *words, *NET)
        assert (code, out) == (2, "")
        assert message in err


def test_a_report_does_not_cut_pictures_that_were_made_for_the_model(tmp_path: Path) -> None:
    bundled = Classifier(
        "efficientnet_lite0", TinyNet().eval(), AsItIs(Normalisation(), (20, 20)), Normalisation()
    )
    bench = Bench(bundled, tmp_path, tmp_path)
    assert bench.unprepared.example().shape == (3, 20, 20)
    noise = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    cut, whole = (
        np.asarray(view(name).seen(Image.fromarray(noise)))
        for name in (bundled.name, bench.unprepared.name)
    )
    assert np.array_equal(whole, noise)
    assert not np.array_equal(cut, noise)
    assert view(bench.unprepared.name).class_names == view(bundled.name).class_names


def test_a_bench_without_a_screen(place: Path, photos: Path) -> None:
    classifier = load("net.py:classifier", device="cpu")
    seen: list[str] = []

    def follow(study: Study, listed: Sequence[Listed], progress: Iterator[Progress]) -> None:
        seen.extend(configuration.title for configuration in study.configurations)
        assert {photo.path for photo in listed} == set(photos.iterdir())
        list(progress)

    bench = Bench(classifier=classifier, source=photos, out=place, follow=follow)
    kept = bench.study("x", {"random": bench.maker("random")}, [300, 16])
    assert seen == ["random 16×16"]  # finer than the image is left out
    assert len(_results(kept.path)) == 3


def test_tables() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
    assert published("VGG", [7], {"x": [(0.1234, 0.5)], "y": [None]}) == (
        "Published (VGG):\n\n| method | 7×7 del. | 7×7 ins. |\n| --- | ---: | ---: |\n"
        "| x | 0.123 | 0.500 |\n| y | – | – |"
    )


@pytest.mark.usefixtures("photos")
def test_one_table_takes_what_the_other_has_done(place: Path, run: Run) -> None:
    words = ("--photos", "photos", *NET, "--limit", "1", "--out", "there")
    assert run("experiment", "table2", *words)[0] == 0
    with reading(place / "there" / "tables.sqlite") as db:
        before = db.execute("SELECT configuration, photo, seconds FROM results").fetchall()
    code, out, _ = run("experiment", "table1", *words)
    assert code == 0
    assert "14×14" in out
    assert "7×7 deletion" not in out  # is in the store, but not in Table 1
    with reading(place / "there" / "tables.sqlite") as db:
        after = db.execute("SELECT configuration, photo, seconds FROM results").fetchall()
    assert set(before) <= set(after)
    assert not {row[0] for row in set(after) - set(before)} & {row[0] for row in before}
