"""Both curves as a drawing for the page (SVG): made in a millisecond, in the page's colours."""

from dataclasses import dataclass

from igos.explanation import Explanation
from igos.metrics.curves import Curve

DELETION, INSERTION = "deletion", "insertion"


@dataclass(frozen=True)
class Area:
    """The drawing's size, its margins, and at which shares it has a line and a number."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    ticks: tuple[float, ...]

    def x(self, fraction: float) -> float:
        return round(self.left + fraction * (self.width - self.left - self.right), 1)

    def y(self, share: float) -> float:
        return round(self.floor - share * (self.floor - self.top), 1)

    @property
    def floor(self) -> int:
        return self.height - self.bottom


WIDE = Area(640, 240, left=52, right=26, top=12, bottom=42, ticks=(0, 0.25, 0.5, 0.75, 1))
SMALL = Area(300, 130, left=34, right=24, top=8, bottom=24, ticks=(0, 0.5, 1))


def curve_of(explanation: Explanation, kind: str) -> Curve:
    return explanation.deletion if kind == DELETION else explanation.insertion


def nearest(curve: Curve, fraction: float) -> int:
    """The curve's point nearest to a fraction: there the score was measured.

    >>> import torch
    >>> nearest(Curve(torch.tensor([0.0, 0.5, 1.0]), torch.zeros(3)), 0.7)
    1
    """
    return int((curve.fraction - fraction).abs().argmin())


def draw(
    explanation: Explanation, kind: str = DELETION, at: int | None = None, area: Area = WIDE
) -> str:
    """Both curves and, at their point `at`, a mark on each; that of `kind` is the larger."""
    curves = {name: curve_of(explanation, name) for name in (DELETION, INSERTION)}
    drawn = [_axes(area), *(_line(curve, name, area) for name, curve in curves.items())]
    if at is not None:
        x = area.x(float(curves[kind].fraction[at]))
        drawn.append(f'<line class="at" x1="{x}" x2="{x}" y1="{area.top}" y2="{area.floor}"/>')
        drawn += [
            f'<circle class="{name}" cx="{x}" cy="{area.y(float(curve.score[at]))}" '
            f'r="{7 if name == kind else 4}"/>'
            for name, curve in curves.items()
        ]
    return (
        f'<svg class="igos-curves" viewBox="0 0 {area.width} {area.height}" role="img" '
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


def _line(curve: Curve, kind: str, area: Area) -> str:
    places = zip(curve.fraction.tolist(), curve.score.tolist(), strict=True)
    points = " ".join(f"{area.x(fraction)},{area.y(score)}" for fraction, score in places)
    ground = f"{area.x(0)},{area.floor} {points} {area.x(1)},{area.floor}"
    return (
        f'<polygon class="{kind}" points="{ground}"/><polyline class="{kind}" points="{points}"/>'
    )


def _axes(area: Area) -> str:
    parts = []
    for share in area.ticks:
        x, y = area.x(share), area.y(share)
        parts.append(f'<line class="grid" x1="{area.left}" x2="{area.x(1)}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{area.left - 8}" y="{y + 4}" text-anchor="end">{share:g}</text>')
        parts.append(f'<text x="{x}" y="{area.floor + 18}" text-anchor="middle">{share:.0%}</text>')
    if area.bottom >= WIDE.bottom:
        middle = area.x(0.5)
        words = "pixels changed"
        parts.append(
            f'<text x="{middle}" y="{area.height - 4}" text-anchor="middle">{words}</text>'
        )
    return "".join(parts)
