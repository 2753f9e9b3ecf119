"""`evaluate`: explain and score every photo with every configuration, and keep the answers.

Work is committed a batch of photos × a configuration at a time. Which photos share a batch depends
on the photos and on the command, so one that was interrupted and is given again ends as if it had
not been.
"""

from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

import torch

from igos.answer import Answer, answer, classify, doubts, pose, within_memory
from igos.data import Listed
from igos.methods.base import UnsuitedError
from igos.metrics.curves import PROTOCOLS
from igos.problem import LINKS, Problem
from igos.study.halving import batches, halving
from igos.study.photos import Photo, eligible, stack
from igos.study.plan import Configuration, Study
from igos.study.result import Failure, Result


@dataclass(frozen=True)
class Progress:
    """A batch is done with this configuration, and `photos` of `total` with all of them."""

    configuration: Configuration
    photos: int
    total: int
    unsuited: str = ""  # why the configuration is given up, where it is


def evaluate(
    study: Study, photos: Sequence[Listed], *, limit: int | None = None
) -> Generator[Progress, None, None]:
    """Do what is not done yet; `limit` counts the photos that reach the minimum probability.

    Whoever may stop halfway closes it before the store: it may still be writing.
    """
    limit = None if limit is None else min(limit, len(photos))
    total = len(photos) if limit is None else limit
    at_once: dict[int, int] = {}  # photos, of a configuration that ran out of memory with more
    given_up: set[int] = set()
    done = 0
    with ThreadPoolExecutor(1) as writer:
        writing: Future[None] | None = None
        for batch in batches(islice(eligible(study, photos), limit), study.batch):
            before, done = done, batch[-1].at + 1 if limit is None else done + len(batch)
            for configuration in study.configurations:
                dealt_with = done if configuration is study.configurations[-1] else before
                if configuration.number in given_up:
                    continue
                try:
                    answers = _answers(study, configuration, batch, at_once)
                except UnsuitedError as error:
                    given_up.add(configuration.number)
                    yield Progress(configuration, dealt_with, total, str(error))
                    continue
                if writing is not None:
                    writing.result()  # at most one batch waits; raises what the writer raised
                writing = writer.submit(study.store.add_answers, configuration.number, answers)
                yield Progress(configuration, dealt_with, total)
        if writing is not None:
            writing.result()


def _answers(
    study: Study, configuration: Configuration, batch: Sequence[Photo], at_once: dict[int, int]
) -> dict[int, Result | Failure]:
    """What the configuration makes of the photos that it has not seen yet."""
    own = configuration.number

    def work(few: Sequence[Photo]) -> list[Result]:
        return _results(study, configuration, few, at_once.get(own, study.batch) / study.batch)

    def only(count: int) -> None:  # from now on
        at_once[own] = min(count, at_once.get(own, study.batch))

    todo = [photo for photo in batch if not study.store.done(photo.number, [own])]
    answers: dict[int, Result | Failure] = {}
    for some in batches(todo, at_once.get(own, study.batch)):
        results = halving(work, some, only)
        answers |= {photo.number: one for photo, one in zip(some, results, strict=True)}
    return answers


def _results(
    study: Study, configuration: Configuration, photos: Sequence[Photo], share: float
) -> list[Result]:
    """`share` is how much of the usual fits into memory."""
    images = stack(study, photos)
    predictions = [photo.prediction for photo in photos if photo.prediction is not None]
    targets = torch.tensor([prediction.target for prediction in predictions])
    baseline = study.baseline(images, study.classifier.normalisation)
    problem = pose(study.classifier, images, baseline, targets, link=LINKS[study.question.score])
    problem = replace(problem, chunk=max(1, int(problem.chunk * share)))

    def work(fits: Problem) -> Answer:
        protocol = PROTOCOLS[study.question.curves]
        return answer(configuration.method, fits, model=study.classifier.name, protocol=protocol)

    # Fewer photos first; where one is too many, fewer of its images in a pass.
    found = within_memory(problem, work) if len(photos) == 1 else work(problem)
    kept = classify(study.classifier, baseline)[torch.arange(len(photos)), targets].tolist()
    heatmaps = found.heatmap[:, 0].float().cpu().numpy()
    return [
        Result(
            deletion=found.deletion[at].auc,
            insertion=found.insertion[at].auc,
            fraction=found.deletion[at].fraction.tolist(),
            deletion_curve=found.deletion[at].score.tolist(),
            insertion_curve=found.insertion[at].score.tolist(),
            seconds=found.seconds / len(photos),
            iterations=found.iterations(at),
            converged=found.converged(at),
            losses=found.loss(at),
            warnings=doubts(prediction, kept[at], study.classifier),
            heatmap=heatmaps[at] if study.keep_heatmaps else None,
        )
        for at, prediction in enumerate(predictions)
    ]
