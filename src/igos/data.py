"""Photos from files, as the model's preprocessing wants them: 8-bit RGB, upright."""

import csv
import hashlib
import io
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from igos.errors import IgosError

MAX_PIXELS = 90_000_000  # about Pillow's own limit against decompression bombs
MAX_BYTES = 500_000_000  # of a file; more is no photo
MIN_SIDE = 16  # px; below that there is nothing to explain

SAMPLE = "sample"


def read_photo(path: str | Path) -> Image.Image:
    """The photo in a file, as `prepare` makes it."""
    with quiet():
        return decode(path, read_content(path))


def read_content(path: str | Path) -> bytes:
    """The bytes of a photo's file."""
    name = repr(str(path))
    try:
        info = Path(path).stat()
        if not stat.S_ISREG(info.st_mode):  # a folder, or a pipe that would never end
            raise IgosError(f"photo {name}: not a file")
        if info.st_size > MAX_BYTES:
            raise IgosError(f"photo {name}: over {MAX_BYTES // 10**6} MB; make it smaller")
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise IgosError(f"photo {name}: no such file") from error
    except (OSError, ValueError) as error:
        raise IgosError(f"photo {name}: not readable ({error})") from error


def decode(path: str | Path, content: bytes) -> Image.Image:
    """The photo in a file's bytes; `path` is for messages. Pillow may warn: see `quiet`."""
    name = repr(str(path))
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            return prepare(image, name)
    except IgosError:
        raise
    except Image.DecompressionBombError as error:
        megapixels = MAX_PIXELS // 10**6
        raise IgosError(f"photo {name}: over {megapixels} megapixels; make it smaller") from error
    except UnidentifiedImageError as error:
        raise IgosError(f"photo {name}: not an image that Pillow can read") from error
    except Exception as error:  # Pillow's plugins raise anything for broken files
        raise IgosError(f"photo {name}: broken or truncated ({error})") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without Pillow's warnings about odd metadata, and size, which `decode` checks.

    Not within `decode`: Python's filters belong to the process, and threads decode.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


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


@dataclass(frozen=True)
class Listed:
    """A photo of a collection."""

    name: str  # its path within the collection: the same wherever the collection lies
    path: Path
    label: str | int | None = None  # a class index or name; an int is an index


def list_photos(source: Path) -> list[Listed]:
    """The photos of a folder, of class folders in it, of a CSV (file, class_index), or one file.

    They come in an order that only their names decide and that has nothing to do with classes, so
    that the first n are a fair sample, contained in the first n + 1.
    """
    if os.path.isdir(source):  # Path's own raises where a folder above may not be read
        photos = _in_folder(source)
    elif source.suffix.lower() == ".csv":
        photos = _in_table(source)
    elif os.path.isfile(source):
        photos = [Listed(_text(source.name), source)]
    else:
        raise IgosError(f"photos {str(source)!r}: no such file or folder")
    if not photos:
        raise IgosError(f"photos {str(source)!r}: there are none; give a folder with image files")
    return sorted(photos, key=lambda photo: hashlib.sha256(photo.name.encode()).digest())


def _in_folder(folder: Path) -> list[Listed]:
    suffixes = set(Image.registered_extensions())
    seen: set[tuple[int, int]] = set()  # folders, against links that lead in circles
    photos = []
    for place, folders, files in os.walk(folder, followlinks=True):
        info = os.stat(place)
        if (info.st_dev, info.st_ino) in seen:
            folders.clear()
            continue
        seen.add((info.st_dev, info.st_ino))
        for file in files:
            path = Path(place, file)
            within = path.relative_to(folder)
            if path.suffix.lower() in suffixes:
                label = within.parts[0] if len(within.parts) > 1 else None
                photos.append(Listed(_text(within.as_posix()), path, label))
    return photos


def _text(name: str) -> str:
    """A file's name as text that can be written anywhere; bytes that are none are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _label(text: str) -> str | int | None:
    """An index where it is a number, whatever the names of classes are."""
    text = text.strip()
    return int(text) if text.isdecimal() else text or None


def _in_table(table: Path) -> list[Listed]:
    try:
        with table.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            columns = reader.fieldnames or []
            if "file" not in columns:
                raise IgosError(
                    f"photos {str(table)!r}: no column 'file' among {', '.join(columns) or 'none'};"
                    " give a CSV with the columns file and class_index"
                )
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise IgosError(f"photos {str(table)!r}: not readable as CSV ({error})") from error
    photos: dict[str, Listed] = {}
    for row in rows:
        name, label = row["file"], _label(row.get("class_index") or "")
        if (
            name
            and photos.setdefault(name, Listed(name, table.parent / name, label)).label != label
        ):
            raise IgosError(f"photos {str(table)!r}: {name!r} has two labels; give it one")
    return list(photos.values())
