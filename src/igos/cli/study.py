"""`igos evaluate` and `igos table`: many photos, methods and resolutions, and what came of it."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from igos.cli.options import (
    Against,
    Baseline,
    Compile,
    Curves,
    Device,
    Methods,
    MethodSettings,
    MinProbability,
    Model,
    Precision,
    Score,
    Seed,
    Weights,
    named,
    read_methods,
    read_resolution,
)
from igos.errors import IgosError

if TYPE_CHECKING:
    from igos.data import Listed
    from igos.study.plan import Study
    from igos.study.run import Progress

STOPPED = 130  # the exit code after Ctrl-C, as shells have it
FAILURES_SHOWN = 20
COMPILED_FROM = 2000  # heatmaps, from which compiling the model on CUDA pays


def evaluate(
    photos: Annotated[
        Path,
        typer.Argument(help="A folder, a folder of class folders, or a CSV: file,class_index."),
    ],
    model: Model = "efficientnet_lite0",
    weights: Weights = None,
    methods: Methods = "igos",
    settings: MethodSettings = None,
    resolutions: Annotated[
        str, typer.Option(help="Of the heatmaps, separated by commas: 224,28 or 28x14.")
    ] = "28",
    target: Annotated[
        str, typer.Option(help="The class explained: the predicted one, or the photo's label.")
    ] = "predicted",
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Take this many photos: a random sample, always the same."),
    ] = None,
    min_probability: MinProbability = 0.0,
    baseline: Baseline = "blur",
    score: Score = "probability",
    curves: Curves = "paper",
    seed: Seed = 0,
    batch: Annotated[
        str, typer.Option(help="Photos at once: a number, or auto for the device's default.")
    ] = "auto",
    heatmaps: Annotated[bool, typer.Option(help="Keep the heatmaps in the store.")] = True,
    device: Device = "auto",
    precision: Precision = "auto",
    compiled: Compile = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The store, an SQLite file; made, or gone on with.")
    ] = Path("igos.sqlite"),
) -> None:
    """Explain and score every photo by every method; interrupted, the same command goes on."""
    from igos.data import list_photos
    from igos.methods import maker
    from igos.metrics.curves import PROTOCOLS
    from igos.problem import LINKS

    chosen = read_methods(methods, settings)
    named("score", LINKS, score)
    named("curves", PROTOCOLS, curves)
    shapes = _resolutions(resolutions)
    at_once = read_batch(batch)
    makers = {name: maker(name, seed=seed, settings=own) for name, own in chosen.items()}
    for make in makers.values():
        make(None)  # a wrong setting is said before anything is loaded
    listed = list_photos(photos)
    from igos.answer import precision_of
    from igos.models import load, pick_device
    from igos.study.plan import Question, environment, plan
    from igos.study.run import evaluate as run
    from igos.study.store import Store

    with redirect_stdout(sys.stderr):
        heatmaps_wanted = min(limit or len(listed), len(listed)) * len(makers) * len(shapes)
        if compiled is None:
            compiled = pick_device(device).type == "cuda" and heatmaps_wanted >= COMPILED_FROM
        classifier = load(
            model, weights=weights, device=device, precision=precision, compiled=compiled
        )
    with Store(out) as store:
        question = Question(
            model=model,
            weights=classifier.digest,
            target=target,
            baseline=baseline,
            score=score,
            curves=curves,
            precision=precision_of(classifier),
        )
        study = plan(
            store,
            classifier,
            question,
            makers,
            shapes,
            min_probability=min_probability,
            batch=at_once and min(at_once, len(listed)),
            keep_heatmaps=heatmaps,
        )
        store.begin(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            arguments={
                "photos": str(photos),
                "weights": None if weights is None else str(weights),
                "methods": chosen,
                "resolutions": resolutions,
                "limit": limit,
                "min_probability": min_probability,
                "seed": seed,
                "batch": study.batch,
                "heatmaps": heatmaps,
            },
            environment=environment(classifier),
        )
        if not study.configurations:
            reasons = "; ".join(f"{name} {reason}" for name, reason in study.unsuited)
            raise IgosError(f"methods {methods!r}: none of them fits {model}: {reasons}")
        try:
            with redirect_stdout(sys.stderr):
                with closing(run(study, listed, limit=limit)) as progress:
                    watch(study, progress)
        except KeyboardInterrupt:
            print(f"igos: stopped; the same command goes on with {out}", file=sys.stderr)
            raise typer.Exit(STOPPED) from None
        _report(study, listed, out)


def _report(study: "Study", photos: Sequence["Listed"], out: Path) -> None:
    """The store's table, and on stderr what failed; an error if these photos have no result."""
    _print_table(out, "text", against=None, min_probability=study.min_probability)
    show_failures(study, photos)
    numbers = {configuration.number for configuration in study.configurations}
    names = {photo.name for photo in photos}
    if not study.store.has_results(numbers, names, study.min_probability):
        raise IgosError(
            "no photo could be explained, or none has the minimum probability, "
            f"{study.min_probability}"
        )


