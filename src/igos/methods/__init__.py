"""The explanation methods by name. A new one costs its file and a line in `METHODS`."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, get_args, get_type_hints

from igos.errors import IgosError, unknown
from igos.methods.base import Maker, Method
from igos.methods.control import Random
from igos.methods.excitation import ContrastiveExcitationBP, ExcitationBP
from igos.methods.gradcam import GradCAM
from igos.methods.gradients import (
    Deconvnet,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    Occlusion,
    Saliency,
    SmoothGrad,
)
from igos.methods.igos import IGOS
from igos.methods.mask import Mask
from igos.methods.plus_plus import IGOSPlusPlus
from igos.methods.rise import RISE

M = TypeVar("M")


METHODS: dict[str, Callable[..., Method]] = {
    "igos": IGOS,
    "igos-two-sided": IGOS.two_sided,
    "igos-paper": IGOS.paper,
    "igos++": IGOSPlusPlus,
    "mask": Mask,
    "mask-paper": Mask.paper,
    "rise": RISE,
    "gradcam": GradCAM,
    "integrated-gradients": IntegratedGradients,
    "saliency": Saliency,
    "input-x-gradient": InputXGradient,
    "guided-backprop": GuidedBackprop,
    "deconvnet": Deconvnet,
    "occlusion": Occlusion,
    "smoothgrad": SmoothGrad,
    "excitation-bp": ExcitationBP,
    "mwp": ExcitationBP,  # the paper's name for the map that excitation backprop computes
    "contrastive-excitation-bp": ContrastiveExcitationBP,
    "random": Random,
}


def make(
    name: str,
    *,
    resolution: int | tuple[int, int] | None = None,
    seed: int = 0,
    settings: Mapping[str, str | float] | None = None,
) -> Method:
    """The method of that name; `settings` are numbers or texts, such as {"lambda1": "0.5"}.

    A method that draws nothing has no use for the seed, one with a resolution of its own none for
    the resolution (`check_native` refuses another one where the model is known).
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS, remedy="see: igos methods")
    accepted = inspect.signature(METHODS[name]).parameters
    given = {"seed": seed} if resolution is None else {"seed": seed, "resolution": resolution}
    method = METHODS[name](**{key: value for key, value in given.items() if key in accepted})
    return adjust(method, settings or {})


def maker(name: str, *, seed: int = 0, settings: Mapping[str, str | float] | None = None) -> Maker:
    """`make` with all but the resolution."""
    return lambda resolution: make(name, resolution=resolution, seed=seed, settings=settings)


def adjust(method: M, settings: Mapping[str, str | float]) -> M:
    """A copy with some settings changed; "step_rule.eta" reaches into a nested one."""
    assert is_dataclass(method)
    assert not isinstance(method, type)
    hints = get_type_hints(type(method))
    known = [field.name for field in fields(method)]
    changed: Any = method
    for key, value in settings.items():
        name, _, inner = key.partition(".")
        if name not in known:
            remedy = f"{type(method).__name__} has {', '.join(known)}"
            raise unknown("setting", name, known, remedy=remedy)
        nested = getattr(changed, name)
        if is_dataclass(nested) != bool(inner):
            wanted = f"{name}=VALUE" if inner else f"{name}.SETTING=VALUE"
            raise IgosError(f"setting {key!r}: give {wanted}")
        new = adjust(nested, {inner: value}) if inner else _parse(key, str(value), hints[name])
        changed = replace(changed, **{name: new})
    return changed  # type: ignore[no-any-return]


def _parse(key: str, text: str, hint: Any) -> int | float | str:
    wanted = get_args(hint) or (hint,)
    if str in wanted:
        return text
    if bool in wanted:
        if text.lower() not in ("true", "false"):
            raise IgosError(f"setting {key}={text}: give true or false")
        return text.lower() == "true"
    number = int if int in wanted else float
    try:
        return number(text)
    except ValueError:
        kind = "a whole number" if number is int else "a number"
        raise IgosError(f"setting {key}={text}: give {kind}") from None
