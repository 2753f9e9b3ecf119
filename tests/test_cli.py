"""The command line as a person or another program uses it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import igos
from igos.methods import METHODS
from small import Run

FAST = ("--set", "max_iterations=2", "--set", "path_steps=2", "--baseline", "grey", "-r", "8")
NET = ("--model", "net.py:classifier", "--device", "cpu")


def test_explain_writes_three_files_a_photo(place: Path, run: Run) -> None:
    code, out, err = run("explain", "red.png", "blue.jpg", *NET, *FAST, "--out", "there")
    assert (code, err) == (0, "")
    assert sorted(path.name for path in (place / "there").iterdir()) == sorted(
        f"{stem}.igos.8.{kind}" for stem in ("red", "blue") for kind in ("png", "npy", "json")
    )
    record = json.loads((place / "there/red.igos.8.json").read_text())
    assert record["class_name"] == "red"
    assert record["model"] == "net.py:classifier"
    assert record["settings"]["max_iterations"] == 2
    assert f"red.png: red, probability {record['probability']:.3f}" in out
    assert f"deletion {record['deletion']:.3f}, insertion {record['insertion']:.3f}" in out
    assert str(Path("there/red.igos.8.png")) in out


def test_json_is_all_that_stdout_gets(place: Path, run: Run) -> None:
    code, out, err = run("explain", "red.png", "blue.jpg", *NET, *FAST, "--json", "--target", "red")
    assert code == 0
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["photo"] for record in records] == ["red.png", "blue.jpg"]
    for record, stem in zip(records, ("red", "blue"), strict=True):
        assert record == json.loads((place / f"igos-out/{stem}.igos.8.json").read_text())
    assert "igos: warning: blue.jpg: the model predicts 'blue'" in err


@pytest.mark.usefixtures("place")
def test_the_precision_is_on_record(run: Run) -> None:
    records = {}
    for precision in ("auto", "fp16"):
        _, out, _ = run("explain", "red.png", *NET, *FAST, "--json", "--precision", precision)
        records[precision] = json.loads(out)
    assert records["auto"]["settings"]["precision"] == "fp32"  # on the CPU
    assert records["fp16"]["settings"]["precision"] == "fp16"
    for metric in ("deletion", "insertion"):
        assert records["fp16"][metric] == pytest.approx(records["auto"][metric], abs=0.01)


@pytest.mark.usefixtures("place")
def test_a_model_that_prints_does_not_reach_stdout(run: Run) -> None:
    code, out, err = run("explain", "red.png", "-m", "net.py:loud", *FAST, "--json")
    assert code == 0
    assert json.loads(out)["class_name"] == "red"
    assert err == "loud\n"


def test_a_photo_of_the_same_name_does_not_overwrite_the_first(place: Path, run: Run) -> None:
    (place / "sub").mkdir()
    (place / "blue.jpg").rename(place / "sub" / "red.jpg")
    code, out, err = run("explain", "red.png", "sub/red.jpg", *NET, *FAST)
    assert code == 2
    assert "red.png: red" in out
    assert "photo 'sub/red.jpg': would overwrite the results of 'red.png'" in err


def test_odd_names(place: Path, run: Run) -> None:
    odd = os.fsdecode(b"odd\xff.png")  # no valid text
    (place / "red.png").rename(place / odd)
    assert run("explain", odd, *NET, *FAST)[0] == 0
    assert json.loads((place / os.fsdecode(b"igos-out/odd\xff.igos.8.json")).read_text())
    code, _, err = run("explain", 300 * "x" + ".png", *NET, *FAST)
    assert code == 2
    assert "File name too long" in err


def test_options_reach_the_explanation(place: Path, run: Run) -> None:
    def picture(*words: str) -> tuple[dict[str, object], bytes]:
        code, out, _ = run("explain", "red.png", *NET, *FAST, "--json", *words)
        assert code == 0
        return json.loads(out)["settings"], (place / "igos-out/red.igos.8.png").read_bytes()

    settings, plain = picture()
    assert (settings["seed"], settings["score"]) == (0, "probability")
    settings, _ = picture("--seed", "5", "--score", "logit")
    assert (settings["seed"], settings["score"]) == (5, "logit")
    _, half = picture("--ratio", "0.5")
    assert half != plain


@pytest.mark.usefixtures("place")
def test_a_folder_that_cannot_be_written_is_told_before_any_work(run: Run) -> None:
    code, _, err = run("explain", "red.png", "--model", "nonsense", "--out", "red.png")
    assert code == 2
    assert "folder 'red.png': not writable" in err


def test_a_bad_photo_does_not_stop_the_others(place: Path, run: Run) -> None:
    code, out, err = run("explain", "red.png", "text.jpg", "gone.png", "blue.jpg", *NET, *FAST)
    assert code == 2
    assert err.splitlines() == [
        "igos: photo 'text.jpg': not an image that Pillow can read",
        "igos: photo 'gone.png': no such file",
    ]
    assert "red.png: red" in out
    assert "blue.jpg: blue" in out
    assert len(list((place / "igos-out").iterdir())) == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "efficientnet_lit0"), "unknown model 'efficientnet_lit0': did you mean"),
        (("--method", "igso"), "unknown method 'igso': did you mean 'igos'"),
        (("--target", "rad"), "unknown class 'rad': did you mean 'red'"),
        (("--target", "3"), "class index 3: net.py:classifier has the classes 0 to 2"),
        (("--target=-1",), "class index -1"),
        (("-r", "0"), "resolution 0: give"),
        (("-r", "33"), "resolution 33×33: the image is 32×32"),
        (("-r", "8x9x7"), "resolution '8x9x7': give a number"),
        (("-r", "big"), "resolution 'big'"),
        (("--set", "lambda1"), "setting 'lambda1': give NAME=VALUE"),
        (("--set", "lambda9=1"), "unknown setting 'lambda9': did you mean"),
        (("--score", "logits"), "unknown score 'logits': did you mean 'logit'"),
        (("--baseline", "gray"), "unknown baseline 'gray': did you mean 'grey'"),
        (("--weights", "gone.pth"), "weights 'gone.pth': no such file"),
        (("--weights", "text.jpg"), "weights 'text.jpg': not a safetensors file"),
        (("--device", "gpu"), "device 'gpu': not available"),
        (("--precision", "fp61"), "unknown precision 'fp61': did you mean 'fp16'"),
        (("--out", "red.png"), "folder 'red.png': not writable"),
        (("--model", "net.py:nan"), "returned NaN or infinity"),
        (("--seed", str(2**70)), "seed 1180591620717411303424"),
        (("--set", "step_rule.eta=0.9999999"), "more than 200 trials"),
        (("--set", "step_rule.alpha_upper=inf"), "both alphas above 0"),
        (("--curves", "rize"), "unknown curves 'rize': did you mean 'rise'"),
        (("--model", "net.py:broken"), "'net.py:broken' failed: RuntimeError: broken"),
        (("--model", "net.py:leaves"), "'net.py:leaves': SystemExit: 7"),
    ],
)
@pytest.mark.usefixtures("place")
def test_mistakes_are_named_with_exit_code_2(
    words: tuple[str, ...], message: str, run: Run
) -> None:
    given = [*NET, *words] if "--model" not in words else [*words, "--device", "cpu"]
    code, out, err = run("explain", "red.png", *given)
    assert code == 2
    assert out == ""
    assert err.startswith("igos: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("place")
def test_usage_mistakes_have_exit_code_2(run: Run) -> None:
    for words in (("explain", "--ratio", "2"), ("explain", "--nonsense"), ("nonsense",)):
        code, _, err = run(*words)
        assert code == 2
        assert "Traceback" not in err


def test_lists(run: Run) -> None:
    assert run("--version") == (0, f"igos {igos.__version__}\n", "")
    code, out, _ = run("methods")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[::2]] == list(METHODS)
    code, out, _ = run("models")
    assert code == 0
    assert "efficientnet_lite0           ready" in out
    assert run("models", "torchvision:vgg19")[1].split() == [
        "torchvision:vgg19",
        "torchvision:vgg19_bn",
    ]
    assert run("models", "vgg19")[0] == 2


def test_help_needs_nothing_heavy() -> None:
    """`igos --help` answers at once because it imports neither torch nor its friends."""
    program = (
        "import sys; sys.argv = ['igos', '--help']\n"
        "from igos.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'torchvision', 'timm', 'matplotlib', 'numpy', 'PIL', 'gradio'}\n"
        "assert not heavy & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "explain" in done.stdout


def test_the_sample_with_the_bundled_model(tmp_path: Path) -> None:
    """As installed, in a process of its own: what `make demo` does, but shorter."""
    words = ["explain", *FAST[:4], "-r", "7", "--out", str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "igos.cli", *words], capture_output=True, text=True, check=True
    )
    record = json.loads(done.stdout)
    assert record["class_name"] == "espresso"
    assert record["probability"] == pytest.approx(0.951, abs=0.002)
    assert (tmp_path / "sample.igos.7.png").exists()
    assert done.stderr == ""
