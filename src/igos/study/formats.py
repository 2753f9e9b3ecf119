"""A study's rows as text, Markdown, LaTeX, CSV or JSON."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from igos.study.table import Interval, Row, labels

Grid = list[list[str]]  # the first line is the head
NOTHING = "–"


@dataclass(frozen=True)
class Markup:
    """How a format writes a table."""

    plain: Callable[[str], str]
    bold: Callable[[str], str]  # of a plain text
    table: Callable[[str, Grid], str]


def as_json(rows: Sequence[Row]) -> str:
    return json.dumps([row.record() for row in rows], indent=2, ensure_ascii=False)


def as_csv(rows: Sequence[Row]) -> str:
    lines = [_flat(row.record()) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().rstrip("\n")


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if key == "question":
            flat |= value
        elif key.endswith("_ci"):
            flat |= {f"{key}_low": value and value[0], f"{key}_high": value and value[1]}
        else:
            flat[key] = json.dumps(value) if isinstance(value, dict | list) else value
    return flat


def _text_table(title: str, grid: Grid) -> str:
    widths = [max(len(line[at]) for line in grid) for at in range(len(grid[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in grid
    ]
    return "\n".join([title, "", lines[0], "-" * max(map(len, lines)), *lines[1:]])


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table; all but its first column are numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines])


def _markdown_table(title: str, grid: Grid) -> str:
    return f"{title}\n\n{markdown(grid[0], grid[1:])}"


def _latex_table(title: str, grid: Grid) -> str:
    head, *lines = grid
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{title}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\hline",
            " & ".join(head) + r" \\ \hline",
            *(" & ".join(line) + r" \\" for line in lines),
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _escaped(text: str) -> str:
    """Plain text for LaTeX."""
    special = {"×": r"$\times$", "−": "$-$", NOTHING: "--", "\\": r"\textbackslash{}"}
    special |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: "\\" + character for character in "_%&#${}"}
    return "".join(special.get(character, character) for character in text)


MARKUPS = {
    "text": Markup(str, bold=lambda text: f"*{text}", table=_text_table),
    "md": Markup(str, bold=lambda text: f"**{text}**", table=_markdown_table),
    "latex": Markup(_escaped, bold=lambda text: rf"\textbf{{{text}}}", table=_latex_table),
}


def as_tables(rows: Sequence[Row], markup: Markup) -> str:
    """The paper's Table 1 and, below it, how sure each figure is; for each question asked."""
    if not rows:
        return "no results yet"
    tables = []
    named = sorted(zip(rows, labels(rows), strict=True), key=lambda one: str(one[0].question))
    for _, group in groupby(named, key=lambda one: one[0].question):
        some = list(group)
        question = some[0][0].question
        title = (
            f"Deletion (small is good) and insertion (large is good), {question['model']}, "
            f"target {question['target']}, baseline {question['baseline']}, "
            f"{question['curves']} curves of the {question['score']} "
            f"in {question['precision']} precision"
        )
        tables.append(markup.table(markup.plain(title), _overview(some, markup)))
        lines = [[markup.plain(cell) for cell in line] for line in _details(some)]
        tables.append(markup.table("The same, a line each", lines))
    return "\n\n".join(tables)


def _overview(named: Sequence[tuple[Row, str]], markup: Markup) -> Grid:
    """Methods × resolutions, the best of each column in bold."""
    resolutions = sorted({row.resolution for row, _ in named}, reverse=True)
    found = {(label, row.resolution): row for row, label in named}
    head = ["method"]
    for h, w in resolutions:
        head += [markup.plain(f"{h}×{w} deletion"), "insertion"]
    grid = [head]
    best = {
        (resolution, metric): choose(
            getattr(row, metric) for row, _ in named if row.resolution == resolution
        )
        for resolution in resolutions
        for metric, choose in (("deletion", min), ("insertion", max))
    }
    for label in dict.fromkeys(label for _, label in named):
        line = [markup.plain(label)]
        for resolution in resolutions:
            for metric in ("deletion", "insertion"):
                row = found.get((label, resolution))
                if row is None:
                    line.append(markup.plain(NOTHING))
                    continue
                value = getattr(row, metric)
                text = f"{value:.3f}"
                is_best = text == f"{best[resolution, metric]:.3f}"
                line.append(markup.bold(text) if is_best else text)
        grid.append(line)
    return grid


def _details(named: Sequence[tuple[Row, str]]) -> Grid:
    against = next((row.against for row, _ in named if row.against), None)
    head = ["method", "resolution", "photos", "deletion, 95 %", "insertion, 95 %"]
    head += ["ins. − del.", "s/heatmap"]
    if against is not None:
        head += [f"better than {against}: deletion", "p", "insertion", "p", "ins. − del.", "p"]
    grid = [head]
    for row, label in named:
        line = [
            label,
            "{}×{}".format(*row.resolution),
            str(row.photos),
            _with_interval(row.deletion, row.deletion_ci),
            _with_interval(row.insertion, row.insertion_ci),
            f"{round(row.difference, 3) + 0:.3f}",  # no minus before a zero
            f"{row.seconds:.3f}",
        ]
        if against is not None:
            line += [_share(row.deletion_wins), _p(row.deletion_p)]
            line += [_share(row.insertion_wins), _p(row.insertion_p)]
            line += [_share(row.difference_wins), _p(row.difference_p)]
        grid.append(line)
    return grid


def _with_interval(mean: float, interval: Interval | None) -> str:
    return (
        f"{mean:.3f}" if interval is None else f"{mean:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"
    )


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0%}"


def _p(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2g}"


FORMATS: dict[str, Callable[[Sequence[Row]], str]] = {
    **{name: lambda rows, own=own: as_tables(rows, own) for name, own in MARKUPS.items()},  # type: ignore[misc]
    "csv": as_csv,
    "json": as_json,
}
