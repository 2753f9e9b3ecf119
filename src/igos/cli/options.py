"""Options that several commands share, and how their texts are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from igos.errors import IgosError, unknown

T = TypeVar("T")

BAD_INPUT = 2  # the exit code, also when only some of several photos were bad

Model = Annotated[str, typer.Option("--model", "-m", help="Which network; see: igos models.")]
Weights = Annotated[Path | None, typer.Option(help="State dict or safetensors file for the model.")]
Baseline = Annotated[
    str, typer.Option(help="What hides a pixel: blur, grey, black, noise, or an image file.")
]
Score = Annotated[
    str, typer.Option(help="What is explained: the class's probability or its logit.")
]
Curves = Annotated[
    str, typer.Option(help="How deletion and insertion are measured: paper or rise.")
]
Ratio = Annotated[
    float, typer.Option(min=0, max=1, help="Pixels changed in the deletion and insertion image.")
]
Seed = Annotated[int, typer.Option(help="Of all random draws.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Precision = Annotated[
    str,
    typer.Option(help="Of the scores: fp32, tf32, fp16, or auto: fp16 on CUDA where it holds."),
]
Compile = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        help="Compile the model: a minute, then faster. [default: no; igos evaluate on CUDA: for "
        "2,000 heatmaps or more]",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option("--target", "-t", help="Class index or name [default: the predicted class]."),
]
MinProbability = Annotated[
    float, typer.Option(min=0, max=1, help="Leave out photos whose target has less.")
]
Against = Annotated[
    str | None,
    typer.Option(
        help="The method that the others are tested against, photo by photo [default: igos]."
    ),
]
Methods = Annotated[
    str, typer.Option("--methods", help="Methods, separated by commas; see: igos methods.")
]
MethodSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="METHOD.NAME=VALUE", help="Change a setting, such as mask.lambda1=0.1."
    ),
]


def read_resolution(text: str) -> int | tuple[int, int]:
    sides = text.lower().replace("×", "x").split("x")
    try:
        numbers = [int(side) for side in sides]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise IgosError(f"resolution {text!r}: give a number such as 28, or two such as 28x14")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def read_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise IgosError(f"setting {text!r}: give NAME=VALUE")
    return name, value


def read_methods(methods: str, settings: list[str] | None) -> dict[str, dict[str, str | float]]:
    """The methods by name, each with the settings that are meant for it."""
    from igos.methods import METHODS

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise IgosError(f"methods {methods!r}: give at least one; see: igos methods")
    chosen: dict[str, dict[str, str | float]] = {name: {} for name in names}
    for name in chosen:
        named("method", METHODS, name)
    for text in settings or []:
        key, value = read_setting(text)
        name, _, setting = key.partition(".")
        if name not in chosen or not setting:
            raise IgosError(f"setting {text!r}: give METHOD.NAME=VALUE with a method of --methods")
        chosen[name][setting] = value
    return chosen


def named(kind: str, table: Mapping[str, T], name: str) -> T:
    """The entry of that name; an unknown one is refused with the nearest."""
    if name not in table:
        raise unknown(kind, name, table, remedy=f"give {' or '.join(table)}")
    return table[name]
