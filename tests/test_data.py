"""Photos of every kind come out upright in 8-bit RGB; what is no photo is refused with a reason."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from igos.data import read_photo, sample_photo
from igos.errors import IgosError

COLOURS = np.zeros((20, 30, 3), np.uint8)
COLOURS[:, :15] = (200, 40, 10)
COLOURS[:, 15:] = (10, 60, 220)
PHOTO = Image.fromarray(COLOURS)


def reread(image: Image.Image, path: Path, **how: object) -> np.ndarray[tuple[int, ...], np.dtype]:
    image.save(path, **how)  # type: ignore[arg-type]
    photo = read_photo(path)
    assert photo.mode == "RGB"
    return np.asarray(photo).astype(int)


def test_rgb_is_read_as_it_is(tmp_path: Path) -> None:
    assert (reread(PHOTO, tmp_path / "a.png") == COLOURS).all()


def test_greyscale(tmp_path: Path) -> None:
    grey = reread(PHOTO.convert("L"), tmp_path / "a.png")
    assert (grey == np.asarray(PHOTO.convert("L"))[..., None]).all()


def test_palette(tmp_path: Path) -> None:
    assert (
        reread(PHOTO.convert("P", palette=Image.Palette.ADAPTIVE), tmp_path / "a.gif") == COLOURS
    ).all()


def test_transparent_parts_are_white(tmp_path: Path) -> None:
    image = PHOTO.convert("RGBA")
    image.paste((1, 2, 3, 0), (0, 0, 15, 20))
    read = reread(image, tmp_path / "a.png")
    assert (read[:, :15] == 255).all()
    assert (read[:, 15:] == COLOURS[:, 15:]).all()


def test_palette_with_transparency(tmp_path: Path) -> None:
    image = PHOTO.convert("P", palette=Image.Palette.ADAPTIVE)
    hidden = image.getpixel((0, 0))
    read = reread(image, tmp_path / "a.png", transparency=hidden)
    assert (read[:, :15] == 255).all()
    assert (read[:, 15:] == COLOURS[:, 15:]).all()


def test_cmyk(tmp_path: Path) -> None:
    read = reread(PHOTO.convert("CMYK"), tmp_path / "a.tiff")
    assert np.abs(read - COLOURS).max() <= 2


def test_sixteen_bits(tmp_path: Path) -> None:
    wide = np.zeros((20, 30), np.uint16)
    wide[:, 10:20], wide[:, 20:] = 32768, 65535
    read = reread(Image.fromarray(wide), tmp_path / "a.png")
    assert [read[0, 0, 0], read[0, 15, 1], read[0, 25, 2]] == [0, 128, 255]


def test_a_photo_taken_sideways_is_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held with its right side down
    read = reread(PHOTO, tmp_path / "a.png", exif=exif)
    assert (read == np.rot90(COLOURS, -1)).all()


def test_the_sample() -> None:
    assert sample_photo().mode == "RGB"
    assert min(sample_photo().size) >= 224


def refused(path: Path, reason: str) -> None:
    with pytest.raises(IgosError, match=reason) as caught:
        read_photo(path)
    assert path.name in str(caught.value)


def test_what_is_no_photo_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "missing.jpg", "no such file")
    (tmp_path / "folder.jpg").mkdir()
    refused(tmp_path / "folder.jpg", "not a file")
    (tmp_path / "empty.jpg").touch()
    refused(tmp_path / "empty.jpg", "not an image")
    (tmp_path / "text.jpg").write_text("hello")
    refused(tmp_path / "text.jpg", "not an image")


@pytest.mark.parametrize("form", ["jpeg", "png"])
def test_a_truncated_photo_is_refused(tmp_path: Path, form: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)
    whole = tmp_path / "whole"
    Image.fromarray(noise).save(whole, form)
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    refused(cut, "broken or truncated")


@pytest.mark.parametrize("side", [12_000, 16_000])
def test_a_decompression_bomb_is_refused(tmp_path: Path, side: int) -> None:
    """Beyond Pillow's warning, and beyond its error."""
    path = tmp_path / "bomb.png"
    Image.new("1", (side, side)).save(path)
    refused(path, "megapixels")


def test_a_photo_of_one_pixel_is_refused(tmp_path: Path) -> None:
    PHOTO.resize((1, 1)).save(tmp_path / "dot.png")
    refused(tmp_path / "dot.png", "1×1 pixels; give one of at least 16×16")


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((20, 20), np.float32)).save(tmp_path / "a.tiff")
    refused(tmp_path / "a.tiff", "floating-point")
