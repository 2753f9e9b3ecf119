"""Table 5: how far the objective falls, and what that is worth."""

import json
from collections import defaultdict

import numpy as np

from igos.experiments.bench import Bench, Kept, Report
from igos.files import png
from igos.methods.base import Maker
from igos.study.formats import markdown

SIDE = 28
LAMBDAS = ((0.01, 0.2), (0.1, 2.0), (1.0, 20.0))
# Total loss, deletion, insertion of I-GOS and of Mask for each λ; VGG19.
VGG19 = {
    "Total loss": (0.2241, 0.3349, 0.3739, 0.4857, 0.6098, 0.6794),
    "Deletion": (0.0825, 0.1056, 0.0861, 0.1178, 0.0899, 0.1340),
    "Insertion": (0.5418, 0.5335, 0.5624, 0.5307, 0.5701, 0.5207),
}


def convergence(bench: Bench) -> Report:
    """The paper's Table 5 and, beyond it, F_c after each iteration."""
    methods: dict[str, Maker] = {}
    for lambda1, lambda2 in LAMBDAS:
        for name in ("igos-paper", "mask-paper"):
            title = f"{name} λ {lambda1:g}/{lambda2:g}"
            methods[title] = bench.maker(name, lambda1=lambda1, lambda2=lambda2)
    kept = bench.study("convergence", methods, [SIDE])
    losses = mean_losses(kept)
    rows = {row.method: row for row in kept.rows(against=None)}
    columns = [title for title in methods if title in rows]
    ours = [
        ["Total loss", *(f"{losses[title][-1]:.4f}" for title in columns)],
        ["Deletion", *(f"{rows[title].deletion:.4f}" for title in columns)],
        ["Insertion", *(f"{rows[title].insertion:.4f}" for title in columns)],
    ]
    theirs = [[name, *(f"{value:.4f}" for value in values)] for name, values in VGG19.items()]
    photos = next(iter(rows.values())).photos if rows else 0
    text = "\n\n".join(
        [
            "# Convergence",
            f"{bench.classifier.name}, {photos} photos, {SIDE}×{SIDE}, the last mask:",
            markdown(["", *columns], ours),
            "Published (Table 5, VGG19, the same columns):",
            markdown(["", *methods], theirs),
        ]
    )
    from igos.plot import losses as draw

    return Report("convergence", text, {"losses": png(draw(losses))})


def mean_losses(kept: Kept) -> dict[str, list[float]]:
    """For each method F_c after each iteration, over the photos; who has stopped keeps his last."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for method, losses in kept.select("c.method, r.losses"):
        if losses is not None:
            found[method].append(json.loads(losses))
    means = {}
    for method, lists in found.items():
        longest = max(map(len, lists))
        full = [[*one, *[one[-1]] * (longest - len(one))] for one in lists]
        means[method] = np.mean(full, axis=0).tolist()
    return means
