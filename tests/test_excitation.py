"""Excitation backpropagation against explicit matrices, and where it must refuse."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock

from igos.errors import IgosError
from igos.methods.base import UnsuitedError
from igos.methods.excitation import ContrastiveExcitationBP, ExcitationBP
from igos.methods.layers import before_last_stage, calls
from igos.problem import Problem
from small import TinyNet, random, single
from small_layers import LayerNet, layer_problem, unchanged


def matrix(layer: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Tensor:
    """W of a layer that is linear once its bias is taken away: (outputs, inputs)."""
    inputs = torch.eye(torch.Size(shape).numel(), dtype=torch.float64).view(-1, *shape)
    with torch.no_grad():
        found = layer(inputs) - layer(torch.zeros_like(inputs))
    return found.flatten(1).T


def down(p: Tensor, weights: Tensor, x: Tensor) -> Tensor:
    """p′ⱼ = xⱼ Σᵢ Wᵢⱼ⁺ pᵢ / Σₖ Wᵢₖ⁺ xₖ, unit by unit."""
    found = torch.zeros(weights.shape[1], dtype=torch.float64)
    positive = weights.clamp(min=0)
    for i, probability in enumerate(p):
        if probability > 0:
            found += probability * positive[i] * x / (positive[i] * x).sum()
    return found


def by_hand(problem: Problem, at: int, *, sign: float = 1.0) -> Tensor:
    """LayerNet's map at the first rectifier's output, (8, 6)."""
    net = problem.model
    assert isinstance(net, LayerNet)
    assert isinstance(problem.target, Tensor)
    with torch.no_grad():
        low = net.act(net.conv1(problem.image[at : at + 1]))[0]  # (6, 8, 6)
        high = net.act(net.conv2(low[None]))[0]  # (8, 4, 3)
        pooled = high.mean(dim=(1, 2))
        hidden = net.act2(net.hidden(pooled))
    p = torch.zeros(4, dtype=torch.float64)
    p[problem.target[at]] = 1.0
    p = down(p, sign * net.fc.weight.detach(), hidden)
    p = down(p, net.hidden.weight.detach(), pooled)
    p = down(p, matrix(lambda x: x.mean(dim=(2, 3)), (8, 4, 3)), high.flatten())
    p = down(p, matrix(net.conv2, (6, 8, 6)), low.flatten())
    return p.view(6, 8, 6).sum(dim=0)


def test_excitation_backprop_by_hand() -> None:
    problem = with_first(layer_problem(nn.ReLU()))
    method = ExcitationBP(layer="first")
    assert method.native_resolution(problem) == (8, 6)
    heatmap = method(problem)
    for at in range(3):
        torch.testing.assert_close(heatmap[at, 0], by_hand(problem, at))
    torch.testing.assert_close(heatmap.sum(dim=(1, 2, 3)), torch.ones(3, dtype=torch.float64))


def test_contrastive_excitation_backprop_by_hand() -> None:
    problem = with_first(layer_problem(nn.ReLU()))
    heatmap = ContrastiveExcitationBP(layer="first")(problem)
    for at in range(3):
        expected = by_hand(problem, at) - by_hand(problem, at, sign=-1.0)
        torch.testing.assert_close(heatmap[at, 0], expected)


class First(LayerNet):
    """LayerNet whose map after the first rectifier is a layer with a name."""

    def __init__(self, rectifier: nn.Module) -> None:
        super().__init__(rectifier)
        self.first = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.act(self.conv1(x)))
        x = self.act(self.conv2(x))
        logits: Tensor = self.fc(self.act2(self.hidden(self.pool(x).flatten(1))))
        return logits


def with_first(problem: Problem) -> Problem:
    """With hidden units that are all active and excited: each class has one that excites it."""
    net = First(nn.ReLU(inplace=True)).double().eval()
    with torch.no_grad():
        net.hidden.bias.fill_(5.0)
        net.hidden.weight[:, 0].abs_()
    return replace(problem, model=net)


def model(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        net = make().eval()
        for module in net.modules():  # batch norms that do something
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -0.1, 0.1)  # type: ignore[arg-type]
                nn.init.uniform_(module.running_var, 0.5, 2.0)  # type: ignore[arg-type]
    return net


def photo(net: nn.Module, images: int = 1) -> Problem:
    image = random(images, 3, 64, 64).float()
    return Problem(net, image, torch.zeros_like(image), torch.arange(images) + 1)


@pytest.mark.parametrize(
    ("make", "layer", "side"),
    [
        (torchvision.models.resnet18, "layer3", 4),
        (torchvision.models.resnet50, "layer3", 4),
        (torchvision.models.vgg11_bn, "features.21", 4),
        (partial(torchvision.models.squeezenet1_1, num_classes=5), "features.8", 3),
    ],
)
def test_probabilities_sum_to_one(make: Callable[[], nn.Module], layer: str, side: int) -> None:
    problem = photo(model(make), images=2)
    with unchanged(problem):
        heatmap = ExcitationBP()(problem)
    assert before_last_stage(calls(problem), ExcitationBP()).name == layer
    assert ExcitationBP().native_resolution(problem) == (side, side)
    torch.testing.assert_close(heatmap.sum(dim=(1, 2, 3)), torch.ones(2), rtol=1e-4, atol=1e-4)
    assert heatmap.min() >= 0


def test_a_residual_sum_is_split_by_contribution() -> None:
    """A residual block by hand, from the class down to the block's input."""
    net = model(Residual).double()
    assert isinstance(net, Residual)
    image = random(1, 3, 8, 6)
    with torch.no_grad():
        skip = net.stem(image)[0].flatten()  # (4, 8, 6)
        middle = net.block.bn1(net.block.conv1(net.stem(image))).clamp(min=0)
        branch = net.block.bn2(net.block.conv2(middle))[0].flatten().clamp(min=0)
        high = net.block(net.stem(image))[0]
    size = high.shape
    p = torch.zeros(4, dtype=torch.float64)
    p[2] = 1.0
    p = down(p, net.fc.weight.detach(), high.mean(dim=(1, 2)))
    p = down(p, matrix(lambda x: x.mean(dim=(2, 3)), size), high.flatten())
    shared = torch.where(skip + branch > 0, p / (skip + branch), 0)
    conv2 = matrix(lambda x: net.block.bn2(net.block.conv2(x)), size)
    conv1 = matrix(lambda x: net.block.bn1(net.block.conv1(x)), size)
    below = down(down(shared * branch, conv2, middle.flatten()), conv1, skip)
    expected = (shared * skip + below).view(size).sum(dim=0)
    found = ExcitationBP(layer="stem")(Problem(net, image, image, 2))
    # zennit merges a batch norm into the convolution, all but its ε of 1e-5.
    torch.testing.assert_close(found[0, 0], expected, rtol=1e-4, atol=1e-6)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True))
        self.block = BasicBlock(4, 4)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.pool(self.block(self.stem(x))).flatten(1))
        return logits


