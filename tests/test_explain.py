"""From a photo to an Explanation, and to the files and pictures made of it."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import igos
from igos.explanation import warmth
from igos.image import blur
from igos.methods.igos import IGOS
from igos.models.classifier import Classifier
from igos.plot import overlay, panel, score_at
from small import TinyNet, random

NORMALISATION = igos.Normalisation((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
FAST = {"max_iterations": 2, "path_steps": 2}


class Redness(nn.Module):
    """ "red" with a probability that grows with the red in the left half."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(4.0))

    def forward(self, images: Tensor) -> Tensor:
        red = self.gain * images[:, 0, :, : images.shape[3] // 2].mean(dim=(1, 2))
        return torch.stack([red, torch.zeros_like(red), torch.full_like(red, -9.0)], dim=1)


def preprocess(photo: Image.Image) -> Tensor:
    pixels = torch.tensor(np.asarray(photo.resize((32, 32)))).permute(2, 0, 1) / 255
    return NORMALISATION.normalise(pixels)


@pytest.fixture
def classifier() -> Classifier:
    names = ("red", "other", "never")
    return Classifier("redness", Redness().eval(), preprocess, NORMALISATION, names)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "flag.png"
    pixels = np.full((40, 40, 3), 30, np.uint8)
    pixels[10:30, 4:16, 0] = 250  # a red block on the left
    Image.fromarray(pixels).save(path)
    return path


def explained(classifier: Classifier, photo: Any, **how: Any) -> igos.Explanation:
    default: dict[str, Any] = {"baseline": "black", "resolution": 8, "settings": FAST}
    return igos.explain(photo, model=classifier, **default | how)


def test_an_explanation_holds_what_can_be_computed_otherwise(
    classifier: Classifier, photo: Path
) -> None:
    steps: list[igos.Step] = []
    start = time.perf_counter()
    explanation = explained(
        classifier, photo, target="red", seed=3, settings=FAST | {"noise": 0.1}, watch=steps.append
    )
    assert 0 < explanation.seconds < time.perf_counter() - start
    image = preprocess(Image.open(photo))[None]
    p = classifier.module(image).softmax(dim=1)[0]
    problem = igos.Problem(
        classifier.module, image, NORMALISATION.normalise(0 * image), 0, std=NORMALISATION.std
    )
    heatmap = IGOS(resolution=8, max_iterations=2, path_steps=2, noise=0.1, seed=3)(problem)
    torch.testing.assert_close(explanation.heatmap, heatmap[0, 0])
    assert explanation.probability == pytest.approx(p[0].item())
    assert explanation.class_name == "red"
    assert explanation.target == 0
    order = sorted(range(3), key=lambda index: -p[index].item())
    assert [index for index, _, _ in explanation.predicted] == order
    assert explanation.deletion.auc == pytest.approx(igos.deletion(problem, heatmap)[0].auc)
    assert explanation.insertion.auc == pytest.approx(igos.insertion(problem, heatmap)[0].auc)
    assert explanation.iterations == len(steps) == 2
    assert explanation.converged is False
    assert explanation.settings["baseline"] == "black"
    assert explanation.settings["score"] == "probability"
    assert explanation.resolution == (8, 8)


def test_the_most_important_pixels_go_first(classifier: Classifier, photo: Path) -> None:
    explanation = explained(classifier, photo, target="red", resolution=32)
    image = NORMALISATION.pixels(explanation.image)
    top = explanation.heatmap.flatten().argsort(descending=True, stable=True)[:100]
    ratio = 99.6 / 1024  # the nearest number of pixels is taken
    deleted, inserted = explanation.deleted(ratio), explanation.inserted(ratio)
    marked = torch.zeros(1024, dtype=torch.bool)
    marked[top] = True
    for picture, inside, outside in ((deleted, 0 * image, image), (inserted, image, 0 * image)):
        flat = picture.flatten(1)
        torch.testing.assert_close(flat[:, marked], inside.flatten(1)[:, marked], atol=1e-6, rtol=0)
        torch.testing.assert_close(
            flat[:, ~marked], outside.flatten(1)[:, ~marked], atol=1e-6, rtol=0
        )
    torch.testing.assert_close(explanation.deleted(0.0), image)


def test_every_kind_of_photo_gives_the_same(classifier: Classifier, photo: Path) -> None:
    expected = explained(classifier, photo)
    picture = Image.open(photo)
    for other in (str(photo), picture, np.asarray(picture), preprocess(picture)):
        assert torch.equal(explained(classifier, other).heatmap, expected.heatmap)
    assert torch.equal(explained(classifier, preprocess(picture)[None]).image, expected.image)
    exif = Image.Exif()
    exif[0x0112] = 6
    sideways = photo.with_name("sideways.png")
    picture.convert("RGBA").save(sideways, exif=exif)
    turned = explained(classifier, Image.open(sideways))
    assert torch.equal(turned.image, explained(classifier, sideways).image)
    assert not torch.equal(turned.image, expected.image)
    assert expected.photo == str(photo)
    assert explained(classifier, picture).photo == "photo"


def test_baselines_by_name_file_tensor_and_function(classifier: Classifier, photo: Path) -> None:
    file = photo.with_name("grey.png")
    Image.new("RGB", (50, 50), (128, 128, 128)).save(file)
    grey = NORMALISATION.normalise(torch.full((3, 32, 32), 128 / 255))
    for baseline in (str(file), grey, lambda image, _: grey.expand_as(image)):
        torch.testing.assert_close(
            explained(classifier, photo, baseline=baseline).baseline, grey, atol=1e-5, rtol=0
        )
    blurred = explained(classifier, photo, baseline="blur")
    torch.testing.assert_close(blurred.baseline, blur(blurred.image[None])[0])
    for wrong, message in (
        ("gray", "unknown baseline 'gray': did you mean 'grey'"),
        (None, "baseline None: give a name"),
        (grey[:, :5], r"baseline of shape \(3, 5, 32\)"),
    ):
        with pytest.raises(igos.IgosError, match=message):
            explained(classifier, photo, baseline=wrong)


def test_honest_warnings(classifier: Classifier, photo: Path) -> None:
    p = classifier.module(preprocess(Image.open(photo))[None]).softmax(dim=1)[0].tolist()
    assert explained(classifier, photo, target="other", link=igos.logit).warnings == [
        f"the baseline keeps a probability of 1.000 of {p[1]:.3f}: removing pixels cannot hide "
        "the class; choose another baseline"
    ]
    _, low, other = explained(classifier, photo, target="never").warnings
    assert low.startswith(f"the model gives this class a probability of only {p[2]:.4f}: below")
    assert other == (
        f"the model predicts 'other' ({p[1]:.3f}), not the class explained ({p[2]:.3f})"
    )
    red = Image.new("RGB", (40, 40), (255, 0, 0))
    assert explained(classifier, red).warnings == []


class Fixed(nn.Module):
    """Given probabilities, and others once the image is darker."""

    def __init__(self, bright: list[float], dark: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([bright, dark]).log())

    def forward(self, images: Tensor) -> Tensor:
        share = images.mean(dim=(1, 2, 3))[:, None]  # 1 for the photo, 0 for the baseline
        return share * self.logits[0] + (1 - share) * self.logits[1]


def doubts(bright: list[float], dark: list[float]) -> list[str]:
    model = Fixed(bright, dark)
    return igos.explain(
        torch.ones(3, 8, 8), model=model, target=0, resolution=2, baseline="grey", settings=FAST
    ).warnings


def test_when_to_warn() -> None:
    """Under a probability of 0.01; where the baseline keeps over a fifth of the score."""
    assert doubts([0.9, 0.1], [0.17, 0.83]) == []
    assert "keeps a probability" in doubts([0.9, 0.1], [0.19, 0.81])[0]
    assert not any("only" in text for text in doubts([0.011, 0.989], [1e-5, 1 - 1e-5]))
    assert any("only" in text for text in doubts([0.009, 0.991], [1e-5, 1 - 1e-5]))


def test_a_model_that_fails_on_the_way_is_named() -> None:
    class Fragile(Fixed):
        def forward(self, images: Tensor) -> Tensor:
            logits = super().forward(images)
            return torch.where(images.mean() == 1, logits, torch.nan)

    with pytest.raises(igos.IgosError, match="'Fragile' returned NaN"):
        igos.explain(
            torch.ones(3, 8, 8),
            model=Fragile([0.9, 0.1], [0.1, 0.9]),
            resolution=2,
            baseline="grey",
            settings=FAST,
        )


@pytest.mark.parametrize("precision", [torch.float64, torch.bfloat16])
def test_a_model_of_another_precision(precision: torch.dtype) -> None:
    image = random(3, 20, 24).float()
    exact, other = (
        igos.explain(
            image, model=TinyNet().to(kind), resolution=4, settings=FAST, baseline="grey", target=1
        )
        for kind in (torch.float32, precision)
    )
    assert other.image.dtype == torch.float32
    assert other.probability == pytest.approx(exact.probability, abs=0.02)
    assert other.deletion.auc == pytest.approx(exact.deletion.auc, abs=0.05)


def test_a_classifier_in_training_mode_is_left_as_it_was() -> None:
    class Forgetful(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(nn.functional.dropout(x, 0.5, self.training))

    net = Forgetful().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    classifier = Classifier("net", net, preprocess, NORMALISATION)
    explanation = explained(classifier, random(3, 20, 24).float(), baseline="grey")
    assert net.training
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    assert explanation.probability == pytest.approx(explanation.deletion.score[0].item())


def test_somebody_elses_failure_is_named(classifier: Classifier, photo: Path) -> None:
    class Broken(Redness):
        def forward(self, _: Tensor) -> Tensor:
            raise ValueError("of its own\nwith details")

    def number(_: Image.Image) -> Any:
        return 3

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"module": Broken()}, "model 'redness' failed: ValueError: of its own$"),
        ({"preprocess": number}, "preprocess of 'redness': it must return a tensor"),
        ({"preprocess": lambda _: torch.zeros(2, 2)}, r"photo of shape \(2, 2\)"),
        ({"preprocess": lambda _: 1 / 0}, "model 'redness' failed: ZeroDivisionError"),
    ]
    for how, message in wrong:
        with pytest.raises(igos.IgosError, match=message):
            explained(replace(classifier, **how), photo)


