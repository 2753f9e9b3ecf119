"""Weights from a file, read without ever running code that is in it."""

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from igos.errors import IgosError


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file or of a saved state dict (`weights_only`)."""
    if not os.path.isfile(path):  # Path's own raises where a folder above may not be read
        raise IgosError(f"weights {str(path)!r}: no such file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the restricted unpickler raises nearly anything for other files
        raise IgosError(
            f"weights {str(path)!r}: not a safetensors file or a plain state dict; save one with "
            "torch.save(model.state_dict(), path)"
        ) from error
    if isinstance(loaded, Mapping):  # training programs wrap the state dict in a checkpoint
        loaded = next((loaded[k] for k in ("state_dict", "model") if k in loaded), loaded)
    if not isinstance(loaded, Mapping) or not all(isinstance(v, Tensor) for v in loaded.values()):
        raise IgosError(
            f"weights {str(path)!r}: holds no state dict (names -> tensors); save one with "
            "torch.save(model.state_dict(), path)"
        )
    return {str(key).removeprefix("module."): value for key, value in loaded.items()}


def load_weights(module: nn.Module, state: Mapping[str, Tensor], *, source: str) -> None:
    """Fill `module`, strictly; a misfit is an error that names the first differences."""
    own = module.state_dict()
    missing = [key for key in own if key not in state]
    unexpected = [key for key in state if key not in own]
    shapes = [
        f"{key} is {tuple(state[key].shape)}, not {tuple(own[key].shape)}"
        for key in own
        if key in state and own[key].shape != state[key].shape
    ]
    if missing or unexpected or shapes:
        parts = [
            f"{len(keys)} {what} ({', '.join(keys[:2])}{', …' if len(keys) > 2 else ''})"
            for keys, what in (
                (missing, "missing"),
                (unexpected, "unexpected"),
                (shapes, "of another shape"),
            )
            if keys
        ]
        raise IgosError(
            f"weights {source!r} do not fit {type(module).__name__}: tensors {'; '.join(parts)}. "
            "Give the architecture they were trained with as the model"
        )
    module.load_state_dict(state)
