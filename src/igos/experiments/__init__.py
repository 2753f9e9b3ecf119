"""The paper's tables and figures, each one function: `igos experiment ablation --photos PHOTOS`.

A new one costs its file and a line in `EXPERIMENTS`.
"""

from collections.abc import Callable

from igos.experiments.ablation import ablation
from igos.experiments.adversarial import adversarial
from igos.experiments.bench import Bench, Report
from igos.experiments.convergence import convergence
from igos.experiments.failure import failure
from igos.experiments.gallery import gallery
from igos.experiments.pointing import pointing
from igos.experiments.runtime import runtime
from igos.experiments.tables import table1, table2

EXPERIMENTS: dict[str, Callable[[Bench], Report]] = {
    "table1": table1,
    "table2": table2,
    "runtime": runtime,
    "ablation": ablation,
    "convergence": convergence,
    "pointing": pointing,
    "adversarial": adversarial,
    "failure": failure,
    "gallery": gallery,
}
