"""Drawings of a report, as SVG that follows the page's colours."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from igos.report.gather import METRICS, Configuration
from igos.study.table import Interval, Values

COLOURS = 7  # of report.css, .c0 to .c6
DASHES = 5  # of report.css, .d0 to .d4: with the colours, a look for 35 methods
BINS = 40  # of a distribution

WIDTH, HEIGHT = 360, 236
LEFT, RIGHT, TOP, BOTTOM = 34, 16, 10, 34  # margins of the curves
ROW, STRIP = 50, 24  # of the distributions: a method's height, and that of its area in it
INTERVAL = 96  # width of a drawn confidence interval


def look(at: int) -> str:
    """The classes of the method with that number."""
    return f"c{at % COLOURS} d{at % DASHES}"


def key(at: int) -> str:
    """A line for a legend."""
    return (
        f'<svg class="key {look(at)}" viewBox="0 0 28 8" aria-hidden="true">'
        '<path class="line" d="M1 4H27"/></svg>'
    )


def curves(
    configurations: Sequence[Configuration], looks: dict[str, int], *, metric: str, score: str
) -> str:
    """The mean curves of all methods at one resolution."""
    drawn = [(one, getattr(one, f"{metric}_curve")) for one in configurations]
    low, high = bounds(np.concatenate([curve for _, curve in drawn]), score)
    ticks = _ticks(low, high)

    def x(fraction: float) -> float:
        return LEFT + fraction * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in ticks:
        parts.append(f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 6, y(tick) + 3.5, f"{tick:g}", "end"))
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(_text(x(share), HEIGHT - BOTTOM + 15, f"{share:.0%}", "middle"))
    parts.append(_text(x(0.5), HEIGHT - 4, f"pixels {CHANGED[metric]}", "middle"))
    for one, curve in drawn:
        points = "L".join(
            f"{x(f):.1f} {y(v):.1f}" for f, v in zip(one.fraction, curve, strict=True)
        )
        parts.append(
            f'<path class="line {look(looks[one.label])}" d="M{points}">'
            f"<title>{escape(one.label)}</title></path>"
        )
    told = ", ".join(f"{one.label} {getattr(one.row, metric):.3f}" for one in configurations)
    label = f"Mean {metric} curves at {configurations[0].size}. Mean areas: {told}."
    return _svg(HEIGHT, label, parts)


CHANGED = {"deletion": "deleted", "insertion": "inserted"}


def distributions(
    configurations: Sequence[Configuration], looks: dict[str, int], *, metric: str, score: str
) -> str:
    """How a metric spreads over photos, a strip a method: its histogram, quartiles and median."""
    values = [one.values(metric) for one in configurations]
    low, high = bounds(np.concatenate(values), score)
    if score == "probability" and metric == list(METRICS)[-1]:
        low = -1.0
    counts = [np.histogram(some, BINS, (low, high))[0] / len(some) for some in values]
    most = max(float(count.max()) for count in counts)
    height = ROW * len(values) + 26
    inner = WIDTH - 2 * RIGHT

    def x(value: float) -> float:
        return RIGHT + (value - low) / (high - low) * inner

    parts = []
    for tick in _ticks(low, high):
        parts.append(f'<path class="grid" d="M{x(tick):.1f} {TOP}V{height - 22}"/>')
        parts.append(_text(x(tick), height - 8, f"{tick:g}".replace("-", "−"), "middle"))
    for at, (one, some, count) in enumerate(zip(configurations, values, counts, strict=True)):
        base = ROW * (at + 1) - 4
        quarter, middle, three = np.quantile(some, [0.25, 0.5, 0.75])
        steps = "".join(f"V{base - STRIP * share / most:.1f}h{inner / BINS:.2f}" for share in count)
        parts += [
            f'<g class="{look(looks[one.label])}">',
            f'<path class="area" d="M{RIGHT} {base}{steps}V{base}z"/>',
            f'<path class="box" d="M{x(quarter):.1f} {base + 3}H{x(three):.1f}"/>',
            f'<path class="median" d="M{x(middle):.1f} {base - 4}V{base + 6}"/></g>',
            _text(RIGHT, base - STRIP - 5, one.label, "start", "name"),
            _text(WIDTH - RIGHT, base - STRIP - 5, _signed(float(middle)), "end"),
        ]
    told = ", ".join(
        f"{one.label} {np.median(some):.3f}"
        for one, some in zip(configurations, values, strict=True)
    )
    label = f"{metric} over photos at {configurations[0].size}. Medians: {told}."
    return _svg(height, label.capitalize(), parts)


def interval(mean: float, ends: Interval | None, scale: tuple[float, float]) -> str:
    """A mean and its confidence interval; the table has the same in figures."""
    low, high = scale

    def x(value: float) -> float:
        return 4 + (value - low) / (high - low) * (INTERVAL - 8)

    bar = "" if ends is None else f'<path class="ci" d="M{x(ends[0]):.1f} 6H{x(ends[1]):.1f}"/>'
    return (
        f'<svg class="interval" viewBox="0 0 {INTERVAL} 12" aria-hidden="true">'
        f'<path class="grid" d="M4 6H{INTERVAL - 4}"/>{bar}'
        f'<circle class="mean" cx="{x(mean):.1f}" cy="6" r="2.6"/></svg>'
    )


def bounds(values: Values, score: str) -> tuple[float, float]:
    """Of an axis: probabilities lie between 0 and 1, other scores anywhere."""
    if score == "probability":
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers between the bounds."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * max(n for n in (1, 2, 2.5, 5) if n * power <= rough * (1 + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(at * step, 10) for at in range(first, last + 1)]


def _signed(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def _text(x: float, y: float, content: str, anchor: str, look: str = "") -> str:
    return (
        f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(content)}</text>"
    )


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )
