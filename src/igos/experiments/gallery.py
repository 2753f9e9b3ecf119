"""Figs. 1, 3 to 5 and 7 to 14: photos explained by several methods, side by side."""

from dataclasses import replace

from igos.experiments.bench import Bench, Report
from igos.experiments.pictures import explanations
from igos.files import png

METHODS = ("igos", "igos-two-sided", "mask", "gradcam", "rise", "integrated-gradients")
SIDES = (28, 224)  # of the methods that have no resolution of their own
FEW = 4  # photos, where no number is given


def gallery(bench: Bench) -> Report:
    """One picture a photo, of the predicted class."""
    from igos.plot import comparison

    own = replace(bench, target="predicted", min_probability=0.0, limit=bench.limit or FEW)
    methods = {name: bench.maker(name) for name in METHODS}
    kept = own.study("gallery", methods, SIDES, heatmaps=True)
    figures, lines = {}, []
    for name, found in explanations(own, kept, bench.photos):
        figures[name.replace("/", "_").replace("\\", "_")] = png(comparison(found))
        lines.append(f"- {name}: {found[0].class_name}, {found[0].probability:.3f}")
    text = f"# Gallery\n\n{bench.classifier.name}, the predicted class:\n\n" + "\n".join(lines)
    return Report("gallery", text, figures)
