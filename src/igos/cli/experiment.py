"""`igos experiment`: the paper's tables and figures."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from igos.cli.options import Compile, Device, MinProbability, Model, Precision, Seed, Weights, named
from igos.cli.study import STOPPED, read_batch, show_failures, watch
from igos.files import prepare_folder

if TYPE_CHECKING:
    from igos.data import Listed
    from igos.study.plan import Study
    from igos.study.run import Progress

NAMES = (  # igos.experiments.EXPERIMENTS, which takes seconds to import
    "table1",
    "table2",
    "runtime",
    "ablation",
    "convergence",
    "pointing",
    "adversarial",
    "failure",
    "gallery",
)


def _follow(study: "Study", photos: Sequence["Listed"], progress: Iterator["Progress"]) -> None:
    watch(study, progress)
    show_failures(study, photos)


def experiment(
    name: Annotated[str, typer.Argument(help=f"{', '.join(NAMES)}.")],
    photos: Annotated[
        Path,
        typer.Option(
            help="A folder, a folder of class folders, or a CSV: file,class_index; for pointing "
            "also the folder of VOCdevkit, or COCO's annotations/instances_NAME.json."
        ),
    ],
    model: Model = "efficientnet_lite0",
    weights: Weights = None,
    target: Annotated[
        str, typer.Option(help="The class explained: the predicted one, or the photo's label.")
    ] = "predicted",
    limit: Annotated[int | None, typer.Option(min=1, help="Take this many photos.")] = None,
    min_probability: MinProbability = 0.3,
    seed: Seed = 0,
    batch: Annotated[str, typer.Option(help="Photos at once: a number, or auto.")] = "auto",
    device: Device = "auto",
    precision: Precision = "auto",
    compiled: Compile = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for stores and reports.")] = Path(
        "igos-experiments"
    ),
) -> None:
    """Do one of the paper's experiments; interrupted, the same command goes on."""
    at_once = read_batch(batch)
    prepare_folder(out)
    from igos.experiments import EXPERIMENTS
    from igos.experiments.bench import Bench
    from igos.models import load

    run = named("experiment", EXPERIMENTS, name)
    with redirect_stdout(sys.stderr):
        classifier = load(
            model, weights=weights, device=device, precision=precision, compiled=bool(compiled)
        )
    bench = Bench(
        classifier=classifier,
        source=photos,
        out=out,
        target=target,
        min_probability=min_probability,
        limit=limit,
        seed=seed,
        batch=at_once,
        follow=_follow,
    )
    try:
        with redirect_stdout(sys.stderr):
            report = run(bench)
    except KeyboardInterrupt:
        print(f"igos: stopped; the same command goes on with {out}", file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    for path in report.save(out):
        print(f"  -> {path}", file=sys.stderr)
    print(report.text)
