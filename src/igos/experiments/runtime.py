"""Table 3: seconds a heatmap."""

import re
import statistics

from igos.answer import precision_of
from igos.experiments.bench import Bench, Kept, Report
from igos.models.classifier import Classifier
from igos.study.formats import markdown
from igos.study.plan import environment

SIDES = (224, 112, 28, 14, 7)
METHODS = (
    "mask-paper",
    "gradcam",
    "rise",
    "integrated-gradients",
    "igos-paper",
    "igos",
    "igos-two-sided",
)
FEW = 4  # photos, one at a time: enough for a median
HEAD = "seconds a heatmap"
RESNET50 = {
    "Mask": (17.03, 14.61, 14.66, 14.35, 14.24),
    "GradCam": (None, None, None, None, 1.0),
    "RISE": (61.77, None, None, None, None),
    "Integrated Gradients": (1.0, None, None, None, None),
    "I-GOS": (6.07, 5.73, 5.70, 5.63, 5.62),
}


def runtime(bench: Bench) -> Report:
    """The paper's Table 3: one photo at a time, as the paper did, and as many as the device takes.

    A device warms up with its first batch: take at least two. A store is for one device and way of
    running: seconds of another are not mixed in.
    """
    methods = {name: bench.maker(name) for name in METHODS}
    where = _where(bench.classifier)
    few = min(FEW, bench.limit or FEW)
    single = bench.study(f"{where}.batch-1", methods, SIDES, batch=1, limit=few)
    batched = bench.study(f"{where}.batch-{bench.batch or 'auto'}", methods, SIDES)
    theirs = [
        [name, *("–" if s is None else f"< {s:g}" if s == 1 else f"{s:.2f}" for s in values)]
        for name, values in RESNET50.items()
    ]
    text = "\n\n".join(
        [
            f"# Runtime\n\n{bench.classifier.name}, one photo at a time:",
            _seconds(single),
            "As many photos at once as the device takes:"
            if bench.batch is None
            else f"{bench.batch} photos at once:",
            _seconds(batched),
            "Published (Table 3, ResNet50, 5,000 photos, one at a time):",
            markdown([HEAD, *(f"{side}×{side}" for side in SIDES)], theirs),
        ]
    )
    return Report("runtime", text)


def _where(classifier: Classifier) -> str:
    found = environment(classifier)
    device = f"cpu-{found['threads']}" if found["device"] == "cpu" else found["device"]
    way = [precision_of(classifier), *(["compiled"] if found["compiled"] == "yes" else [])]
    return ".".join(["runtime", re.sub(r"\W+", "-", device), *way])


def _seconds(kept: Kept) -> str:
    """Methods × resolutions, the lower median over batches: of two the one that was warm."""
    found: dict[str, dict[tuple[int, int], set[float]]] = {}
    for method, *size, seconds in kept.select("c.method, c.height, c.width, r.seconds"):
        # The photos of a batch have the same seconds, to the last digit: they count once.
        found.setdefault(method, {}).setdefault((size[0], size[1]), set()).add(seconds)
    sizes = sorted({size for by_size in found.values() for size in by_size}, reverse=True)
    lines = [
        [
            name,
            *(
                f"{statistics.median_low(found[name][size]):#.3g}" if size in found[name] else "–"
                for size in sizes
            ),
        ]
        for name in METHODS
        if name in found
    ]
    return markdown([HEAD, *(f"{height}×{width}" for height, width in sizes)], lines)
