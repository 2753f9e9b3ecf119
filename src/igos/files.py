"""Files that are written whole or not at all."""

import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from igos.errors import IgosError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write(folder: str | Path, stem: str, contents: Mapping[str, bytes]) -> list[Path]:
    """Files STEM.SUFFIX; never half a file under its final name."""
    paths = [Path(folder) / (stem + suffix) for suffix in contents]
    with _writing(folder):
        for path, content in zip(paths, contents.values(), strict=True):
            partial = path.with_name(path.name + ".partial")
            partial.write_bytes(content)
            os.replace(partial, path)
    return paths


def png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def prepare_folder(folder: str | Path) -> None:
    """Make the folder and show that it can be written, before any work is spent on it."""
    with _writing(folder), tempfile.TemporaryFile(dir=folder):
        pass


@contextmanager
def _writing(folder: str | Path) -> Iterator[None]:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise IgosError(
            f"folder {str(folder)!r}: not writable ({error.strerror}); give another one"
        ) from error
