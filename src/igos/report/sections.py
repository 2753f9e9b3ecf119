"""The parts of a report that need no program in the page: tables, charts, settings."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

import igos
from igos.report import charts
from igos.report.again import command
from igos.report.gather import METRICS, Configuration, Gathered, kind
from igos.study.table import Row

WANTED = {"deletion": "small is good", "insertion": "large is good"}
BEST: dict[str, Callable[[Iterable[float]], float]] = {"deletion": min, "insertion": max}
LEFT = {"method", *WANTED}  # columns that start at the left
SHOWN = 200  # failures, and warnings of one kind, that are listed


def results(data: Gathered, looks: dict[str, int]) -> str:
    """For each question its table, mean curves and distributions."""
    several = len(data.questions) > 1
    parts = []
    for number, question in data.questions.items():
        own = data.of(number)
        title = f"<h3 class=title>{escape(name_of(question))}</h3>" if several else ""
        parts.append(
            f'<div class="question">{title}{_asked(question)}{_table(own, looks, number)}'
            f"{_charts(own, looks, question)}</div>"
        )
    return "".join(parts)


def name_of(question: dict[str, Any]) -> str:
    """A question in a line."""
    return f"{question['model']}, target {question['target']}, baseline {question['baseline']}"


def _asked(question: dict[str, Any]) -> str:
    """Everything but the weights, which nobody reads; they are with the settings."""
    pairs = "".join(
        f"<div><dt>{key}</dt><dd>{escape(str(question[key]))}</dd></div>"
        for key in ("model", "target", "baseline", "score", "curves", "precision")
        if key in question
    )
    return f'<dl class="facts">{pairs}</dl>'


def _table(own: Sequence[Configuration], looks: dict[str, int], question: int) -> str:
    against = next((one.row.against for one in own if one.row.against), None)
    head = ["method", "resolution", "photos", *WANTED, "seconds a heatmap"]
    if against is not None:
        head += [f"{metric} better than {against}" for metric in WANTED]
    buttons = "".join(
        f'<th scope="col"{"" if name in LEFT else " class=number"} aria-sort="none">'
        f'<button type="button">{escape(name)}</button></th>'
        for name in head
    )
    scales = {metric: _scale(own, metric) for metric in WANTED}
    lines = "".join(_line(one, own, looks, scales, against) for one in own)
    hint = ", ".join(f"{metric}: {wanted}" for metric, wanted in WANTED.items())
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="Means, question {question}">'
        f'<table class="sortable"><thead><tr>{buttons}</tr></thead><tbody>{lines}</tbody></table>'
        '</div><p class="small">Mean areas under the curves with 95 % bootstrap intervals. '
        f"{hint.capitalize()}. The best at each resolution is bold.</p>"
    )


def _scale(own: Sequence[Configuration], metric: str) -> tuple[float, float]:
    """From the lowest to the highest end of the intervals."""
    ends = [end for one in own for end in getattr(one.row, f"{metric}_ci") or ()]
    ends += [getattr(one.row, metric) for one in own]
    low, high = min(ends), max(ends)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _line(
    one: Configuration,
    own: Sequence[Configuration],
    looks: dict[str, int],
    scales: dict[str, tuple[float, float]],
    against: str | None,
) -> str:
    row, at = one.row, looks[one.label]
    cells = [
        f'<th scope="row"><span class="method">{charts.key(at)}{escape(one.label)}</span></th>',
        _cell(row.resolution[0] * row.resolution[1], one.size),
        _cell(row.photos, f"{row.photos:,}"),
    ]
    for metric in WANTED:
        cells.append(_figure(row, metric, own, scales[metric], charts.look(at)))
    cells.append(_cell(row.seconds, f"{row.seconds:.3f}"))
    if against is not None:
        for metric in WANTED:
            cells.append(_wins(getattr(row, f"{metric}_wins"), getattr(row, f"{metric}_p")))
    return f"<tr>{''.join(cells)}</tr>"


def _cell(value: float | None, shown: str) -> str:
    order = "" if value is None else f' data-value="{value}"'
    return f'<td class="number"{order}>{shown}</td>'


def _wins(share: float | None, p: float | None) -> str:
    """On how many photos it is better, and the p of the paired test."""
    if share is None or p is None:
        return _cell(None, "–")
    small = "&lt; 0.001" if p < 0.001 else f"= {p:.3f}"
    return _cell(share, f'{share:.0%} <span class="ends">p {small}</span>')


def _figure(
    row: Row,
    metric: str,
    own: Sequence[Configuration],
    scale: tuple[float, float],
    look: str,
) -> str:
    """A mean, bold where it looks like the best of its resolution, and its interval."""
    mean, ends = getattr(row, metric), getattr(row, f"{metric}_ci")
    rivals = [getattr(one.row, metric) for one in own if one.row.resolution == row.resolution]
    shown = f"{mean:.3f}"
    tag = "strong" if shown == f"{BEST[metric](rivals):.3f}" else "span"
    between = "" if ends is None else f'<span class="ends">[{ends[0]:.3f}, {ends[1]:.3f}]</span>'
    return (
        f'<td data-value="{mean}"><span class="figure {look}">'
        f"<{tag}>{shown}</{tag}>{between}{charts.interval(mean, ends, scale)}</span></td>"
    )


def _charts(own: Sequence[Configuration], looks: dict[str, int], question: dict[str, Any]) -> str:
    by_size: dict[str, list[Configuration]] = defaultdict(list)
    for one in own:
        by_size[one.size].append(one)
    score = question["score"]
    legend = "".join(
        f"<li>{charts.key(looks[label])}{escape(label)}</li>"
        for label in sorted({one.label for one in own}, key=lambda label: looks[label])
    )
    parts = [f'<h3>Mean curves</h3><ul class="legend">{legend}</ul>']
    parts += [
        f'<h4>{size} heatmaps: mean {escape(score)} of the class</h4><div class="panels two">'
        + "".join(
            f"<figure><figcaption>{metric}, {WANTED[metric]}</figcaption>"
            f"{charts.curves(some, looks, metric=metric, score=score)}</figure>"
            for metric in WANTED
        )
        + "</div>"
        for size, some in by_size.items()
    ]
    parts.append(
        '<h3>Distributions over photos</h3><p class="small">Each area is a histogram of '
        "photos. The bar below it spans the middle half of them, the tick is the median, and its "
        "value stands at the right.</p>"
    )
    parts += [
        f'<h4>{size} heatmaps</h4><div class="panels">'
        + "".join(
            f"<figure><figcaption>{metric}</figcaption>"
            f"{charts.distributions(some, looks, metric=metric, score=score)}</figure>"
            for metric in METRICS
        )
        + "</div>"
        for size, some in by_size.items()
    ]
    return "".join(parts)


def troubles(data: Gathered) -> str:
    """What failed, and what should make a reader careful."""
    parts = [f"<h3>Failures <span class=count>{len(data.failures):,}</span></h3>"]
    if data.failures:
        lines = [
            f"<tr><th scope=row>{escape(one.name)}</th><td>{escape(one.configuration or 'all')}"
            f"</td><td>{escape(one.reason)}</td></tr>"
            for one in data.failures[:SHOWN]
        ]
        parts.append(
            '<div class="wide" role="region" tabindex="0" aria-label="Failures"><table>'
            "<thead><tr><th scope=col>photo<th scope=col>method<th scope=col>reason</thead>"
            f"<tbody>{''.join(lines)}</tbody></table></div>{_more(len(data.failures))}"
        )
    parts.append(f"<h3>Photos with warnings <span class=count>{data.warned:,}</span></h3>")
    parts += [
        f"<details><summary>{escape(title)} <span class=count>{photos:,}</span></summary>"
        f"<ul>{''.join(lines[:SHOWN])}</ul>{_more(len(lines))}</details>"
        for title, photos, lines in sorted(_kinds(data), key=lambda one: -one[1])
    ]
    return "".join(parts)


def _kinds(data: Gathered) -> list[tuple[str, int, list[str]]]:
    """Each kind of warning, on how many photos, and its lines; several questions' same is one."""
    kinds: dict[str, dict[str, int]] = defaultdict(dict)
    for card in data.cards:
        for warning in card.warnings:
            line = f"<li><b>{escape(card.name)}</b> {escape(warning)}</li>"
            kinds[kind(warning)][line] = card.photo
    return [(title, len(set(lines.values())), list(lines)) for title, lines in kinds.items()]


