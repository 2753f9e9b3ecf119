"""`igos report`: an evaluation as one HTML file."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from igos.cli.options import Against, MinProbability


def report(
    store: Annotated[Path, typer.Argument(help="What igos evaluate has written.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file.")] = Path("report.html"),
    photos: Annotated[
        Path | None,
        typer.Option(help="Where the photos lie now: the folder or CSV [default: as evaluated]."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Your own network, FILE.py:function: its code is run for its preprocessing."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Photos in the gallery.")] = 500,
    against: Against = None,
    min_probability: MinProbability = 0.0,
) -> None:
    """Write a study as one HTML file: tables, curves, and a gallery of photos and heatmaps."""
    from igos.report import write_report

    with redirect_stdout(sys.stderr):
        notes = write_report(
            store,
            out,
            photos=photos,
            model=model,
            limit=limit,
            against=against,
            min_probability=min_probability,
        )
    for note in notes:
        print(f"igos: {note}", file=sys.stderr)
    print(out)
