"""The command line: thin, no logic. Heavy modules are imported by the command that needs them."""

import io
import json
import os
import sys
from typing import Annotated

import typer

from igos.cli.experiment import experiment
from igos.cli.explain import compare, explain
from igos.cli.options import BAD_INPUT
from igos.cli.report import report
from igos.cli.serve import serve
from igos.cli.study import evaluate, table
from igos.errors import IgosError

app = typer.Typer(
    help="Why did the image network say that? Heatmaps, and the curves that test them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (explain, compare, evaluate, table, report, experiment, serve):
    app.command()(command)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot show
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # before huggingface_hub is imported
    try:
        app()
    except IgosError as error:
        print(f"igos: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)


def _version(wanted: bool) -> None:
    if wanted:
        import igos

        print(f"igos {igos.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def models(
    query: Annotated[
        str, typer.Argument(help="timm:WORD or torchvision:WORD lists the names with WORD.")
    ] = "",
) -> None:
    """List the networks that can be explained."""
    from igos.models import describe

    for name, what in describe(query):
        print(f"{name:28s} {what}".rstrip())


@app.command()
def methods() -> None:
    """List the explanation methods and their settings."""
    from igos.methods import METHODS

    for name, factory in METHODS.items():
        settings = dict(factory().settings)
        where = "at 28×28" if settings.pop("resolution", None) else "at its own resolution"
        shown = json.dumps(settings).strip("{}").replace('"', "")
        print(f"{name:26s} {(factory.__doc__ or '').splitlines()[0]}")
        print(f"{'':26s} {where}: {shown}".rstrip(": "))
