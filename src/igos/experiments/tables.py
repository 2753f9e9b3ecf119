"""Tables 1 and 2: deletion and insertion, methods × resolutions."""

from collections.abc import Sequence

from igos.experiments.bench import Bench, Pair, Report, published
from igos.study.formats import FORMATS

OURS = ("igos", "igos-two-sided", "igos++", "igos-paper", "mask", "mask-paper")
THEIRS = ("gradcam", "rise", "integrated-gradients")

VGG19: dict[str, Sequence[Pair | None]] = {
    "Excitation BP": [(0.2037, 0.4728), (0.2053, 0.4966), (0.2202, 0.5256), (0.2328, 0.5452)],
    "Mask": [(0.0482, 0.4158), (0.0728, 0.4377), (0.1056, 0.5335), (0.1753, 0.5647)],
    "GradCam": [None, None, None, (0.1527, 0.5938)],
    "RISE": [(0.1082, 0.5139), None, None, None],
    "Integrated Gradients": [(0.0663, 0.2551), None, None, None],
    "I-GOS": [(0.0336, 0.5246), (0.0609, 0.5153), (0.0899, 0.5701), (0.1213, 0.6387)],
}
RESNET50: dict[str, Sequence[Pair | None]] = {
    "Mask": [
        (0.0468, 0.4962),
        (0.0746, 0.5090),
        (0.1151, 0.5559),
        (0.1557, 0.5959),
        (0.2259, 0.6003),
    ],
    "GradCam": [None, None, None, None, (0.1675, 0.6521)],
    "RISE": [(0.1196, 0.5637), None, None, None, None],
    "Integrated Gradients": [(0.0907, 0.2921), None, None, None, None],
    "I-GOS": [
        (0.0420, 0.5846),
        (0.0704, 0.5943),
        (0.1059, 0.5986),
        (0.1387, 0.6387),
        (0.1607, 0.6632),
    ],
}


def table1(bench: Bench) -> Report:
    """The paper's Table 1, with Excitation BP where the model conserves probability."""
    methods = (*OURS, *THEIRS, "excitation-bp")
    title = "Table 1, VGG19, 5,000 photos of ImageNet's validation set"
    sides = (224, 112, 28, 14)
    return _table(bench, "table1", methods, sides, published(title, sides, VGG19))


def table2(bench: Bench) -> Report:
    """The paper's Table 2, down to 7×7."""
    title = "Table 2, ResNet50, 5,000 photos of ImageNet's validation set"
    sides = (224, 112, 28, 14, 7)
    return _table(bench, "table2", (*OURS, *THEIRS), sides, published(title, sides, RESNET50))


def _table(
    bench: Bench, name: str, methods: Sequence[str], sides: Sequence[int], theirs: str
) -> Report:
    # One store for both: what one of them has done, the other need not do again.
    kept = bench.study("tables", {method: bench.maker(method) for method in methods}, sides)
    return Report(name, f"# {name}\n\n{FORMATS['md'](kept.rows())}\n\n{theirs}")