def _more(count: int) -> str:
    return f"<p>… {count - SHOWN:,} more in the store.</p>" if count > SHOWN else ""


def settings(data: Gathered) -> str:
    """All that is needed to do it again."""
    commands: dict[str, None] = {}
    for run in data.runs:
        for number in run.questions:
            if number in data.questions:
                again = command(run.arguments, data.questions[number])
                commands |= {again: None} if again else {}
    lines = "\n".join(_command(one) for one in commands)
    parts = [f'<h3>Commands</h3><pre class="command">{lines}</pre>' if commands else ""]
    parts.append("<h3>Questions</h3>")
    parts += [_details(name_of(question), question) for question in data.questions.values()]
    parts.append("<h3>Methods</h3>")
    parts += [
        _details(f"{one.label}, {one.size}", one.row.settings)
        for number in data.questions
        for one in data.of(number)
    ]
    parts.append("<h3>Runs</h3>")
    parts += [
        _details(
            f"Run {run.number}, {run.started.replace('T', ' ')}",
            {"arguments": run.arguments, "environment": run.environment},
        )
        for run in data.runs
    ]
    parts.append(
        f"<p>Made by igos {escape(igos.__version__)} from <code>{escape(data.store.name)}</code>. "
        "The figures are those of <code>igos table</code>.</p>"
    )
    return "".join(parts)


def _command(line: str) -> str:
    """Lines break between options."""
    return " ".join(f"<span>{escape(part)}</span>" for part in re.split(r" (?=--)", line))


def _details(title: str, values: dict[str, Any]) -> str:
    content = json.dumps(values, indent=2, ensure_ascii=False, sort_keys=True)
    return (
        f"<details><summary>{escape(title)}</summary><pre tabindex=0>{escape(content)}</pre>"
        "</details>"
    )
