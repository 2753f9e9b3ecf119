"""Every source of a classifier, its weights and its names; and that speed changes no answer."""

import copy
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from huggingface_hub import constants
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from igos.data import sample_photo
from igos.errors import IgosError
from igos.image import Normalisation
from igos.models import describe, load, pick_device
from igos.models.accelerate import accelerate, fold_batch_norms
from igos.models.classifier import Classifier
from igos.models.sources import efficientnet_lite
from igos.models.view import view
from igos.models.weights import read_state_dict
from small import TinyNet, random

CPU = torch.device("cpu")
EXAMPLE = random(1, 3, 64, 64).float()


@pytest.fixture(scope="module")
def lite0() -> Classifier:
    return load("efficientnet_lite0", device="cpu")


def test_the_bundled_model_knows_an_espresso(lite0: Classifier) -> None:
    image = lite0.preprocess(sample_photo())
    assert image.shape == (3, 224, 224)
    p = lite0.module(image[None]).softmax(dim=1)[0]
    assert lite0.class_name(int(p.argmax())) == "espresso"
    assert p.max().item() == pytest.approx(0.951, abs=0.002)
    assert lite0.normalisation == Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert len(lite0.class_names) == 1000


def test_preprocessing_is_short_side_256_bicubic_centre_224(lite0: Classifier) -> None:
    photo = sample_photo()  # 600×400
    small = photo.resize((384, 256), Image.Resampling.BICUBIC).crop((80, 16, 304, 240))
    pixels = torch.tensor(list(small.tobytes()), dtype=torch.float32).view(224, 224, 3) / 255
    torch.testing.assert_close(
        lite0.preprocess(photo), (pixels.permute(2, 0, 1) - 0.5) / 0.5, atol=1e-5, rtol=0
    )


