"""The command line: thin, no logic. Heavy modules are imported by the command that needs them."""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from igos.errors import IgosError, unknown

if TYPE_CHECKING:
    from igos.descent import Step
    from igos.explanation import Explanation

T = TypeVar("T")

BAD_INPUT = 2  # the exit code, also when only some of several photos were bad

app = typer.Typer(
    help="Why did the image network say that? Heatmaps, and the curves that test them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot show
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # before huggingface_hub is imported
    try:
        app()
    except IgosError as error:
        _report(error)
        sys.exit(BAD_INPUT)


def _report(error: IgosError) -> None:
    print(f"igos: {error}", file=sys.stderr)


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
def explain(
    photos: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PHOTO]...", help="Photos to explain; without any, the sample."),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Which network; see: igos models.")
    ] = "efficientnet_lite0",
    weights: Annotated[
        Path | None, typer.Option(help="State dict or safetensors file for the model.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="Class index or name [default: the predicted class]."),
    ] = None,
    method: Annotated[str, typer.Option(help="Which method; see: igos methods.")] = "igos",
    resolution: Annotated[
        str | None,
        typer.Option(
            "--resolution",
            "-r",
            help="28, or 28x14 (rows x columns) [default: 28, or the method's own].",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the method."),
    ] = None,
    baseline: Annotated[
        str, typer.Option(help="What hides a pixel: blur, grey, black, noise, or an image file.")
    ] = "blur",
    score: Annotated[
        str, typer.Option(help="What is explained: the class's probability or its logit.")
    ] = "probability",
    curves: Annotated[
        str, typer.Option(help="How deletion and insertion are measured: paper or rise.")
    ] = "paper",
    ratio: Annotated[
        float,
        typer.Option(min=0, max=1, help="Pixels changed in the deletion and insertion image."),
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Of all random draws.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path(
        "igos-out"
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the records to stdout, one a line, nothing else.")
    ] = False,
) -> None:
    """Explain photos: for each a picture (.png), the heatmap (.npy) and a record (.json)."""
    from igos.data import SAMPLE
    from igos.explanation import prepare_folder
    from igos.methods import make
    from igos.metrics.curves import PROTOCOLS
    from igos.problem import LINKS

    chosen = photos or [SAMPLE]
    prepare_folder(out)
    link = _named("score", LINKS, score)
    protocol = _named("curves", PROTOCOLS, curves)
    settled: dict[str, str | float] = dict(_pair(text) for text in settings or [])
    shape = _resolution(resolution)
    iterations = make(method, resolution=shape, seed=seed, settings=settled).settings.get(
        "max_iterations"
    )
    from igos.explainer import explain as explain_photo
    from igos.explainer import find_baseline
    from igos.models import load

    with redirect_stdout(sys.stderr):  # downloads and models may print; stdout is ours
        classifier = load(model, weights=weights, device=device)
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
            _report(error)
            failed += 1
            continue
        _print(explanation, paths[0], as_json)
    if failed:
        raise typer.Exit(BAD_INPUT)


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
        print(f"{name:12s} {(factory.__doc__ or '').splitlines()[0]}")
        shown = json.dumps(factory().settings).strip("{}").replace('"', "")
        print(f"{'':12s} at 28×28: {shown}")


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


def _resolution(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    sides = text.lower().replace("×", "x").split("x")
    try:
        numbers = [int(side) for side in sides]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise IgosError(f"resolution {text!r}: give a number such as 28, or two such as 28x14")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise IgosError(f"setting {text!r}: give NAME=VALUE")
    return name, value


def _named(kind: str, table: Mapping[str, T], name: str) -> T:
    if name not in table:
        raise unknown(kind, name, table, remedy=f"give {' or '.join(table)}")
    return table[name]


if __name__ == "__main__":
    main()
