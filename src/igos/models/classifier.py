"""A classifier with everything needed to explain it: preprocessing, normalisation, class names."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image
from torch import Tensor, nn

from igos.errors import IgosError, unknown
from igos.image import Normalisation
from igos.passes import Passes


@dataclass(frozen=True, eq=False)
class Classifier:
    """`module` maps (N, 3, H, W), made by `preprocess`, to logits (N, C)."""

    name: str
    module: nn.Module
    preprocess: Callable[[Image.Image], Tensor]  # photo -> (3, H, W), normalised
    normalisation: Normalisation
    class_names: tuple[str, ...] = ()
    digest: str = ""  # of the parameters and, for one's own model, its code; "": not known
    fast: Passes | None = None  # the same function, faster, for scores; None: the module itself
    chunk: int | None = None  # images that one pass may have; None: what suits the device

    def __post_init__(self) -> None:
        if not isinstance(self.module, nn.Module):
            kind = type(self.module).__name__
            raise IgosError(f"module of {self.name!r} is a {kind}: give a torch.nn.Module")

    def example(self) -> Tensor:
        """A photo of nothing as the model wants it, (3, H, W): for its size, and to try."""
        return self.preprocess(Image.new("RGB", (300, 300), "grey"))

    def class_name(self, index: int) -> str:
        return self.class_names[index] if index < len(self.class_names) else f"class {index}"

    def find_class(self, wanted: str | int) -> int:
        """The index of a class given by its index or by (one of) its names."""
        text = str(wanted).strip().lower()
        by_name: dict[str, set[int]] = {}
        for index, name in enumerate(self.class_names):
            for synonym in (name, *name.split(",")):
                by_name.setdefault(synonym.strip().lower(), set()).add(index)
        if not isinstance(wanted, str) or (text not in by_name and re.fullmatch(r"-?\d+", text)):
            return self._check_index(int(wanted))
        found = sorted(by_name.get(text, ()))
        if len(found) > 1:
            choices = ", ".join(f"{index} ({self.class_names[index]})" for index in found)
            raise IgosError(f"class {wanted!r} is ambiguous: give the index, one of {choices}")
        if not found:
            raise unknown(
                "class", text, by_name, remedy=f"give a class of {self.name} or its index"
            )
        return found[0]

    def _check_index(self, index: int) -> int:
        count = len(self.class_names)
        if index < 0 or (count and index >= count):
            has = f"{self.name} has the classes 0 to {count - 1}" if count else "give one from 0 up"
            raise IgosError(f"class index {index}: {has}")
        return index