class OneAtATime(Redness):
    """Works for one photo, as it was tried, and for no batch."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.view(1, 3, 32, 32))


class InPlace(Redness):
    """Runs forward and not back."""

    def forward(self, images: Tensor) -> Tensor:
        red = images[:, 0].mean(dim=(1, 2)).exp()
        logits = torch.stack([self.gain * red, 0 * red, 0 * red - 9], dim=1)
        red.zero_()  # what its derivative is made of
        return logits


@pytest.mark.parametrize("module", [OneAtATime(), InPlace()])
def test_a_model_that_fails_later_is_named(
    classifier: Classifier, photo: Path, module: nn.Module
) -> None:
    with pytest.raises(igos.IgosError, match="the model failed: RuntimeError"):
        explained(replace(classifier, module=module.eval()), photo)


def test_the_preprocessing_of_a_baseline_may_fail(classifier: Classifier, photo: Path) -> None:
    def once(picture: Image.Image) -> Tensor:
        if picture.width == 50:
            raise ValueError("too wide")
        return preprocess(picture)

    wide = photo.with_name("wide.png")
    Image.new("RGB", (50, 40)).save(wide)
    with pytest.raises(igos.IgosError, match="model 'redness' failed: ValueError: too wide"):
        explained(replace(classifier, preprocess=once), photo, baseline=wide)


def test_arrays_that_are_no_photos(classifier: Classifier) -> None:
    for shape in ((3, 40, 40), (40, 40, 1), (40,), (2, 40, 40, 3)):
        with pytest.raises(igos.IgosError, match=r"give \(H, W, 3\) or \(H, W\)"):
            explained(classifier, np.zeros(shape, np.uint8))
    assert explained(classifier, np.zeros((40, 40), np.uint8)).heatmap.shape == (8, 8)


def test_the_curves_of_rise(classifier: Classifier, photo: Path) -> None:
    explanation = explained(classifier, photo, protocol=igos.RISE_CURVES)
    assert len(explanation.deletion.score) == 33
    assert explanation.settings["curves"] == "rise"


def test_a_logit_and_a_function_as_the_score(classifier: Classifier, photo: Path) -> None:
    by_logit = explained(classifier, photo, target=0, link=igos.logit)
    logits = classifier.module(by_logit.image[None])[0]
    assert by_logit.insertion.score[-1].item() == pytest.approx(logits[0].item())
    assert by_logit.settings["score"] == "logit"
    by_function = explained(classifier, photo, target=lambda output: output[:, 0] - output[:, 1])
    difference = (logits[0] - logits[1]).item()
    assert by_function.insertion.score[-1].item() == pytest.approx(difference)
    assert (by_function.target, by_function.probability) == (None, None)
    by_function.plot()


def test_a_bare_module_takes_tensors(tmp_path: Path) -> None:
    net = TinyNet().train()
    image = random(3, 20, 24).float()
    explanation = igos.explain(
        image, model=net, resolution=(5, 4), settings=FAST, device="cpu", baseline="grey"
    )
    assert explanation.heatmap.shape == (5, 4)
    assert explanation.model == "TinyNet"
    assert net.training
    file = tmp_path / "grey.png"
    Image.new("RGB", (50, 50), (128, 128, 128)).save(file)
    with pytest.raises(igos.IgosError, match="says nothing of its preprocessing"):
        igos.explain(image, model=net, device="cpu", baseline=file)
    with pytest.raises(igos.IgosError, match="give the photo as a tensor"):
        igos.explain("sample", model=net, device="cpu")
    with pytest.raises(igos.IgosError, match=r"photo of shape \(2, 3, 20, 24\)"):
        igos.explain(image.expand(2, 3, 20, 24), model=net, device="cpu")


def test_mistakes_are_named(classifier: Classifier, photo: Path) -> None:
    for how, message in (
        ({"target": "rad"}, "unknown class 'rad': did you mean 'red'"),
        ({"target": 3}, "class index 3"),
        ({"method": "igso"}, "unknown method 'igso': did you mean 'igos'"),
        ({"resolution": 33}, "resolution 33×33: the image is 32×32"),
        ({"resolution": 0}, "resolution 0"),
        ({"seed": 2**70}, "seed 1180591620717411303424"),
        ({"settings": {"lamda1": 1}}, "unknown setting 'lamda1': did you mean 'lambda1'"),
    ):
        with pytest.raises(igos.IgosError, match=message):
            explained(classifier, photo, **how)
    for wrong, message in (
        (np.zeros((40, 40, 3)), "array of float64"),
        (torch.zeros(3, 40, 40, dtype=torch.uint8), r"torch.uint8: give \(3, H, W\), floating"),
        (np.zeros((1, 1, 3), np.uint8), "1×1 pixels"),
    ):
        with pytest.raises(igos.IgosError, match=message):
            explained(classifier, wrong)
    nameless = Classifier("nameless", Redness().eval(), preprocess, NORMALISATION)
    with pytest.raises(igos.IgosError, match="class index 7: nameless has the classes 0 to 2"):
        explained(nameless, photo, target=7)
    with torch.no_grad():
        nameless.module.gain.fill_(float("nan"))  # type: ignore[operator, union-attr]
    with pytest.raises(igos.IgosError, match="'nameless' returned NaN or infinity"):
        explained(nameless, photo)


def test_saved_files_hold_the_explanation(
    classifier: Classifier, photo: Path, tmp_path: Path
) -> None:
    explanation = explained(classifier, photo, resolution=(8, 6))
    paths = explanation.save(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        f"flag.igos.8x6.{kind}" for kind in ("png", "npy", "json")
    ]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(
        path.name for path in paths
    )
    with Image.open(paths[0]) as picture:
        assert picture.width > 1500
    heatmap = np.load(paths[1])
    assert heatmap.dtype == np.float32
    assert (heatmap == explanation.heatmap.numpy()).all()
    record = json.loads(paths[2].read_text())
    assert record == json.loads(json.dumps(explanation.record()))
    wanted = (
        "photo model target class_name probability method resolution settings deletion insertion "
        "seconds iterations converged warnings"
    )
    assert set(wanted.split()) <= set(record)
    assert record["resolution"] == [8, 6]
    assert record["deletion"] == explanation.deletion.auc
    assert record["curves"]["insertion"]["score"] == explanation.insertion.score.tolist()


def test_a_folder_that_cannot_be_written(classifier: Classifier, photo: Path) -> None:
    explanation = explained(classifier, photo)
    with pytest.raises(igos.IgosError, match="not writable"):
        explanation.save(photo)  # a file, not a folder
    with pytest.raises(igos.IgosError, match="not writable"):
        explanation.save(photo / "below")


def test_the_panel_shows_what_it_says(classifier: Classifier, photo: Path) -> None:
    explanation = explained(classifier, photo, target="never")
    figure = panel(explanation, ratio=0.25)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[0].startswith("never: 0.000")
    assert titles[1] == "igos, 8×8"
    assert titles[2] == f"25% deleted: {score_at(explanation.deletion, 0.25):.3f}"
    curves = figure.axes[4]
    assert curves.get_ylim() == (0, 1.02)
    drawn = [np.asarray(line.get_ydata()).tolist() for line in curves.lines[:2]]
    assert drawn == [explanation.deletion.score.tolist(), explanation.insertion.score.tolist()]
    assert np.asarray(curves.lines[2].get_xdata()).tolist() == [0.25, 0.25]
    assert figure.axes[4].get_title(loc="left") == f"deletion {explanation.deletion.auc:.3f}"
    shown = figure.axes[2].images[0].get_array()
    assert shown is not None
    torch.testing.assert_close(
        torch.tensor(np.asarray(shown)).permute(2, 0, 1), explanation.deleted(0.25)
    )
    assert len(explanation.warnings) == 3
    assert all(text in figure.get_suptitle() for text in explanation.warnings)
    assert explanation._repr_png_().startswith(b"\x89PNG")


def test_the_overlay_is_coloured_where_the_heatmap_is_high_and_the_grey_photo_where_it_is_low() -> (
    None
):
    image = random(3, 8, 8).sigmoid().float()
    heatmap = torch.zeros(2, 2)
    heatmap[0, 0] = 1
    picture = overlay(image, heatmap)
    torch.testing.assert_close(picture[:, 7, 7], (0.65 * image[:, 7, 7].mean()).expand(3))
    assert picture[0, 0, 0] > picture[2, 0, 0] + 0.2  # the hot end of the colour map is yellow
    assert overlay(image, torch.zeros(2, 2)).isfinite().all()


def test_what_speaks_against_the_class_is_drawn_cold() -> None:
    values = [[-1.0, 0.0], [0.5, 1.0]]  # 99 % of them lie below 0.985
    assert warmth(np.array(values)).round(2).tolist() == [[0, 0], [0.51, 1]]
    assert warmth(np.array(values) + 2).round(2).tolist() == [[0, 0.5], [0.76, 1]]
    assert warmth(np.array(values) - 2)[0, 0] == 0  # all against: from the lowest
    assert warmth(np.array(values) - 2)[1, 1] == 1
    few = np.zeros((20, 20))
    few[0, 0], few[1, 1] = 1.0, 0.1
    assert warmth(few)[1, 1] == pytest.approx(0.5)  # five times hotter than its share


def test_score_at_interpolates() -> None:
    curve = igos.Curve(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([1.0, 0.5, 0.25]))
    assert [score_at(curve, at) for at in (0.0, 0.25, 0.75)] == [1.0, 0.75, 0.375]
