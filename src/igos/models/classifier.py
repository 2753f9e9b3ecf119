"""A classifier with everything needed to explain it: preprocessing, normalisation, class names."""

from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image
from torch import Tensor, nn

from igos.errors import IgosError, unknown
from igos.image import Normalisation


@dataclass(frozen=True, eq=False)
class Classifier:
    """`module` maps (N, 3, H, W), made by `preprocess`, to logits (N, C)."""

    name: str
    module: nn.Module
    preprocess: Callable[[Image.Image], Tensor]  # photo -> (3, H, W), normalised
    normalisation: Normalisation
    class_names: tuple[str, ...] = ()

    def class_name(self, index: int) -> str:
        return self.class_names[index] if index < len(self.class_names) else f"class {index}"

    def find_class(self, wanted: str | int) -> int:
        """The index of a class given by its index or by (one of) its names."""
        text = str(wanted).strip().lower()
        if text.lstrip("-").isdecimal():
            index, count = int(text), len(self.class_names)
            if index < 0 or (count and index >= count):
                raise IgosError(
                    f"class index {index}: {self.name} has the classes 0 to {count - 1}"
                    if count
                    else f"class index {index}: give one from 0 up"
                )
            return index
        by_name: dict[str, set[int]] = {}
        for index, name in enumerate(self.class_names):
            for synonym in (name, *name.split(",")):
                by_name.setdefault(synonym.strip().lower(), set()).add(index)
        found = sorted(by_name.get(text, ()))
        if len(found) > 1:
            choices = ", ".join(f"{index} ({self.class_names[index]})" for index in found)
            raise IgosError(f"class {wanted!r} is ambiguous: give the index, one of {choices}")
        if not found:
            raise unknown(
                "class", text, by_name, remedy=f"give a class of {self.name} or its index"
            )
        return found[0]
