from typing import Any

import pytest
import torch
from torch import Tensor, nn

from igos.errors import IgosError
from igos.image import l1, phi, tv
from igos.methods.igos import IGOS
from igos.problem import Objective, Problem, logit, probability
from small import TinyNet, random


def test_probability_and_logit() -> None:
    logits, classes = random(3, 5), torch.tensor([4, 0, 2])
    for row in range(3):
        softmax = logits[row].exp() / logits[row].exp().sum()
        assert probability(logits, classes)[row].item() == pytest.approx(
            softmax[classes[row]].item()
        )
        assert logit(logits, classes)[row].item() == logits[row, classes[row]].item()


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_score_is_the_model_on_one_image_after_another(
    net: nn.Module, problem: Problem, chunk: int
) -> None:
    chunked = Problem(net, problem.image, problem.baseline, problem.target, chunk=chunk)
    images = random(3, 5, 3, 12, 10, seed=2)
    scores = chunked.score(images)
    assert isinstance(problem.target, Tensor)
    for b in range(3):
        for k in range(5):
            expected = net(images[b, k][None]).softmax(dim=1)[0, problem.target[b]]
            assert scores[b, k].item() == pytest.approx(expected.item(), rel=1e-12)


def test_the_gradient_taken_in_chunks_is_autograds(net: nn.Module, problem: Problem) -> None:
    images = random(3, 5, 3, 12, 10, seed=2).requires_grad_()
    weights = random(3, 5, seed=3)
    (ours,) = torch.autograd.grad((weights * problem.score(images).square()).sum(), images)
    assert isinstance(problem.target, Tensor)
    classes = problem.target.repeat_interleave(5)
    plain = net(images.flatten(0, 1)).softmax(dim=1)[torch.arange(15), classes].view(3, 5)
    (expected,) = torch.autograd.grad((weights * plain.square()).sum(), images)
    torch.testing.assert_close(ours, expected)


def test_phi_adds_noise_in_pixel_units_to_the_image_alone(problem: Problem) -> None:
    masks, noise = random(4, 1, 6, 5).sigmoid(), random(4, 3, 12, 10, seed=5)
    rows = [2, 0, 0, 1]
    composed = problem.phi(masks, torch.tensor(rows), noise)
    for k, row in enumerate(rows):
        noisy = problem.image[row] + noise[k] / torch.tensor([0.5, 0.25, 0.2])[:, None, None]
        torch.testing.assert_close(composed[k], phi(noisy, problem.baseline[row], masks[k]))


def naive(problem: Problem, masks: Tensor, noise: Tensor) -> Tensor:
    """f_c(Φ(I₀ + n, M)), one mask after another."""
    std = torch.tensor(problem.std)[:, None, None]
    scores = [
        [
            problem.score(
                phi(image + noise[k] / std, baseline, mask)[None, None].expand(3, -1, -1, -1, -1)
            )[b, 0]
            for k, mask in enumerate(some)
        ]
        for b, (image, baseline, some) in enumerate(
            zip(problem.image, problem.baseline, masks, strict=True)
        )
    ]
    return torch.stack([torch.stack(row) for row in scores])


def test_masks_are_composed_and_scored_one_after_another(problem: Problem) -> None:
    """Chunks of 7 cut through the 4 masks of an image, and through the noise of each."""
    masks = random(3, 4, 1, 6, 5).sigmoid().requires_grad_()
    noise = random(4, 3, 12, 10, seed=5)
    scores, expected = problem.score_masked(masks, noise), naive(problem, masks, noise)
    torch.testing.assert_close(scores, expected)
    weights = random(3, 4, seed=3)
    gradients = [torch.autograd.grad((weights * s).sum(), masks)[0] for s in (scores, expected)]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(problem.score_masked(masks.detach(), noise), expected.detach())


def test_objective_is_the_sum_of_its_parts(problem: Problem) -> None:
    masks = random(3, 4, 1, 6, 5).sigmoid()
    objective = Objective(problem, lambda1=0.7, lambda2=3.0)
    score = naive(problem, masks, torch.zeros(4, 3, 12, 10, dtype=masks.dtype))
    expected = score + 0.7 * l1(masks) + 3.0 * tv(masks)
    torch.testing.assert_close(objective(masks), expected)


def test_a_target_function_explains_any_output(net: nn.Module) -> None:
    class Detector(nn.Module):
        def forward(self, images: Tensor) -> dict[str, Tensor]:
            return {"boxes": net(images)}

    image = random(2, 3, 12, 10)
    problem = Problem(Detector(), image, 0 * image, lambda output: output["boxes"][:, 1] * 2)
    expected = 2 * net(image)[:, 1]
    torch.testing.assert_close(problem.score(image[:, None])[:, 0], expected.detach())