def test_a_batch_is_its_images() -> None:
    problem = photo(model(torchvision.models.resnet18), images=2)
    for method in (ExcitationBP(), ContrastiveExcitationBP()):
        together = method(replace(problem, chunk=1))
        torch.testing.assert_close(together, method(problem), rtol=1e-3, atol=1e-6)
        for at in range(2):
            alone = method(single(problem, at))
            torch.testing.assert_close(together[at : at + 1], alone, rtol=1e-3, atol=1e-6)


def test_half_precision_is_explained_in_float32() -> None:
    problem = photo(model(torchvision.models.resnet18))
    assert isinstance(problem.model, nn.Module)
    expected = ExcitationBP()(problem)
    problem.model.bfloat16()
    with unchanged(problem):
        found = ExcitationBP()(problem)
    torch.testing.assert_close(found, expected, rtol=0.1, atol=1e-3)


@pytest.mark.parametrize(
    ("make", "missing"),
    [
        (torchvision.models.mobilenet_v2, "computes Add, Mean above it"),
        (partial(timm.create_model, "tf_efficientnet_lite0"), "computes Add"),
        # Born with residual branches that are zero: the sum is right, and no rule splits it.
        (partial(timm.create_model, "resnet18"), r"sum to 1.000 .* computes Add above it"),
        (lambda: TinyStack(nn.SiLU()), "computes Silu above it"),
    ],
)
def test_what_has_no_rule_is_refused(make: Callable[[], nn.Module], missing: str) -> None:
    problem = photo(model(make))
    with unchanged(problem), pytest.raises(UnsuitedError, match=missing):
        ExcitationBP()(problem)


