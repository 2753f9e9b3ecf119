"""Pictures; the only import of matplotlib. Nothing here touches pyplot's global state."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from igos.explanation import Explanation, warmth
from igos.image import up
from igos.metrics.curves import Curve

DELETION, INSERTION = "#c8201f", "#1f5fb4"  # the paper's red and blue
HEAT = "inferno"  # perceptually uniform, readable in grey and by colour-blind people


def panel(explanation: Explanation, *, ratio: float = 0.2, opacity: float = 1.0) -> Figure:
    """The paper's Fig. 1 and 3: photo, heatmap, deletion and insertion image, both curves."""
    return _rows([explanation], ratio, explanation.warnings, opacity)


def comparison(explanations: Sequence[Explanation], *, ratio: float = 0.2) -> Figure:
    """The paper's Fig. 3 to 5: a panel a method, one below the other."""
    doubts = dict.fromkeys(text for one in explanations for text in one.warnings)
    return _rows(explanations, ratio, list(doubts))


def _rows(
    explanations: Sequence[Explanation],
    ratio: float,
    warnings: Sequence[str],
    opacity: float = 1.0,
) -> Figure:
    notes = [f"Warning: {text}" for text in warnings]
    height = 3.5 * len(explanations) + 0.25 * len(notes)
    figure = Figure(figsize=(16, height), layout="constrained")
    grid = figure.subplots(len(explanations), 5, width_ratios=(1, 1, 1, 1, 1.3), squeeze=False)
    for axes, explanation in zip(grid, explanations, strict=True):
        _row(axes, explanation, ratio, opacity)
    if notes:
        figure.suptitle("\n".join(notes), fontsize=9, color=DELETION, parse_math=False)
    return figure


def _row(axes: Sequence[Axes], explanation: Explanation, ratio: float, opacity: float) -> None:
    image = explanation.normalisation.pixels(explanation.image).clamp(0, 1)
    size = "{}×{}".format(*explanation.resolution)
    _show(axes[0], image, _headline(explanation))
    heat = opacity * overlay(image, explanation.heatmap) + (1 - opacity) * image
    _show(axes[1], heat, f"{explanation.method}, {size}")
    for axis, picture, curve, what in (
        (axes[2], explanation.deleted(ratio), explanation.deletion, "deleted"),
        (axes[3], explanation.inserted(ratio), explanation.insertion, "inserted"),
    ):
        _show(axis, picture, f"{ratio:.0%} {what}: {score_at(curve, ratio):.3f}")
    _draw_curves(axes[4], explanation, ratio)


def overlay(image: Tensor, heatmap: Tensor) -> Tensor:
    """The heatmap over the photo in dim grey, (3, H, W).

    The hotter, the less the photo shows through, so that what is not marked can be recognised.
    """
    large = up(heatmap[None], (image.shape[-2], image.shape[-1]))
    heat = image.new_tensor(warmth(large.numpy()))  # (1, H, W)
    colours = heat.new_tensor(colormaps[HEAT](heat[0].numpy())[..., :3]).permute(2, 0, 1)
    grey = 0.65 * image.mean(dim=0, keepdim=True)
    opacity = 0.9 * heat.sqrt()
    return opacity * colours + (1 - opacity) * grey


def colours() -> list[str]:
    """The 256 colours of a heatmap from cold to hot, as RRGGBB."""
    return [bytes(colour[:3]).hex() for colour in colormaps[HEAT](np.arange(256), bytes=True)]


def score_at(curve: Curve, fraction: float) -> float:
    """The score at a fraction of changed pixels, between the curve's points by a straight line."""
    return float(np.interp(fraction, curve.fraction.numpy(), curve.score.numpy()))


def _headline(explanation: Explanation) -> str:
    if explanation.probability is None:
        return f"score {float(explanation.deletion.score[0]):.3f}"
    return f"{explanation.class_name.split(',')[0]}: {explanation.probability:.3f}"


def _show(axis: Axes, image: Tensor, title: str) -> None:
    axis.imshow(image.permute(1, 2, 0).numpy())
    axis.set_title(title, fontsize=11, parse_math=False)
    axis.set_axis_off()


def _draw_curves(axis: Axes, explanation: Explanation, ratio: float) -> None:
    sides: tuple[tuple[Curve, str, str, Literal["left", "right"]], ...] = (
        (explanation.deletion, DELETION, "deletion", "left"),
        (explanation.insertion, INSERTION, "insertion", "right"),
    )
    for curve, colour, name, side in sides:
        axis.plot(curve.fraction, curve.score, color=colour, linewidth=1.8)
        axis.fill_between(curve.fraction, curve.score, color=colour, alpha=0.1, linewidth=0)
        axis.set_title(
            f"{name} {curve.auc:.3f}", loc=side, color=colour, fontsize=11, parse_math=False
        )
    axis.axvline(ratio, color="grey", linewidth=0.8, linestyle=":")
    axis.set(xlim=(0, 1), xlabel="fraction of pixels", ylabel=explanation.settings["score"])
    if explanation.settings["score"] == "probability":
        axis.set_ylim(0, 1.02)
    axis.spines[["top", "right"]].set_visible(False)


def losses(curves: Mapping[str, Sequence[float]]) -> Figure:
    """F_c after each iteration, a line a method; few iterations or many, so on a log scale."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axis = figure.subplots()
    for name, values in curves.items():
        axis.plot(range(1, len(values) + 1), values, label=name, linewidth=1.6)
    axis.set(xscale="log", xlabel="iteration", ylabel="F, mean over photos")
    axis.spines[["top", "right"]].set_visible(False)
    if curves:
        axis.legend(frameon=False, fontsize=9)
    return figure
