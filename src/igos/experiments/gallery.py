"""Figs. 1, 3 to 5 and 7 to 14: photos explained by several methods, side by side."""

from dataclasses import replace
from pathlib import Path

from igos.errors import IgosError
from igos.experiments.bench import Bench, Report
from igos.explainer import explain
from igos.explanation import Explanation
from igos.methods.base import Native, UnsuitedError

METHODS = ("igos", "igos-two-sided", "mask", "gradcam", "rise", "integrated-gradients")
SIDES = (28, 224)  # of the methods that have no resolution of their own
FEW = 4  # photos, where no number is given


def gallery(bench: Bench) -> Report:
    """One picture a photo."""
    from igos.plot import comparison

    figures, lines = {}, []
    for photo in bench.photos[: bench.limit or FEW]:
        try:
            explanations = _explanations(bench, photo.path)
        except IgosError as error:
            lines.append(f"- {photo.name}: {error}")
            continue
        title = photo.name.replace("/", "_").replace("\\", "_")
        figures[title] = comparison(explanations)
        first = explanations[0]
        lines.append(f"- {photo.name}: {first.class_name}, {first.probability or 0:.3f}")
    text = f"# Gallery\n\n{bench.classifier.name}, the predicted class:\n\n" + "\n".join(lines)
    return Report("gallery", text, figures)


def _explanations(bench: Bench, photo: Path) -> list[Explanation]:
    found = []
    for name in METHODS:
        maker = bench.maker(name)
        native = isinstance(maker(None), Native)
        for side in [None] if native else bench.at_most(SIDES):
            try:
                method = maker(None if side is None else (side, side))
                explanation = explain(photo, model=bench.classifier, method=method)
            except UnsuitedError:
                continue  # the picture has no row for it
            found.append(replace(explanation, method=name))
    return found