class TinyStack(nn.Sequential):
    def __init__(self, act: nn.Module) -> None:
        super().__init__(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Conv2d(4, 4, 3, stride=2, padding=1),
            act,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 5),
        )


def test_units_that_nothing_excites_are_refused() -> None:
    """Negative weights and a large bias: active, and yet no unit below excites them."""
    net = model(lambda: TinyStack(nn.ReLU()))
    with torch.no_grad():
        net[1].weight.copy_(-net[1].weight.abs())  # type: ignore[index]
        net[1].bias.fill_(100.0)  # type: ignore[index]
        net[-1].weight.abs_()  # type: ignore[index]
    with pytest.raises(UnsuitedError, match=r"layer '0' sum to 0.000 .* and excited by nothing"):
        ExcitationBP()(photo(net))


def test_a_layer_used_twice_is_refused() -> None:
    class Twice(TinyStack):
        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self[5](self[4](self[3](self[2](self[1](self[1](self[0](x)))))))
            return logits

    net = model(lambda: Twice(nn.ReLU()))
    with pytest.raises(UnsuitedError, match="it uses a Conv2d twice"):
        ExcitationBP(layer="0")(photo(net))


def test_batch_norms_that_cannot_be_merged_are_refused() -> None:
    problem = photo(model(torchvision.models.densenet121))
    with unchanged(problem), pytest.raises(UnsuitedError, match="cannot merge this model's batch"):
        ExcitationBP()(problem)


def test_a_wrongly_merged_batch_norm_is_noticed() -> None:
    """Declared after one convolution, run after the other."""

    class Crossed(TinyStack):
        def __init__(self) -> None:
            super().__init__(nn.ReLU())
            self.insert(1, nn.BatchNorm2d(4))

        def forward(self, x: Tensor) -> Tensor:
            x = self[3](self[1](self[2](self[0](x))))
            logits: Tensor = self[6](self[5](self[4](x)))
            return logits

    with pytest.raises(UnsuitedError, match="its scores change"):
        ExcitationBP(layer="0")(photo(model(Crossed)))


def test_only_classes_of_modules_are_explained(problem: Problem) -> None:
    with pytest.raises(UnsuitedError, match="it cannot explain a function of the model's output"):
        ExcitationBP()(replace(problem, target=lambda logits: logits[:, 0]))
    with pytest.raises(UnsuitedError, match="a function has none"):
        ExcitationBP()(replace(problem, model=lambda x: x.mean(dim=(2, 3))))
    assert isinstance(problem.model, TinyNet)  # its mean over positions is no module
    with unchanged(problem), pytest.raises(UnsuitedError, match="computes Mean above it"):
        ExcitationBP(layer="bn1")(problem)
    squeeze = photo(model(partial(torchvision.models.squeezenet1_1, num_classes=5)))
    with pytest.raises(UnsuitedError, match="this model's is a Conv2d"):
        ContrastiveExcitationBP()(squeeze)


def test_a_layer_that_cannot_be_is_refused() -> None:
    problem = layer_problem()
    with pytest.raises(IgosError, match="unknown layer 'conv3': did you mean 'conv2'"):
        ExcitationBP(layer="conv3")(problem)
    flat = model(lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(192, 4)))
    with pytest.raises(UnsuitedError, match="no layer has about 16×12, twice its last"):
        ExcitationBP()(replace(problem, model=flat.double()))


def test_zennit_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zennit.rules", None)
    with pytest.raises(IgosError, match=r"method ExcitationBP needs zennit: pip install 'igos\["):
        ExcitationBP(layer="conv1")(layer_problem())
