"""`igos explain` and `igos compare`: photos explained, one by one."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from igos.cli.options import (
    BAD_INPUT,
    Baseline,
    Compile,
    Curves,
    Device,
    Methods,
    MethodSettings,
    Model,
    Precision,
    Ratio,
    Score,
    Seed,
    Target,
    Weights,
    named,
    read_methods,
    read_resolution,
    read_setting,
)
from igos.errors import IgosError

if TYPE_CHECKING:
    from igos.descent import Step
    from igos.explanation import Explanation

Resolution = Annotated[
    str | None,
    typer.Option(
        "--resolution",
        "-r",
        help="28, or 28x14 (rows x columns) [default: 28, or the method's own].",
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")]


def explain(
    photos: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PHOTO]...", help="Photos to explain; without any, the sample."),
    ] = None,
    model: Model = "efficientnet_lite0",
    weights: Weights = None,
    target: Target = None,
    method: Annotated[str, typer.Option(help="Which method; see: igos methods.")] = "igos",
    resolution: Resolution = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the method."),
    ] = None,
    baseline: Baseline = "blur",
    score: Score = "probability",
    curves: Curves = "paper",
    ratio: Ratio = 0.2,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    compiled: Compile = None,
    out: Out = Path("igos-out"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the records to stdout, one a line, nothing else.")
    ] = False,
) -> None:
    """Explain photos: for each a picture (.png), the heatmap (.npy) and a record (.json)."""
    from igos.data import SAMPLE
    from igos.files import prepare_folder
    from igos.methods import make
    from igos.metrics.curves import PROTOCOLS
    from igos.problem import LINKS

    chosen = photos or [SAMPLE]
    prepare_folder(out)
    link = named("score", LINKS, score)
    protocol = named("curves", PROTOCOLS, curves)
    settled: dict[str, str | float] = dict(read_setting(text) for text in settings or [])
    shape = None if resolution is None else read_resolution(resolution)
    iterations = make(method, resolution=shape, seed=seed, settings=settled).settings.get(
        "max_iterations"
    )
    from igos.explainer import explain as explain_photo
    from igos.explainer import find_baseline
    from igos.models import load

    with redirect_stdout(sys.stderr):  # downloads and models may print; stdout is ours
        classifier = load(
            model, weights=weights, device=device, precision=precision, compiled=bool(compiled)
        )
    find_baseline(baseline, classifier)  # what is wrong for every photo is said once
    if target is not None:
        classifier.find_class(target)
    failed = 0
    stems: dict[str, str] = {}
    for photo in chosen:
        try:
            other = stems.setdefault(Path(photo).stem, photo)
            if other != photo:
                raise IgosError(
                    f"photo {photo!r}: would overwrite the results of {other!r}; explain it in "
                    "another call with another --out"
                )
            with redirect_stdout(sys.stderr), _progress(Path(photo).name, iterations) as watch:
                explanation = explain_photo(
                    photo,
                    model=classifier,
                    target=target,
                    method=method,
                    resolution=shape,
                    settings=settled,
                    baseline=baseline,
                    link=link,
                    protocol=protocol,
                    seed=seed,
                    watch=watch,
                )
            paths = explanation.save(out, ratio=ratio)
        except IgosError as error:
            print(f"igos: {error}", file=sys.stderr)
            failed += 1
            continue
        _print(explanation, paths[0], as_json)
    if failed:
        raise typer.Exit(BAD_INPUT)


def compare(
    photo: Annotated[str, typer.Argument(help="The photo; without one, the sample.")] = "sample",
    methods: Methods = "igos,igos-paper,mask,gradcam,integrated-gradients,random",
    settings: MethodSettings = None,
    resolution: Resolution = None,
    model: Model = "efficientnet_lite0",
    weights: Weights = None,
    target: Target = None,
    baseline: Baseline = "blur",
    score: Score = "probability",
    curves: Curves = "paper",
    ratio: Ratio = 0.2,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    compiled: Compile = None,
    out: Out = Path("igos-out"),
) -> None:
    """Explain one photo by several methods: one picture, side by side with their curves.

    Methods with a resolution of their own keep it, whatever --resolution says.
    """
    from igos.files import prepare_folder
    from igos.methods import make
    from igos.methods.base import Native, UnsuitedError
    from igos.metrics.curves import PROTOCOLS
    from igos.problem import LINKS

    chosen = read_methods(methods, settings)
    prepare_folder(out)
    link = named("score", LINKS, score)
    protocol = named("curves", PROTOCOLS, curves)
    shape = None if resolution is None else read_resolution(resolution)
    made = {n: make(n, resolution=shape, seed=seed, settings=own) for n, own in chosen.items()}
    from igos.explainer import explain as explain_photo
    from igos.explanation import save_comparison
    from igos.models import load

    with redirect_stdout(sys.stderr):
        classifier = load(
            model, weights=weights, device=device, precision=precision, compiled=bool(compiled)
        )
    explanations: list[Explanation] = []
    failed = False
    for name, method in made.items():
        iterations = method.settings.get("max_iterations")
        try:
            with redirect_stdout(sys.stderr), _progress(name, iterations) as watch:
                explanation = explain_photo(
                    photo,
                    model=classifier,
                    target=target,
                    method=name,
                    resolution=None if isinstance(method, Native) else shape,
                    settings=chosen[name],
                    baseline=baseline,
                    link=link,
                    protocol=protocol,
                    seed=seed,
                    watch=watch,
                )
        except IgosError as error:
            if not explanations and not isinstance(error, UnsuitedError):
                raise  # the photo's fault, most likely; nothing is lost
            print(f"igos: {name}: {error}", file=sys.stderr)
            failed = failed or not isinstance(error, UnsuitedError)
            continue
        explanations.append(explanation)
        h, w = explanation.resolution
        print(
            f"{name:26s} {h}×{w}  deletion {explanation.deletion.auc:.3f}  "
            f"insertion {explanation.insertion.auc:.3f}  {explanation.seconds:.1f} s",
            flush=True,
        )
    if not explanations:
        raise IgosError(f"methods {methods!r}: none of them can explain {model}")
    print(f"  -> {save_comparison(explanations, out, ratio=ratio)[0]}")
    if failed:
        raise typer.Exit(BAD_INPUT)


@contextmanager
def _progress(title: str, total: int | None) -> Iterator[Callable[["Step"], None]]:
    """A bar on stderr for whatever takes more than a second; none where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("objective {task.fields[loss]:.3f}"),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(title, total=total, loss=float("nan"))
    start = time.monotonic()

    def watch(step: "Step") -> None:
        if bar.console.is_terminal and time.monotonic() - start > 1:
            bar.start()
        bar.update(task, completed=step.iteration, loss=float(step.loss[0]))

    try:
        yield watch
    finally:
        if bar.live.is_started:
            bar.stop()


def _print(explanation: "Explanation", picture: Path, as_json: bool) -> None:
    for doubt in explanation.warnings:
        print(f"igos: warning: {explanation.photo}: {doubt}", file=sys.stderr)
    if as_json:
        print(explanation.json(), flush=True)
        return
    print(
        f"{explanation.photo}: {explanation.class_name}, "
        f"probability {explanation.probability:.3f}, deletion {explanation.deletion.auc:.3f}, "
        f"insertion {explanation.insertion.auc:.3f}, {explanation.seconds:.1f} s\n"
        f"  -> {picture}",
        flush=True,
    )
