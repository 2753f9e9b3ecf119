"""Excitation backpropagation (Zhang et al. 2016): where a class's probability comes from.

A winner is drawn layer by layer, from the class down: a unit hands its probability to the units
below it in the shares in which they excite it,

    p′ = x ⊙ W⁺ᵀ(p ⊘ W⁺x)

with W⁺ the positive weights, x the positive activations, and no bias. Average pooling is such a
layer, and so is a residual sum, of which zennit's canonizer makes one in torchvision's ResNets;
max pooling hands all to its winner, rectifiers and batch norms (merged into the convolutions where
they follow one) all to their input. The heatmap is the sum over channels at a middle layer: the
marginal winning probability, MWP.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from igos.methods.adapter import copied, library, pieces, scored
from igos.methods.base import Plain, UnsuitedError
from igos.methods.layers import Call, before_last_stage, calls, has_parameters, named
from igos.methods.winning import probabilities, ruleless, rules
from igos.passes import dtype_of
from igos.problem import Problem

SUM_TOLERANCE = 1e-2  # ours; rounding in float32 changed the sum by 1e-6
SAME = 1e-3  # of the score: what merging batch norms may change by rounding; ours


@dataclass(frozen=True, kw_only=True)
class ExcitationBP(Plain):
    """Excitation backpropagation; its map is what the paper calls MWP.

    Each image's map sums to 1. A model in which it does not, or which computes something that has
    no rule, is refused.
    """

    layer: str | None = None  # None: found by `before_last_stage`

    def native_resolution(self, problem: Problem) -> tuple[int, int]:
        """The layer's."""
        library("zennit.composites", self)  # before a study begins, like GradCAM
        size = self._layer(self._own(problem)).size
        assert size is not None
        return size

    def __call__(self, problem: Problem) -> Tensor:
        """The heatmap, (B, 1, h, w): the winning probability of each position."""
        own = self._own(problem)
        return self._winning(own, self._layer(own)).to(problem.image.dtype)

    def _own(self, problem: Problem) -> Problem:
        """A copy in at least float32 that is asked for the class's logit."""
        if callable(problem.target):
            raise UnsuitedError(
                f"{type(self).__name__} starts from a class: it cannot explain a function of the "
                "model's output"
            )
        own = copied(scored(problem, "logit"), self)
        assert isinstance(own.model, nn.Module)
        own.model.to(torch.promote_types(dtype_of(own.model, own.image), torch.float32))
        return own

    def _layer(self, own: Problem) -> Call:
        assert isinstance(own.model, nn.Module)
        finished = calls(own)
        if self.layer is not None:
            return named(finished, own.model, self.layer)
        return before_last_stage(finished, self)

    def _winning(self, own: Problem, layer: Call) -> Tensor:
        """The winning probabilities at the layer, (B, 1, h, w)."""
        assert isinstance(own.model, nn.Module)
        before = _first_score(own)
        with rules(own.model, self) as kinds:
            if not torch.allclose(_first_score(own), before, rtol=SAME, atol=SAME):
                raise UnsuitedError(
                    f"{type(self).__name__} cannot merge this model's batch norms into its "
                    "convolutions: its scores change"
                )
            without = ruleless(own, layer, kinds, self)
            winning = torch.cat([probabilities(own, layer, *piece) for piece in pieces(own)])
        self._check(winning, layer, without)
        return winning

    def _check(self, winning: Tensor, layer: Call, without: set[str]) -> None:
        sums = winning.sum(dim=(1, 2, 3))
        worst = float(sums[(sums - 1).abs().argmax()])
        if abs(worst - 1) <= SUM_TOLERANCE and not without:
            return
        why = (
            "units above it, or the class, are active through a bias or negative activations, as "
            "in linear bottlenecks, and excited by nothing"
        )
        if without:
            why = f"the model computes {', '.join(sorted(without))} above it, for which no rule is"
        raise UnsuitedError(
            f"{type(self).__name__} does not suit this model: the probabilities at layer "
            f"{layer.name!r} sum to {worst:.3f} (1 is right), and {why}"
        )


@dataclass(frozen=True, kw_only=True)
class ContrastiveExcitationBP(ExcitationBP):
    """Excitation backpropagation of the class, minus that of "not the class".

    The second has the weights of the last linear layer negated. The map sums to 0.
    """

    def __call__(self, problem: Problem) -> Tensor:
        """The heatmap, (B, 1, h, w)."""
        own = self._own(problem)
        layer = self._layer(own)
        last = [call.module for call in calls(own) if has_parameters(call)][-1]
        if not isinstance(last, nn.Linear):
            raise UnsuitedError(
                f"{type(self).__name__} negates the last layer, which must be a linear one: this "
                f"model's is a {type(last).__name__}"
            )
        winning = self._winning(own, layer)
        with torch.no_grad():
            last.weight.neg_()
        return (winning - self._winning(own, layer)).to(problem.image.dtype)


def _first_score(own: Problem) -> Tensor:
    with torch.no_grad():
        return own.run(own.image[:1], torch.zeros_like(own.image[:1, 0, 0, 0]).long())
