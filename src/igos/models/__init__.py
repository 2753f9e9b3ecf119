"""Classifiers by name, ready to run: `load("torchvision:resnet50")`."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from igos.errors import IgosError, first_line, unknown
from igos.models import fast
from igos.models.accelerate import accelerate
from igos.models.classifier import Classifier
from igos.models.sources import (
    State,
    efficientnet_lite,
    from_file,
    from_hugging_face,
    from_timm,
    from_torchvision,
    lite_package,
)
from igos.models.view import timm_names, torchvision_names
from igos.models.weights import read_state_dict

BUNDLED = {f"efficientnet_lite{n}": efficientnet_lite(n) for n in range(3)}
PREFIXES = {"torchvision": from_torchvision, "timm": from_timm, "hf": from_hugging_face}
NAMES = {"torchvision": torchvision_names, "timm": timm_names}


def load(
    name: str,
    *,
    weights: str | Path | None = None,
    device: str = "auto",
    precision: str = "auto",
    compiled: bool = False,
) -> Classifier:
    """The classifier of that name on `device`, accelerated; `weights` replaces the pretrained.

    `precision` is one of `PRECISIONS`; compiling takes up to a minute and pays for thousands of
    heatmaps, of many photos at once: passes that are less than half full run as they are.
    """
    where = pick_device(device)
    state = read_state_dict(Path(weights)) if weights is not None else None
    with torch.random.fork_rng(devices=[]):  # architectures are born with random weights
        classifier = _source(name)(state)
    try:
        example = classifier.example()[None]
        named = replace(classifier, name=name, digest=digest(name, classifier.module))
        return quicken(named, where, example, precision=precision, compiled=compiled)
    except IgosError:
        raise
    except Exception as error:  # the model's own code may raise anything
        raise IgosError(f"model {name!r}: {first_line(error)}") from error


def quicken(
    classifier: Classifier,
    device: torch.device,
    example: Tensor,
    *,
    precision: str = "auto",
    compiled: bool = False,
) -> Classifier:
    """The classifier on `device`, as fast as it runs there; `example` is (1, 3, H, W)."""
    module = accelerate(classifier.module, device, example)
    passes = fast.make_fast(module, example, precision=precision)
    chunk = fast.images_at_once(passes, example)
    if compiled:
        passes = fast.compiled(passes, example, chunk)
    return replace(classifier, module=module, fast=passes, chunk=chunk)


def digest(name: str, module: nn.Module) -> str:
    """What the model is, wherever its weights came from; before it was accelerated."""
    found = hashlib.sha256()
    file, dot_py, _ = name.rpartition(".py:")
    if dot_py:
        found.update(Path(f"{file}.py").read_bytes())
    for key, value in sorted(module.state_dict().items()):
        if isinstance(value, torch.Tensor):
            found.update(key.encode())
            found.update(value.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _source(name: str) -> Callable[[State | None], Classifier]:
    prefix, colon, rest = name.partition(":")
    if name in BUNDLED:
        return BUNDLED[name]
    if prefix in PREFIXES and rest:
        return partial(PREFIXES[prefix], rest)
    if colon and ".py:" in name:
        return partial(from_file, name)
    known = {p: names() for p, names in NAMES.items()}
    forms = [f"{p}:{name}" for p, names in known.items() if name in names]  # the prefix is missing
    forms = forms or [*BUNDLED, *(f"{p}:{one}" for p, names in known.items() for one in names)]
    remedy = "give efficientnet_lite0, torchvision:NAME, timm:NAME, hf:NAME or FILE.py:function"
    raise unknown("model", name, forms, remedy=remedy)


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA, else MPS, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cpu" and torch.backends.mps.is_available():
            name = "mps"
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch raises either for an absent device
        raise IgosError(f"device {name!r}: not available; give auto, cpu, cuda or mps") from error
    return device


def describe(query: str = "") -> list[tuple[str, str]]:
    """What can be loaded, with a remark; `timm:WORD` and `torchvision:WORD` list names."""
    prefix, colon, word = query.partition(":")
    if colon and prefix in NAMES:
        return [(f"{prefix}:{name}", "") for name in NAMES[prefix]() if word in name]
    if query:
        raise IgosError(f"models {query!r}: give {' or '.join(f'{p}:WORD' for p in NAMES)}")
    return [
        *((name, _installed(number)) for number, name in enumerate(BUNDLED)),
        ("torchvision:NAME", "torchvision's; resnet50@IMAGENET1K_V2 chooses among weights"),
        ("timm:NAME", "timm's"),
        ("hf:NAME", "an image classifier on the Hugging Face hub, or a folder"),
        ("FILE.py:function", "your own: the function returns an igos.Classifier"),
    ]


def _installed(number: int) -> str:
    package = lite_package(number)
    return "ready" if find_spec(package) else f"after: pip install {package}"
