"""Photos from files, as the model's preprocessing wants them: 8-bit RGB, upright."""

import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from igos.errors import IgosError

MAX_PIXELS = 90_000_000  # about Pillow's own limit against decompression bombs
MIN_SIDE = 16  # px; below that there is nothing to explain

SAMPLE = "sample"


def read_photo(path: str | Path) -> Image.Image:
    """The photo in a file, as `prepare` makes it."""
    name = repr(str(path))
    try:
        if not Path(path).exists():
            raise IgosError(f"photo {name}: no such file")
        if not Path(path).is_file():
            raise IgosError(f"photo {name}: not a file")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata, and size, checked below
            with Image.open(path) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise Image.DecompressionBombError
                return prepare(image, name)
    except Image.DecompressionBombError as error:
        megapixels = MAX_PIXELS // 10**6
        raise IgosError(f"photo {name}: over {megapixels} megapixels; make it smaller") from error
    except UnidentifiedImageError as error:
        raise IgosError(f"photo {name}: not an image that Pillow can read") from error
    except PermissionError as error:
        raise IgosError(f"photo {name}: not readable ({error.strerror})") from error
    except (OSError, ValueError, SyntaxError, EOFError) as error:  # Pillow's, for broken files
        raise IgosError(f"photo {name}: broken or truncated ({error})") from error


def prepare(image: Image.Image, name: str = "given") -> Image.Image:
    """A picture in 8-bit RGB, upright, transparent parts on white."""
    if min(image.size) < MIN_SIDE:
        raise IgosError(
            f"photo {name}: {image.width}×{image.height} pixels; "
            f"give one of at least {MIN_SIDE}×{MIN_SIDE}"
        )
    image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        raise IgosError(
            f"photo {name}: floating-point pixels have no fixed range; give 8 or 16 bits a pixel"
        )
    if image.mode.startswith("I"):  # 16 bits a pixel, grey, in a 16 or 32 bit integer
        wide = np.asarray(image).astype(np.float64)
        return Image.fromarray((wide.clip(0, 65535) / 257).round().astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def sample_photo() -> Image.Image:
    """A cup of espresso, in the public domain, from scikit-image's wheel."""
    import skimage.data

    return Image.fromarray(skimage.data.coffee())
