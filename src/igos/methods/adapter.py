"""A problem as the libraries of the comparison methods want it.

Captum and zennit are imported where they are used: they are heavy, and only `igos[compare]` has
them.
"""

import copy
import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from igos.errors import first_line, unknown
from igos.methods.base import UnsuitedError
from igos.passes import out_of_memory
from igos.problem import LINKS, Problem, check_differentiable


def library(module: str, method: object) -> Any:
    """That module of a library which only some methods need."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = type(method).__name__
        raise UnsuitedError(
            f"method {name} needs {module.partition('.')[0]}: pip install 'igos[compare]'"
        ) from error


def check_link(link: str) -> None:
    """What is explained of a class: a name of `LINKS`."""
    if link not in LINKS:
        raise unknown("link", str(link), LINKS, remedy=f"give {' or '.join(LINKS)}")


def scored(problem: Problem, link: str) -> Problem:
    """The problem with that link; a target that is a function stays what is explained."""
    return replace(problem, link=LINKS[link])


class Scores(nn.Module):
    """`Problem.run` as a module, which Captum wants where it hooks layers."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem
        self.model = problem.model  # a submodule, where it is a module

    def forward(self, images: Tensor, rows: Tensor) -> Tensor:
        """(n, 3, H, W) and the image each belongs to, (n,) -> (n,)."""
        scores = self.problem.run(images, rows)
        if torch.is_grad_enabled():
            check_differentiable(scores)
        return scores


def pieces(problem: Problem) -> Iterator[tuple[Tensor, Tensor]]:
    """The images and their rows, at most `chunk` at once.

    Copies that require gradients: Captum would set that on the caller's tensors, with a warning.
    """
    rows = torch.arange(len(problem.image), device=problem.image.device)
    for row in torch.split(rows, problem.chunk):
        yield problem.image[row].detach().requires_grad_(), row


def copied(problem: Problem, method: object) -> Problem:
    """The problem with a copy of its model in evaluation mode, for methods that set hooks in it."""
    name = type(method).__name__
    if not isinstance(problem.model, nn.Module):
        raise UnsuitedError(
            f"{name} looks into the model's layers: a {type(problem.model).__name__} has none, "
            "give a torch.nn.Module"
        )
    try:
        model = copy.deepcopy(problem.model).eval()
    except Exception as error:  # the model's own code, which may raise anything
        if out_of_memory(error):
            raise
        raise UnsuitedError(
            f"{name} works on a copy of the model, which cannot be copied: {first_line(error)}"
        ) from error
    return replace(problem, model=model)
