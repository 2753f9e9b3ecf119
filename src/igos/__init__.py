"""igos: why an image network said what it said, and how to check the answer.

    import igos
    explanation = igos.explain("dog.jpg", resolution=28)
    explanation.save("out")

The names below are loaded when first used, so that `igos --help` need not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from igos.descent import Armijo, Step, descend
    from igos.errors import IgosError
    from igos.explainer import explain
    from igos.explanation import Explanation
    from igos.image import Normalisation, blur
    from igos.methods.igos import IGOS
    from igos.metrics.curves import PAPER_CURVES, RISE_CURVES, Curve, deletion, insertion
    from igos.models import load
    from igos.models.classifier import Classifier
    from igos.problem import Objective, Problem, logit, probability

_HOME = {
    "igos.descent": ("Armijo", "Step", "descend"),
    "igos.errors": ("IgosError",),
    "igos.explainer": ("explain",),
    "igos.explanation": ("Explanation",),
    "igos.image": ("Normalisation", "blur"),
    "igos.methods.igos": ("IGOS",),
    "igos.metrics.curves": ("PAPER_CURVES", "RISE_CURVES", "Curve", "deletion", "insertion"),
    "igos.models": ("load",),
    "igos.models.classifier": ("Classifier",),
    "igos.problem": ("Objective", "Problem", "logit", "probability"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "IGOS",
    "PAPER_CURVES",
    "RISE_CURVES",
    "Armijo",
    "Classifier",
    "Curve",
    "Explanation",
    "IgosError",
    "Normalisation",
    "Objective",
    "Problem",
    "Step",
    "blur",
    "deletion",
    "descend",
    "explain",
    "insertion",
    "load",
    "logit",
    "probability",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'igos' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
