"""Our methods as Captum's attributions, under Captum's own tools."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from captum.attr import NoiseTunnel
from captum.metrics import infidelity, sensitivity_max
from torch import Tensor

import igos
from igos.captum import as_attribution
from igos.descent import Armijo
from igos.errors import IgosError
from igos.image import blur, up
from igos.methods.gradients import Saliency
from igos.methods.igos import IGOS
from igos.problem import Problem

HALF = Armijo(alpha_upper=0.5, alpha_lower=0.5)
METHOD = IGOS(resolution=4, max_iterations=3, path_steps=3, step_rule=HALF)


def test_attributions_are_the_heatmap_at_the_inputs_size(problem: Problem) -> None:
    attribution = as_attribution(METHOD, problem.model, std=problem.std, chunk=7)
    expected = up(METHOD(problem), problem.size).expand_as(problem.image)
    found = attribution.attribute(problem.image, target=problem.target, baselines=problem.baseline)
    torch.testing.assert_close(found, expected)
    (found,) = attribution.attribute(
        (problem.image,), target=problem.target, baselines=(problem.baseline,)
    )
    torch.testing.assert_close(found, expected)
    assert not attribution.has_convergence_delta()
    assert not attribution.multiplies_by_inputs


def test_the_baseline_is_a_blur_unless_given(problem: Problem) -> None:
    attribution = as_attribution(METHOD, problem.model)
    for baselines, baseline in (
        (None, blur(problem.image)),
        (0.5, torch.full_like(problem.image, 0.5)),
        (problem.baseline[:1], problem.baseline[:1].expand_as(problem.image)),
    ):
        own = replace(problem, baseline=baseline, std=(1.0, 1.0, 1.0))
        found = attribution.attribute(problem.image, target=problem.target, baselines=baselines)
        torch.testing.assert_close(found[:, :1], up(METHOD(own), problem.size))


def test_kinds_of_target(problem: Problem) -> None:
    assert isinstance(problem.target, Tensor)
    attribution = as_attribution(Saliency(), problem.model)
    expected = attribution.attribute(problem.image, target=problem.target)
    listed = attribution.attribute(problem.image, target=problem.target.tolist())
    torch.testing.assert_close(listed, expected)
    ones = attribution.attribute(problem.image, target=1)
    picked = attribution.attribute(problem.image, target=(1,))
    torch.testing.assert_close(picked, ones)
    scalar = as_attribution(Saliency(), lambda x: problem.model(x)[:, 1:2])
    torch.testing.assert_close(scalar.attribute(problem.image), ones)
    with pytest.raises(IgosError, match="it must return one number for each image"):
        attribution.attribute(problem.image)


def test_noise_tunnel_without_noise_is_the_attribution(problem: Problem) -> None:
    attribution = as_attribution(METHOD, problem.model)
    expected = attribution.attribute(problem.image, target=problem.target)
    with torch.random.fork_rng(devices=[]):  # Captum draws from the global random state
        found = NoiseTunnel(attribution).attribute(
            problem.image, nt_samples=3, nt_samples_batch_size=2, stdevs=0.0, target=problem.target
        )
    torch.testing.assert_close(found, expected)


def test_noise_tunnel_is_the_mean_over_noisy_images(problem: Problem) -> None:
    attribution = as_attribution(METHOD, problem.model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        found = NoiseTunnel(attribution).attribute(
            problem.image, nt_samples=2, stdevs=0.1, target=problem.target
        )
        torch.manual_seed(4)
        deviation = torch.full((6, *problem.image.shape[1:]), 0.1)
        noisy = problem.image.repeat_interleave(2, dim=0) + torch.normal(0, deviation)
    assert isinstance(problem.target, Tensor)
    each = attribution.attribute(noisy, target=problem.target.repeat_interleave(2))
    torch.testing.assert_close(found, each.view(3, 2, *problem.image.shape[1:]).mean(dim=1))


def test_infidelity_by_hand(problem: Problem) -> None:
    """E[(δ·attribution − (f(x) − f(x − δ)))²] for two shifts δ of each image."""
    assert isinstance(problem.target, Tensor)
    attributions = as_attribution(METHOD, problem.model).attribute(
        problem.image, target=problem.target
    )
    shift = 0.1 * problem.image.flip(-1)

    def perturb(inputs: Tensor) -> tuple[Tensor, Tensor]:
        shifts = shift.repeat_interleave(len(inputs) // 3, dim=0)
        return shifts, inputs - shifts

    found = infidelity(
        problem.model,
        perturb,
        problem.image,
        attributions,
        target=problem.target,
        n_perturb_samples=2,
    )
    for at, target in enumerate(problem.target.tolist()):
        with torch.no_grad():
            fall = problem.model(problem.image)[at] - problem.model(problem.image - shift)[at]
        expected = ((shift[at] * attributions[at]).sum() - fall[target]) ** 2
        torch.testing.assert_close(found[at], expected)


def test_sensitivity_without_change_is_zero(problem: Problem) -> None:
    attribution = as_attribution(METHOD, problem.model)
    found = sensitivity_max(
        attribution.attribute,
        problem.image,
        perturb_func=lambda inputs: inputs,
        target=problem.target,
    )
    torch.testing.assert_close(found, torch.zeros(3, dtype=found.dtype))


def test_what_captum_has_and_we_do_not_is_refused(problem: Problem) -> None:
    attribution = as_attribution(METHOD, problem.model)
    with pytest.raises(IgosError, match="additional_forward_args: igos gives the model images"):
        attribution.attribute(problem.image, target=0, additional_forward_args=(1,))
    with pytest.raises(IgosError, match="2 inputs or baselines: igos explains one tensor"):
        attribution.attribute((problem.image, problem.image), target=0)


def test_captum_and_zennit_are_imported_where_they_are_used() -> None:
    source = Path(igos.__file__).parent
    users = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"^(import|from) (captum|zennit)", path.read_text(), re.MULTILINE)
    ]
    assert users == ["captum.py"]
