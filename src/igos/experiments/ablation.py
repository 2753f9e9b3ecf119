"""Table 4: what the TV term, the noise and the line search are good for."""

from collections.abc import Sequence
from dataclasses import replace

from igos.experiments.bench import Bench, Pair, Report, published
from igos.methods.base import Maker, Method
from igos.methods.igos import IGOS
from igos.study.formats import FORMATS

SIDES = (224, 28)
VGG19: dict[str, Sequence[Pair | None]] = {
    "Ours": [(0.0336, 0.5246), (0.0899, 0.5701)],
    "No TV term": [(0.0308, 0.3712), (0.0841, 0.5181)],
    "No noise": [(0.0559, 0.4194), (0.0872, 0.5634)],
    "Fixed step size": [(0.0393, 0.5024), (0.0906, 0.5403)],
}


def ablation(bench: Bench) -> Report:
    """The paper's Table 4, with the paper's settings and with ours."""
    methods: dict[str, Maker] = {}
    for name in ("igos-paper", "igos"):
        methods |= {
            name: bench.maker(name),
            f"{name}, no TV term": bench.maker(name, lambda2=0.0),
            f"{name}, no noise": bench.maker(name, noise=0.0),
            f"{name}, fixed step 1": _fixed_step(bench.maker(name)),
        }
    kept = bench.study("ablation", methods, SIDES)
    tables = [
        FORMATS["md"]([row for row in kept.rows(against=name) if _is_of(row.method, name)])
        for name in ("igos-paper", "igos")
    ]
    title = "Table 4, VGG19"
    return Report(
        "ablation",
        "\n\n".join(
            [
                "# Ablation",
                "## The paper's settings",
                tables[0],
                published(title, SIDES, VGG19),
                "## Our settings",
                tables[1],
            ]
        ),
    )


def _fixed_step(maker: Maker) -> Maker:
    """A line search that has but one step, 1, in its own units: those of ours fit any mask."""

    def make(resolution: tuple[int, int] | None) -> Method:
        method = maker(resolution)
        assert isinstance(method, IGOS)
        return replace(method, step_rule=replace(method.step_rule, alpha_upper=1, alpha_lower=1))

    return make


def _is_of(method: str, name: str) -> bool:
    return method.partition(",")[0] == name