def test_a_model_in_training_mode_is_run_in_evaluation_mode_and_left_as_it_was() -> None:
    net = TinyNet().double().train()
    net.bn2.eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    image = random(2, 3, 12, 10)
    trained = Problem(net, image, 0 * image, 1)
    scores = trained.score(image[:, None].clone().requires_grad_()).detach()[:, 0]
    assert torch.equal(trained.score(image[:, None])[:, 0], scores)
    assert (net.training, net.bn1.training, net.bn2.training) == (True, True, False)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.requires_grad and p.grad is None for p in net.parameters())
    expected = net.eval()(image).softmax(dim=1)[:, 1]
    torch.testing.assert_close(scores, expected.detach())


def test_a_model_that_raises_is_left_as_it_was() -> None:
    class Raises(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Dropout()

        def forward(self, _: Tensor) -> Tensor:
            raise RuntimeError("broken")

    net = Raises().train()
    image = random(1, 3, 4, 4)
    for images in (image[:, None], image[:, None].clone().requires_grad_()):
        with pytest.raises(IgosError, match="the model failed: RuntimeError: broken"):
            Problem(net, image, image, 0).score(images)
        assert net.training
        assert net.inner.training


def test_a_half_precision_model_can_be_explained() -> None:
    """Masks and images stay in float32; only the model runs in its own precision."""
    net = TinyNet().bfloat16().eval()
    image = random(2, 3, 12, 10).float()
    problem = Problem(net, image, 0 * image, 1)
    heatmap = IGOS(resolution=4, path_steps=2, max_iterations=2)(problem)
    assert heatmap.dtype == torch.float32
    exact = Problem(TinyNet().eval(), image, 0 * image, 1)
    torch.testing.assert_close(
        problem.score(image[:, None]), exact.score(image[:, None]), atol=0.02, rtol=0
    )


def test_an_output_without_a_gradient_is_named() -> None:
    class Detached(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).detach()

    image = random(1, 3, 12, 10).float()
    with pytest.raises(IgosError, match="no gradient"):
        Problem(Detached(), image, image, 0).score(image[:, None].requires_grad_())


def test_scores_of_a_half_precision_model_are_float32() -> None:
    net = TinyNet().bfloat16().eval()
    image = random(1, 3, 12, 10).bfloat16()
    for target in (1, lambda output: output[:, 1]):
        scores = Problem(net, image, 0 * image, target).score(image[:, None])
        assert scores.dtype == torch.float32


def test_a_target_is_computed_in_float32_whatever_the_model_is_in() -> None:
    """256 · 300 is more than float16 can hold, and its sums are rounded."""

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(300.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * torch.ones_like(x[:, :1]).expand(-1, 256, -1, -1)

    image = random(1, 3, 1, 1).float()
    problem = Problem(Large().half(), image, 0 * image, lambda output: output.sum((1, 2, 3)))
    assert problem.score(image[:, None]).item() == 256 * 300


def wrong(target: Any = 0, shape: tuple[int, ...] = (2, 3, 8, 8), baseline: int = 8) -> Problem:
    image = torch.zeros(shape)
    return Problem(TinyNet().eval(), image, torch.zeros(2, 3, baseline, baseline), target)


def test_mistakes_are_named() -> None:
    with pytest.raises(IgosError, match=r"image of shape \(3, 8, 8\)"):
        wrong(shape=(3, 8, 8))
    with pytest.raises(IgosError, match=r"baseline of shape \(2, 3, 9, 9\)"):
        wrong(baseline=9)
    with pytest.raises(IgosError, match="target"):
        wrong(target=torch.tensor([1, 2, 3]))
    for target in (1.7, "red", torch.tensor([0.5, 1.0]), None):
        with pytest.raises(IgosError, match="give one class index"):
            wrong(target=target)
    with pytest.raises(IgosError, match="chunks of 0"):
        Problem(TinyNet(), torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 8), 0, chunk=0)
    with pytest.raises(IgosError, match="std"):
        Problem(TinyNet(), torch.zeros(1, 3, 8, 8), torch.zeros(1, 3, 8, 8), 0, std=(1.0,))
    with pytest.raises(IgosError, match="target -1"):
        wrong(target=-1)
    images = torch.zeros(2, 1, 3, 8, 8)
    with pytest.raises(IgosError, match="class index 4: the model has 4 classes"):
        wrong(target=4).score(images)
    with pytest.raises(IgosError, match=r"target function returned \(2, 4\) for 2 images"):
        wrong(target=lambda output: output).score(images)
    problem = Problem(lambda x: x, images[:, 0], images[:, 0], 0)
    with pytest.raises(IgosError, match=r"not \(2 images, classes\)"):
        problem.score(images)
