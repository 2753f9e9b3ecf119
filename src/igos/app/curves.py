"""Both curves as a drawing for the page (SVG): made in a millisecond, in the page's colours."""

from torch import Tensor

from igos.explanation import Explanation
from igos.metrics.curves import Curve

DELETION, INSERTION = "deletion", "insertion"
WIDTH, HEIGHT = 640, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 12, 38  # margins


def curve_of(explanation: Explanation, kind: str) -> Curve:
    return explanation.deletion if kind == DELETION else explanation.insertion


def nearest(curve: Curve, fraction: float) -> int:
    """The curve's point nearest to a fraction: there the score was measured.

    >>> import torch
    >>> nearest(Curve(torch.tensor([0.0, 0.5, 1.0]), torch.zeros(3)), 0.7)
    1
    """
    return int((curve.fraction - fraction).abs().argmin())


def draw(explanation: Explanation, kind: str = DELETION, at: int | None = None) -> str:
    """Both curves and, at their point `at`, a mark on each; that of `kind` is the larger."""
    curves = {name: curve_of(explanation, name) for name in (DELETION, INSERTION)}
    top = max(1.0, *(float(curve.score.max()) for curve in curves.values()))
    drawn = [_axes(top), *(_line(curve, name, top) for name, curve in curves.items())]
    if at is not None:
        x = _x(float(curves[kind].fraction[at]))
        drawn.append(f'<line class="at" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        drawn += [
            f'<circle class="{name}" cx="{x}" cy="{_y(float(curve.score[at]), top)}" '
            f'r="{7 if name == kind else 4}"/>'
            for name, curve in curves.items()
        ]
    return (
        f'<svg class="igos-curves" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{describe(explanation, kind, at)}">{"".join(drawn)}</svg>'
    )


def describe(explanation: Explanation, kind: str = DELETION, at: int | None = None) -> str:
    """The drawing in words, for those who cannot see it."""
    areas = (
        f"Deletion curve, area {explanation.deletion.auc:.3f}; insertion curve, area "
        f"{explanation.insertion.auc:.3f}"
    )
    if at is None:
        return areas
    curve = curve_of(explanation, kind)
    return (
        f"{areas}; at {float(curve.fraction[at]):.0%} {kind} the probability is "
        f"{float(curve.score[at]):.3f}"
    )


def _line(curve: Curve, kind: str, top: float) -> str:
    points = " ".join(
        f"{_x(x)},{_y(y, top)}" for x, y in zip(_list(curve.fraction), _list(curve.score), strict=True)
    )
    floor = HEIGHT - BOTTOM
    area = f"{LEFT},{floor} {points} {WIDTH - RIGHT},{floor}"
    return (
        f'<polygon class="{kind}" points="{area}"/><polyline class="{kind}" points="{points}"/>'
    )


def _axes(top: float) -> str:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = _x(share), _y(share * top, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{share * top:.2g}</text>')
        parts.append(
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{share:.0%}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">pixels changed</text>')
    return "".join(parts)


def _list(values: Tensor) -> list[float]:
    return [float(value) for value in values]


def _x(fraction: float) -> float:
    return round(LEFT + fraction * (WIDTH - LEFT - RIGHT), 1)


def _y(score: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - score / top * (HEIGHT - TOP - BOTTOM), 1)
