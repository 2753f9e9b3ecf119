"""GradCAM by hand, and the layer it finds by itself."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.vision_transformer import VisionTransformer

from igos.errors import IgosError
from igos.methods.base import UnsuitedError
from igos.methods.gradcam import GradCAM
from igos.methods.layers import calls, last_map
from igos.models.accelerate import fold_batch_norms
from igos.problem import Problem
from small import TinyNet, random, single
from small_layers import LayerNet, layer_problem, unchanged


def test_too_little_memory_for_a_copy_says_nothing_of_the_method() -> None:
    class Large(TinyNet):
        def __deepcopy__(self, _: object) -> "Large":
            raise MemoryError

    image = random(1, 3, 12, 10).float()
    with pytest.raises(MemoryError):
        GradCAM()(Problem(Large().eval(), image, image, 0))


@pytest.mark.parametrize("score", ["logit", "probability"])
@pytest.mark.parametrize("layer", [None, "conv2"])
def test_gradcam_by_hand(score: str, layer: str | None) -> None:
    """The maps of conv2, each weighted by the mean of the score's gradient there, rectified."""
    problem = layer_problem(nn.ReLU())
    net = problem.model
    assert isinstance(net, LayerNet)
    assert isinstance(problem.target, Tensor)
    maps = net.conv2(net.act(net.conv1(problem.image)))  # (3, 8, 4, 3)
    logits = net.fc(net.act2(net.hidden(net.act(maps).mean(dim=(2, 3)))))
    values = logits.softmax(dim=1) if score == "probability" else logits
    (slope,) = torch.autograd.grad(values[torch.arange(3), problem.target].sum(), maps)
    expected = torch.zeros(3, 1, 4, 3, dtype=torch.float64)
    for at in range(3):
        for channel in range(8):
            expected[at, 0] += slope[at, channel].mean() * maps[at, channel].detach()
    method = GradCAM(layer=layer, link=score)
    assert method.native_resolution(problem) == (4, 3)
    torch.testing.assert_close(method(problem), expected.clamp(min=0))
    assert (expected < 0).any()
    assert (expected > 0).any()


def test_a_map_that_is_changed_in_place_afterwards_is_kept() -> None:
    """conv2 is followed by a rectifier in place; GradCAM looks at what conv2 returned."""
    expected = GradCAM(layer="conv2")(layer_problem(nn.ReLU(inplace=False)))
    found = GradCAM(layer="conv2")(layer_problem(nn.ReLU(inplace=True)))
    torch.testing.assert_close(found, expected)


def test_a_batch_is_its_images() -> None:
    problem = layer_problem()
    together = GradCAM()(problem)
    assert together.dtype == torch.float64
    for at in range(3):
        torch.testing.assert_close(together[at : at + 1], GradCAM()(single(problem, at)))


def test_a_target_function_is_what_is_explained() -> None:
    problem = layer_problem()
    function = replace(problem, target=lambda logits: logits[:, 1])
    torch.testing.assert_close(GradCAM()(function), GradCAM()(replace(problem, target=1)))


def test_the_model_is_not_changed() -> None:
    problem = layer_problem()
    assert isinstance(problem.model, nn.Module)
    problem.model.train().requires_grad_(False)
    with unchanged(problem):
        GradCAM()(problem)
        GradCAM().native_resolution(problem)
    with unchanged(problem), pytest.raises(IgosError, match="class index 9"):
        GradCAM()(replace(problem, target=9))


def model(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        return make().eval()


def folded_lite0() -> nn.Module:
    net = timm.create_model("tf_efficientnet_lite0").eval()
    assert fold_batch_norms(net) > 40
    return net  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("make", "layer", "side"),
    [
        (torchvision.models.resnet18, "layer4", 2),
        (torchvision.models.resnet50, "layer4", 2),
        (torchvision.models.densenet121, "features", 2),
        (torchvision.models.mobilenet_v2, "features", 2),
        (partial(torchvision.models.vgg19, init_weights=False), "features.35", 4),
        (partial(timm.create_model, "tf_efficientnet_lite0"), "bn2", 2),
        (folded_lite0, "bn2", 2),
    ],
)
def test_the_layer_is_the_last_map(make: Callable[[], nn.Module], layer: str, side: int) -> None:
    """At 64 px; at 224 px the sides are 3.5 times as long: 7, and 14 for VGG19."""
    net = model(make)
    image = random(1, 3, 64, 64).float()
    problem = Problem(net, image, torch.zeros_like(image), 0)
    assert GradCAM().native_resolution(problem) == (side, side)
    assert last_map(calls(problem), GradCAM()).name == layer
    kept: list[Tensor] = []

    def keep(*call: Any) -> Tensor:
        kept.append(call[2])
        return kept[0].clone()  # which the model may change in place

    net.get_submodule(layer).register_forward_hook(keep)
    logit = net(image)[0, 0]
    (slope,) = torch.autograd.grad(logit, kept[0])
    expected = (slope.mean(dim=(2, 3), keepdim=True) * kept[0]).sum(dim=1, keepdim=True)
    torch.testing.assert_close(
        GradCAM()(problem), expected.clamp(min=0).detach(), rtol=1e-3, atol=1e-6
    )


def test_a_model_without_a_last_map_is_refused() -> None:
    vit = model(partial(VisionTransformer, 32, 8, 6, 2, 16, 32, num_classes=4))
    image = random(1, 3, 32, 32).float()
    problem = Problem(vit, image, image, 0)
    with unchanged(problem), pytest.raises(UnsuitedError, match="follow its last convolution; nam"):
        GradCAM()(problem)
    flat = model(lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4)))
    with pytest.raises(UnsuitedError, match="it has no convolution whose output is a map"):
        GradCAM().native_resolution(replace(problem, model=flat))
    with pytest.raises(UnsuitedError, match="a function has none, give"):
        GradCAM()(replace(problem, model=lambda x: x.mean(dim=(2, 3))))


def test_a_layer_that_cannot_be_is_refused() -> None:
    problem = layer_problem()
    for layer, message in (
        ("conv3", "unknown layer 'conv3': did you mean 'conv2' or 'conv1'"),
        ("", "unknown layer ''"),
        ("act", "layer 'act': it runs 2 times, give one that runs once"),
        ("fc", "layer 'fc': its output is no map"),
    ):
        with pytest.raises(IgosError, match=message):
            GradCAM(layer=layer)(problem)
    with pytest.raises(IgosError, match="unknown link 'odds'"):
        GradCAM(link="odds")


def test_functional_rectifiers_are_no_hindrance(problem: Problem) -> None:
    """TinyNet: the batch norm after its last convolution is the last map."""
    assert isinstance(problem.model, TinyNet)
    torch.testing.assert_close(GradCAM()(problem), GradCAM(layer="bn2")(problem))


def test_captum_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(IgosError, match=r"method GradCAM needs captum: pip install 'igos\[comp"):
        GradCAM()(layer_problem())