def test_acceleration_changes_no_answer(lite0: Classifier) -> None:
    """Scores and gradients, in float64: in float32 rounding moves some inputs over a kink."""
    with torch.random.fork_rng():
        plain = efficientnet_lite(0)(None).module.double().eval()
    fast = accelerate(plain, CPU, torch.zeros(1, 3, 224, 224))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in fast.modules())  # all are folded
    assert not any(p.requires_grad for p in fast.parameters())
    image = lite0.preprocess(sample_photo())[None].double().requires_grad_()
    torch.testing.assert_close(fast(image), plain(image))
    gradients = [torch.autograd.grad(net(image)[0, 967], image)[0] for net in (fast, plain)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vgg11_bn", "densenet121"])
def test_folding_is_exact_for_torchvisions_networks(name: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torchvision.models.get_model(name).double().eval()
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -0.1, 0.1)  # type: ignore[arg-type]
                nn.init.uniform_(module.running_var, 0.5, 2.0)  # type: ignore[arg-type]
    fast = accelerate(net, CPU, EXAMPLE)
    norms = sum(isinstance(m, nn.BatchNorm2d) for m in net.modules())
    left = sum(isinstance(m, nn.BatchNorm2d) for m in fast.modules())
    assert norms > 5
    # DenseNet's norms come before their convolution, half of them after a concatenation.
    assert left == 0 or (name == "densenet121" and left < norms)
    image = random(2, 3, 64, 64)
    torch.testing.assert_close(fast(image), net(image))


def test_acceleration_leaves_the_users_model_alone() -> None:
    net = TinyNet().train()
    before = copy.deepcopy(net)
    accelerate(net, CPU, EXAMPLE)
    assert net.training
    assert all(p.requires_grad for p in net.parameters())
    assert isinstance(net.bn1, nn.BatchNorm2d)
    for ours, theirs in zip(net.state_dict().values(), before.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


class Standardised(nn.Conv2d):
    """A convolution whose weight is not what it multiplies with."""

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.conv2d(input, self.weight - self.weight.mean(), self.bias, padding=1)


class Deceives(TinyNet):
    """Tracing sees one way, running takes another."""

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Tensor):
            logits: Tensor = super().forward(x) + self.bn1(self.conv1(2 * x)).mean()
            return logits
        return super().forward(x + torch.relu(self.conv1(x))[:, :3])


def parametrised(net: TinyNet) -> TinyNet:
    with torch.random.fork_rng():
        nn.utils.parametrizations.weight_norm(net.conv1)
    return net


def test_what_cannot_be_folded_runs_as_it_is() -> None:
    standardised = TinyNet()
    with torch.random.fork_rng():
        standardised.conv1 = Standardised(3, 8, 3)
    for net in (standardised, Deceives(), parametrised(TinyNet())):
        expected = net.eval()(EXAMPLE).detach()
        torch.testing.assert_close(accelerate(net, CPU, EXAMPLE)(EXAMPLE), expected)


class WithVolumes(TinyNet):
    """A convolution in three dimensions: its weight has no channels-last form."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            self.conv3 = nn.Conv3d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.conv3(x[:, :, None])[:, :, 0])


def test_a_model_with_volumes() -> None:
    net = WithVolumes().eval()
    torch.testing.assert_close(accelerate(net, CPU, EXAMPLE)(EXAMPLE), net(EXAMPLE).detach())


class Alone(TinyNet):
    """Cannot be copied, like a scripted module."""

    def __deepcopy__(self, _: object) -> "Alone":
        raise RuntimeError("no copies")


def test_what_cannot_be_copied_is_used_itself() -> None:
    net = Alone()
    assert accelerate(net, CPU, EXAMPLE) is net


def test_what_cannot_be_copied_is_not_left_on_another_device_in_silence() -> None:
    with pytest.raises(IgosError, match=r"on cpu that cannot be copied to meta.*device cpu"):
        accelerate(Alone(), torch.device("meta"), EXAMPLE)


class Shared(TinyNet):
    """One convolution and one norm, used twice."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x))
        x = self.bn1(self.conv1(x[:, :3]))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


class Twice(TinyNet):
    """The first convolution's output has a second reader: folding would change it."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(x)
        x = torch.relu(self.bn1(y)) + y
        x = torch.relu(self.bn2(self.conv2(x)))
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


class Reads(TinyNet):
    """The second batch norm's weight is read on the side."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.bn2.weight.sum()


class Branches(TinyNet):
    """Not traceable: the way depends on the values."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(-x if x.sum() > 0 else x)


def test_only_what_is_safe_is_folded() -> None:
    image = random(2, 3, 12, 10)
    for kind, folded in ((TinyNet, 2), (Twice, 1), (Reads, 1), (Branches, 0), (Shared, 0)):
        net = kind().double().eval()
        expected = net(image).detach()
        assert fold_batch_norms(net) == folded, kind.__name__
        torch.testing.assert_close(net(image), expected)
    hooked = TinyNet().eval()
    hooked.bn1.register_forward_hook(lambda *_: None)
    assert fold_batch_norms(hooked) == 1
    assert fold_batch_norms(TinyNet().train()) == 0


def resnet18() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net: nn.Module = torchvision.models.resnet18().eval()
    return net


@pytest.mark.parametrize("form", ["net.pth", "net.safetensors", "checkpoint.pt"])
def test_weights_from_a_file(tmp_path: Path, form: str) -> None:
    net = resnet18()
    path = tmp_path / form
    if form == "net.safetensors":
        save_file(net.state_dict(), path)
    elif form == "net.pth":
        torch.save(net.state_dict(), path)
    else:  # as a training program with DataParallel saves it
        inner = {f"module.{key}": value for key, value in net.state_dict().items()}
        torch.save({"epoch": 3, "state_dict": inner}, path)
    classifier = load("torchvision:resnet18", weights=path, device="cpu")
    image = random(1, 3, 64, 64).float()
    torch.testing.assert_close(classifier.module(image), net(image), rtol=1e-4, atol=1e-4)
    assert classifier.class_name(967) == "espresso"
    assert classifier.normalisation.std == (0.229, 0.224, 0.225)
    assert classifier.preprocess(sample_photo()).shape == (3, 224, 224)


def test_torchvisions_first_weights_are_the_default(tmp_path: Path) -> None:
    """The paper's: resnet50's second ones resize to 232, its first ones to 256."""
    with torch.random.fork_rng():
        torch.save(torchvision.models.resnet50().state_dict(), tmp_path / "net.pth")
    for name, side in (("resnet50", 256), ("resnet50@IMAGENET1K_V2", 232)):
        classifier = load(f"torchvision:{name}", weights=tmp_path / "net.pth", device="cpu")
        assert classifier.preprocess.resize_size == [side]  # type: ignore[attr-defined]


def test_googlenet_from_a_file_transforms_its_input_as_torchvision_does(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        net = torchvision.models.googlenet(init_weights=False)
        torch.save(net.state_dict(), tmp_path / "net.pth")
    classifier = load("torchvision:googlenet", weights=tmp_path / "net.pth", device="cpu")
    assert bool(classifier.module.transform_input)


def test_timm_with_weights_from_a_file(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        net = timm.create_model("resnet10t", pretrained=False).eval()
    torch.save(net.state_dict(), tmp_path / "net.pth")
    classifier = load("timm:resnet10t", weights=tmp_path / "net.pth", device="cpu")
    image = random(1, 3, 64, 64).float()
    torch.testing.assert_close(classifier.module(image), net(image), rtol=1e-4, atol=1e-4)
    assert classifier.find_class("espresso") == 967


class Payload:
    """Unpickling this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_code_in_a_weights_file_is_never_run(tmp_path: Path) -> None:
    payload = Payload(tmp_path / "owned")
    torch.save({"x": payload}, tmp_path / "a.pth")
    (tmp_path / "b.pth").write_bytes(pickle.dumps(payload))
    for name in ("a.pth", "b.pth"):
        with pytest.raises(IgosError, match="not a safetensors file or a plain state dict"):
            read_state_dict(tmp_path / name)
    assert not (tmp_path / "owned").exists()


def test_weights_that_do_not_fit_or_are_none(tmp_path: Path) -> None:
    save_file(resnet18().state_dict(), tmp_path / "net.safetensors")
    with pytest.raises(IgosError, match=r"do not fit ResNet.*missing.*of another shape"):
        load("torchvision:resnet50", weights=tmp_path / "net.safetensors")
    with pytest.raises(IgosError, match=r"the file given' do not fit EfficientNet.*conv_stem"):
        load("efficientnet_lite0", weights=tmp_path / "net.safetensors")
    (tmp_path / "text.pth").write_text("hello")
    (tmp_path / "text.safetensors").write_text("hello")
    torch.save([1, 2], tmp_path / "list.pth")
    for name, reason in (
        ("missing.pth", "no such file"),
        ("text.pth", "not a safetensors file"),
        ("text.safetensors", "not a safetensors file"),
        ("list.pth", "holds no state dict"),
    ):
        with pytest.raises(IgosError, match=reason):
            read_state_dict(tmp_path / name)


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    from transformers import ResNetConfig, ResNetForImageClassification, ViTImageProcessor

    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3,
            id2label={0: "cat", 1: "dog", 2: "boat"}, label2id={"cat": 0, "dog": 1, "boat": 2},
        )  # fmt: skip
        net = ResNetForImageClassification(config).eval()
        net.save_pretrained(tmp_path / "net")
        size = {"height": 32, "width": 32}
        ViTImageProcessor(size=size, image_mean=[0.1] * 3, image_std=[0.3] * 3).save_pretrained(
            tmp_path / "net"
        )
    classifier = load(f"hf:{tmp_path / 'net'}", device="cpu")
    image = classifier.preprocess(sample_photo())
    assert image.shape == (3, 32, 32)
    assert classifier.normalisation == Normalisation((0.1, 0.1, 0.1), (0.3, 0.3, 0.3))
    assert classifier.find_class("boat") == 2
    torch.testing.assert_close(
        classifier.module(image[None]), net(image[None]).logits, rtol=1e-4, atol=1e-5
    )
    seen = view(f"hf:{tmp_path / 'net'}")
    assert seen.preprocess(sample_photo()).equal(image)
    assert (seen.normalisation, seen.class_names[2]) == (classifier.normalisation, "boat")


