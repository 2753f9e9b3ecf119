"""What a network sees of a photo, and its classes' names, without its weights.

A picture of a heatmap needs no more, and nothing is fetched for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import timm
import timm.data
import torch
import torchvision
from PIL import Image
from torch import Tensor

from igos.errors import IgosError, first_line, unknown
from igos.image import Normalisation


@dataclass(frozen=True, eq=False)
class View:
    """A classifier's preprocessing and names."""

    preprocess: Callable[[Image.Image], Tensor]  # photo -> (3, H, W), normalised
    normalisation: Normalisation
    class_names: tuple[str, ...] = ()

    def seen(self, photo: Image.Image) -> Image.Image:
        """The part of the photo that the network saw, as it saw it."""
        try:
            pixels = self.normalisation.pixels(self.preprocess(photo)).clamp(0, 1)
            return Image.fromarray((255 * pixels).round().byte().permute(1, 2, 0).numpy())
        except Exception as error:  # somebody else's code
            raise IgosError(f"the model's preprocessing failed: {first_line(error)}") from error


@dataclass(frozen=True)
class AsItIs:
    """Preprocessing for pictures that are made as the model wants them."""

    normalisation: Normalisation
    size: tuple[int, int] | None = None  # (W, H), to be sure

    def __call__(self, photo: Image.Image) -> Tensor:
        array = np.asarray(photo.convert("RGB").resize(self.size or photo.size))
        return self.normalisation.normalise(torch.tensor(array).permute(2, 0, 1).float() / 255)


UNPREPARED = " without preprocessing"  # ends the name of a model that gets such pictures


def unprepared(known: View) -> View:
    """The same network's view of pictures that are made as it wants them."""
    return replace(known, preprocess=AsItIs(known.normalisation))


def view(name: str) -> View:
    """By the model's name; a file of one's own is not run, whoever wrote down its name."""
    if name.endswith(UNPREPARED):
        return unprepared(view(name.removesuffix(UNPREPARED)))
    prefix, _, rest = name.partition(":")
    try:
        if name.startswith("efficientnet_lite"):
            return _bundled_view(name)
        if prefix == "timm":
            check_timm(rest)
            return timm_view(timm.get_pretrained_cfg(rest).to_dict())
        if prefix == "torchvision":
            return torchvision_view(torchvision_weights(rest))
        if prefix == "hf":
            return _hugging_face_view(rest)
    except IgosError:
        raise
    except Exception as error:  # of timm, torchvision, transformers: weights they do not know
        raise IgosError(f"model {name!r}: {first_line(error)}") from error
    raise IgosError(f"model {name!r}: its preprocessing is not known without running its code")


def torchvision_names() -> list[str]:
    names: list[str] = torchvision.models.list_models(module=torchvision.models)
    return names


def timm_names() -> list[str]:
    names: list[str] = timm.list_models()
    return names


def timm_view(pretrained: Mapping[str, Any]) -> View:
    """From timm's record of a model's weights."""
    config = timm.data.resolve_data_config(pretrained_cfg=pretrained)
    names: tuple[str, ...] = ()
    if subset := timm.data.infer_imagenet_subset(pretrained):
        info = timm.data.ImageNetInfo(subset)
        names = tuple(info.index_to_description(i) for i in range(info.num_classes()))
    return View(
        timm.data.create_transform(**config, is_training=False),
        Normalisation(tuple(config["mean"]), tuple(config["std"])),
        names,
    )


def torchvision_view(weights: Any) -> View:
    """From one of torchvision's records of a model's weights."""
    transforms = weights.transforms()
    normalisation = Normalisation(tuple(transforms.mean), tuple(transforms.std))
    return View(transforms, normalisation, tuple(weights.meta["categories"]))


def hugging_face_view(processor: Any, config: Any) -> View:
    """From a model's processor and configuration."""

    def preprocess(photo: Image.Image) -> Tensor:
        pixels: Tensor = processor(photo, return_tensors="pt")["pixel_values"][0]
        return pixels

    labels = {int(index): label for index, label in config.id2label.items()}
    return View(
        preprocess,
        Normalisation(tuple(processor.image_mean), tuple(processor.image_std)),
        tuple(labels[index] for index in sorted(labels)),
    )


def _bundled_view(name: str) -> View:
    from igos.models import BUNDLED  # not above: it imports this module

    if name not in BUNDLED:
        raise unknown("model", name, BUNDLED, remedy=f"give {' or '.join(BUNDLED)}")
    return timm_view(timm.get_pretrained_cfg(f"tf_{name}").to_dict())


def check_timm(name: str) -> None:
    """A name that timm knows, whatever its tag."""
    if name.partition(".")[0] not in timm_names():
        raise unknown("timm model", name, timm_names(), remedy="see: igos models timm:WORD")


def torchvision_weights(name: str) -> Any:
    """torchvision's record of NAME's first weights, or of NAME@WEIGHTS."""
    model, _, tag = name.partition("@")
    if model not in torchvision_names():
        remedy = "see: igos models torchvision:WORD"
        raise unknown("torchvision model", model, torchvision_names(), remedy=remedy)
    choices: Any = torchvision.models.get_model_weights(model)
    if tag and tag not in choices.__members__:
        remedy = f"{model} has {', '.join(choices.__members__)}"
        raise unknown("torchvision weights", tag, choices.__members__, remedy=remedy)
    return choices[tag] if tag else next(iter(choices))


def _hugging_face_view(name: str) -> View:
    from transformers import AutoConfig, AutoImageProcessor

    # Nothing is fetched, and no code that comes with a model is run, or asked about.
    alone = {"local_files_only": True, "trust_remote_code": False}
    return hugging_face_view(
        AutoImageProcessor.from_pretrained(name, **alone),
        AutoConfig.from_pretrained(name, **alone),
    )
