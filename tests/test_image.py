import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torchvision.transforms.v2.functional import gaussian_blur

from igos.errors import IgosError
from igos.image import BASELINES, Normalisation, blur, check_resolution, l1, phi, tv, up
from small import random

sides = st.integers(1, 7)


def masks(h: int, w: int, seed: int = 0) -> torch.Tensor:
    return random(1, h, w, seed=seed).sigmoid()


@given(sides, sides, st.integers(7, 12), st.integers(7, 12))
def test_up_is_bilinear_with_aligned_corners(h: int, w: int, height: int, width: int) -> None:
    mask = masks(h, w)
    large = up(mask, (height, width))
    for row in range(height):
        for column in range(width):
            y, x = row * (h - 1) / (height - 1), column * (w - 1) / (width - 1)
            top, left = min(int(y), max(h - 2, 0)), min(int(x), max(w - 2, 0))
            bottom, right = min(top + 1, h - 1), min(left + 1, w - 1)
            b, r = y - top, x - left
            expected = (1 - b) * ((1 - r) * mask[0, top, left] + r * mask[0, top, right]) + b * (
                (1 - r) * mask[0, bottom, left] + r * mask[0, bottom, right]
            )
            assert large[0, row, column].item() == pytest.approx(expected.item(), abs=1e-12)


def test_up_leaves_a_mask_of_the_images_size_alone_and_keeps_leading_dimensions() -> None:
    mask = random(2, 5, 1, 4, 3)
    assert up(mask, (4, 3)) is mask
    assert torch.equal(up(mask, (9, 8))[1, 2], up(mask[1, 2], (9, 8)))


def test_phi_shows_the_image_at_one_the_baseline_at_zero_and_mixes_between() -> None:
    image, baseline = random(3, 6, 6), random(3, 6, 6, seed=1)
    assert torch.equal(phi(image, baseline, torch.ones(1, 6, 6)), image)
    assert torch.equal(phi(image, baseline, torch.zeros(1, 6, 6)), baseline)
    quarter = phi(image, baseline, torch.full((1, 2, 2), 0.25, dtype=torch.float64))
    torch.testing.assert_close(quarter, 0.25 * image + 0.75 * baseline)


@given(sides, sides)
def test_l1_and_tv_are_means_over_elements(h: int, w: int) -> None:
    mask = masks(h, w, seed=h)
    values = mask[0].tolist()
    absolute = sum(1 - value for row in values for value in row) / (h * w)
    rows = [(values[i + 1][j] - values[i][j]) ** 2 for i in range(h - 1) for j in range(w)]
    columns = [(values[i][j + 1] - values[i][j]) ** 2 for i in range(h) for j in range(w - 1)]
    variation = sum(sum(steps) / len(steps) for steps in (rows, columns) if steps)
    assert l1(mask).item() == pytest.approx(absolute)
    assert tv(mask).item() == pytest.approx(variation)


def test_l1_and_tv_treat_leading_dimensions_as_independent() -> None:
    batch = random(2, 3, 1, 5, 4)
    for measure in (l1, tv):
        one_by_one = [[measure(mask) for mask in row] for row in batch]
        torch.testing.assert_close(measure(batch), torch.tensor(one_by_one, dtype=torch.float64))


@pytest.mark.parametrize(("kernel", "sigma"), [(3, 1.0), (11, 5.0), (51, 50.0)])
def test_blur_agrees_with_torchvision(kernel: int, sigma: float) -> None:
    image = random(2, 3, 60, 64)
    expected = gaussian_blur(image, [kernel, kernel], [sigma, sigma])
    torch.testing.assert_close(blur(image, kernel, sigma), expected)


@pytest.mark.parametrize(
    ("side", "kernel", "sigma"), [(224, 51, 50.0), (112, 25, 25.0), (8, 3, 50 * 8 / 224)]
)
def test_the_default_blur_scales_with_the_image(side: int, kernel: int, sigma: float) -> None:
    image = random(1, 3, side, side + 20)
    torch.testing.assert_close(blur(image), blur(image, kernel, sigma))


@pytest.mark.parametrize("kernel", [4, 41])
def test_a_kernel_that_cannot_be_is_named(kernel: int) -> None:
    with pytest.raises(IgosError, match=f"blur kernel {kernel}: give an odd number below 40"):
        blur(random(1, 3, 20, 30), kernel, 5.0)


def test_blur_keeps_a_constant_image() -> None:
    image = torch.full((1, 3, 20, 30), 0.7, dtype=torch.float64)
    torch.testing.assert_close(blur(image), image)


def test_baselines_in_pixels() -> None:
    normalisation = Normalisation(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    image = random(2, 3, 40, 40)
    pixels = {
        name: normalisation.pixels(make(image, normalisation)) for name, make in BASELINES.items()
    }
    torch.testing.assert_close(pixels["black"], torch.zeros_like(image))
    torch.testing.assert_close(pixels["grey"][1, :, 3, 3], image.new_tensor([0.4, 0.5, 0.6]))
    torch.testing.assert_close(pixels["blur"], blur(normalisation.pixels(image)))
    noise = pixels["noise"]
    assert noise.min() >= 0
    assert noise.max() <= 1
    assert noise.std().item() == pytest.approx(math.sqrt(1 / 12), abs=0.01)  # uniform in 0..1
    assert torch.equal(noise[0], noise[1])


def test_normalise_inverts_pixels() -> None:
    normalisation = Normalisation(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    image = random(2, 3, 4, 4)
    torch.testing.assert_close(normalisation.normalise(normalisation.pixels(image)), image)


def test_check_resolution() -> None:
    assert check_resolution(28) == (28, 28)
    assert check_resolution((28, 14)) == (28, 14)
    assert check_resolution(np.int64(7)) == (7, 7)  # type: ignore[arg-type]
    for wrong in (0, -3, (28, 0), (1, 2, 3), 7.0, None, "28"):
        with pytest.raises(IgosError, match="resolution"):
            check_resolution(wrong)  # type: ignore[arg-type]