def test_a_hugging_face_model_may_not_bring_its_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # not even where one would be asked
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "preprocessor_config.json").write_text("{}")
    with pytest.raises(IgosError, match="could not be loaded"):
        load(f"hf:{tmp_path}", device="cpu")
    assert not (tmp_path / "ran").exists()


def test_ones_own_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\n"
        "from torch import nn\n"
        "from torchvision.transforms.v2.functional import pil_to_tensor\n"
        "from igos import Classifier, Normalisation\n"
        "def net():\n"
        "    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))\n"
        "    torch.nn.init.eye_(module[2].weight)\n"
        "    return Classifier('mine', module, lambda p: pil_to_tensor(p) / 255,\n"
        "                      Normalisation(), ('red', 'green'))\n"
        "def broken():\n"
        "    return 1 / 0\n"
        "def leaves():\n"
        "    raise SystemExit(7)\n"
        "def shapeless():\n"
        "    return Classifier('x', 3, None, Normalisation())\n"
        "def number():\n"
        "    return 3\n"
    )
    classifier = load(f"{path}:net", device="cpu")
    red = classifier.preprocess(Image.new("RGB", (20, 20), (255, 0, 0)))
    logits = classifier.module(red[None])[0] - classifier.module(0 * red[None])[0]
    torch.testing.assert_close(logits, torch.tensor([1.0, 0.0]))
    for name, reason in (
        ("broken", "ZeroDivisionError: division by zero"),
        ("number", r"number\(\) returned int; return igos.Classifier"),
        ("leaves", "SystemExit: 7"),
        ("shapeless", "module of 'x' is a int: give a torch.nn.Module"),
        ("none", "has no function 'none'"),
    ):
        with pytest.raises(IgosError, match=reason):
            load(f"{path}:{name}")
    with pytest.raises(IgosError, match="no such file"):
        load(f"{tmp_path}/other.py:net")