def show_failures(study: "Study", photos: Sequence["Listed"]) -> None:
    """Which of these photos failed, on stderr."""
    numbers = [configuration.number for configuration in study.configurations]
    failures = study.store.failures(numbers, {photo.name for photo in photos})
    for failure in failures[:FAILURES_SHOWN]:
        print(f"igos: {failure}", file=sys.stderr)
    if len(failures) > FAILURES_SHOWN:
        print(f"igos: … {len(failures)} failures in all", file=sys.stderr)


def table(
    store: Annotated[Path, typer.Argument(help="What igos evaluate has written.")],
    form: Annotated[str, typer.Option("--format", help="text, md, csv, json or latex.")] = "text",
    against: Against = None,
    min_probability: MinProbability = 0.0,
    photos: Annotated[
        Path | None, typer.Option(help="Only these: a folder or a CSV, as for igos evaluate.")
    ] = None,
) -> None:
    """Print a study: methods × resolutions, confidence intervals, paired tests."""
    _print_table(store, form, against=against, min_probability=min_probability, photos=photos)


def _print_table(
    store: Path,
    form: str,
    *,
    against: str | None,
    min_probability: float,
    photos: Path | None = None,
) -> None:
    from igos.data import list_photos
    from igos.study.formats import FORMATS
    from igos.study.table import summarise

    write = named("format", FORMATS, form)
    names = None if photos is None else {photo.name for photo in list_photos(photos)}
    rows = summarise(store, against=against or "igos", min_probability=min_probability, names=names)
    if names is not None and not rows:
        raise IgosError(
            f"photos {str(photos)!r}: {str(store)!r} has results for none of them; "
            f"photos go by their path below the folder or CSV, here {min(names, default='')!r}, "
            "which must be that of igos evaluate"
        )
    if against is not None:
        named("method of the store", {row.method: row for row in rows}, against)
    print(write(rows))


def _resolutions(text: str) -> list[tuple[int, int]]:
    from igos.image import check_resolution

    shapes = [check_resolution(read_resolution(one)) for one in text.split(",") if one.strip()]
    if not shapes:
        raise IgosError(f"resolutions {text!r}: give at least one")
    return list(dict.fromkeys(shapes))


def read_batch(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise IgosError(f"batch {text!r}: give auto, or a whole number from 1 up")
    return int(text)


def watch(study: "Study", progress: Iterator["Progress"]) -> None:
    """Follow the run on stderr: photos a second, time left, and every method's means so far."""
    for name, reason in study.unsuited:
        print(f"igos: {name}: left out: {reason}", file=sys.stderr)
    from rich import progress as columns
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table

    console = Console(stderr=True)
    bar = columns.Progress(
        columns.BarColumn(),
        columns.MofNCompleteColumn(),
        columns.TextColumn("photos, {task.fields[rate]:.2f} a second,"),
        columns.TimeRemainingColumn(),
        columns.TextColumn("left"),
        console=console,
    )
    task = bar.add_task("", total=None, rate=0.0)

    def picture() -> Group:
        means = Table("", "photos", "deletion", "insertion", box=None)
        for configuration in study.configurations:
            count, deletion, insertion = study.store.mean(configuration.number)
            figures = (f"{deletion:.3f}", f"{insertion:.3f}") if count else ("", "")
            means.add_row(configuration.title, str(count), *figures)
        return Group(bar, means)

    live = Live(console=console, get_renderable=picture, refresh_per_second=2, transient=True)
    start = time.monotonic()
    with live if console.is_terminal else nullcontext():
        for step in progress:
            if step.unsuited:
                print(
                    f"igos: {step.configuration.title}: left out: {step.unsuited}", file=sys.stderr
                )
            rate = step.photos / max(time.monotonic() - start, 1e-3)
            bar.update(task, completed=step.photos, total=step.total, rate=rate)