def test_unknown_names_get_the_nearest_ones() -> None:
    for name, reason in (
        ("efficientnet_lite9", "did you mean 'efficientnet_lite"),
        ("resnet50", "did you mean 'timm:resnet50' or 'torchvision:resnet50'"),
        ("torchvision:resnet51", "did you mean 'resnet5"),
        ("torchvision:resnet50@V9", "resnet50 has IMAGENET1K_V1, IMAGENET1K_V2"),
        ("timm:resnet50x", "did you mean 'resnet50"),
        ("timm:resnet50.nothing", "nothing"),
        ("timm:", "unknown model"),
    ):
        with pytest.raises(IgosError, match=reason):
            load(name)


@pytest.mark.parametrize(
    "name",
    ["torchvision:resnet51", "torchvision:resnet50@BAD", "timm:nothing", "timm:resnet50x"],
)
def test_a_view_says_of_unknown_names_what_loading_says(name: str) -> None:
    with pytest.raises(IgosError) as loading:
        load(name, device="cpu")
    with pytest.raises(IgosError) as viewing:
        view(name)
    assert str(viewing.value) == str(loading.value)


def test_a_view_of_no_bundled_model() -> None:
    reason = "unknown model 'efficientnet_lite9': did you mean 'efficientnet_lite2'"
    with pytest.raises(IgosError, match=reason):
        view("efficientnet_lite9")


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18", "hf:someone/something"])
def test_without_a_network_the_remedy_is_said(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
    for variable in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(IgosError, match="--weights FILE"):
        load(name)
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ
    assert not constants.HF_HUB_OFFLINE


def test_classes_by_index_and_name() -> None:
    names = ("tench, Tinca tinca", "crane", "Espresso", "crane")
    classifier = Classifier("four", TinyNet(), lambda _: torch.empty(0), Normalisation(), names)
    for wanted, index in (("2", 2), (2, 2), ("espresso", 2), ("Tinca Tinca", 0), (" tench ", 0)):
        assert classifier.find_class(wanted) == index
    for wrong, reason in (
        ("expresso", "unknown class 'expresso': did you mean 'espresso'"),
        ("crane", r"ambiguous: give the index, one of 1 \(crane\), 3 \(crane\)"),
        ("4", "class index 4: four has the classes 0 to 3"),
        (-1, "class index -1"),
        ("²", "unknown class"),
        ("", "unknown class"),
    ):
        with pytest.raises(IgosError, match=reason):
            classifier.find_class(wrong)
    assert classifier.class_name(17) == "class 17"
    digits = replace(classifier, class_names=("3", "5", "8"))
    assert digits.find_class("8") == 2
    assert digits.find_class(1) == 1


def test_devices() -> None:
    assert pick_device("cpu") == CPU
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    for name in ("gpu", "cuda:99", "cpuu", "meta"):
        with pytest.raises(IgosError, match=f"device '{name}': not available"):
            pick_device(name)


def test_describe() -> None:
    names = [name for name, _ in describe()]
    assert names[:3] == ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"]
    assert dict(describe())["efficientnet_lite0"] == "ready"
    assert ("torchvision:resnet50", "") in describe("torchvision:resnet")
    with pytest.raises(IgosError, match="give torchvision:WORD or timm:WORD"):
        describe("resnet")
