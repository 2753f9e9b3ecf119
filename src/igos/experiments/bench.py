"""What every experiment has in common: photos, a model, studies that resume, and a report."""

import io
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from torch import Tensor

from igos.answer import precision_of
from igos.data import Listed, list_photos
from igos.errors import IgosError
from igos.files import write
from igos.methods import maker
from igos.methods.base import Maker
from igos.models import digest
from igos.models.classifier import Classifier
from igos.models.view import UNPREPARED, AsItIs
from igos.study.formats import markdown
from igos.study.photos import eligible
from igos.study.plan import Question, Study, environment, plan
from igos.study.run import Progress, evaluate
from igos.study.schema import reading
from igos.study.store import Store
from igos.study.table import Row, summarise

Follow = Callable[[Study, Sequence[Listed], Iterator[Progress]], None]


def _unseen(_: Study, __: Sequence[Listed], progress: Iterator[Progress]) -> None:
    deque(progress, maxlen=0)


@dataclass(frozen=True, eq=False)
class Bench:
    """What an experiment is done on, and where what it finds is kept."""

    classifier: Classifier
    source: Path  # of the photos: what `list_photos` takes; the pointing game also takes boxes
    out: Path
    target: str = "predicted"  # or "label"
    min_probability: float = 0.3
    limit: int | None = None  # photos
    seed: int = 0
    batch: int | None = None  # None: what suits the device
    follow: Follow = _unseen  # is handed every study, its photos and progress to go through

    @cached_property
    def photos(self) -> list[Listed]:
        return list_photos(self.source)

    @cached_property
    def size(self) -> tuple[int, int]:
        """(H, W) of the model's images."""
        example = self.classifier.example()
        return example.shape[-2], example.shape[-1]

    @cached_property
    def digest(self) -> str:
        """What the model is, also where it was not loaded by name."""
        classifier = self.classifier
        return classifier.digest or digest(classifier.name, classifier.module)

    @property
    def unprepared(self) -> Classifier:
        """The model for pictures that are made as it wants them; its name says so."""
        height, width = self.size
        as_it_is = AsItIs(self.classifier.normalisation, (width, height))
        name = self.classifier.name + UNPREPARED
        return replace(self.classifier, name=name, preprocess=as_it_is)

    def folder(self, kind: str) -> Path:
        """For pictures that are this model's and no other's."""
        return self.out / f"{kind}-{self.digest[:12]}"

    def at_most(self, resolutions: Sequence[int]) -> list[int]:
        """Those that are not finer than the model's images."""
        return [side for side in resolutions if side <= min(self.size)]

    def study(
        self,
        name: str,
        methods: Mapping[str, Maker],
        resolutions: Sequence[int],
        *,
        photos: Sequence[Listed] | None = None,
        batch: int | None = None,
        limit: int | None = None,
        heatmaps: bool = False,
    ) -> "Kept":
        """Explain and score the photos; what is in the store NAME.sqlite is not done again.

        `heatmaps` are kept only for experiments that look at them: thousands take gigabytes.
        Heatmaps finer than the model's image are left out; methods with a resolution of their own
        have that.
        """
        path = self.out / f"{name}.sqlite"
        classifier = self.classifier
        chosen = self.photos if photos is None else photos
        most = limit or self.limit
        question = Question(
            model=classifier.name,
            weights=self.digest,
            target=self.target,
            precision=precision_of(classifier),
        )
        with Store(path) as store:
            study = plan(
                store,
                classifier,
                question,
                dict(methods),
                [(side, side) for side in self.at_most(resolutions)],
                min_probability=self.min_probability,
                batch=batch or self.batch,
                keep_heatmaps=heatmaps,
                native=True,
            )
            store.begin(
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                arguments={"experiment": name, "limit": most, "batch": study.batch},
                environment=environment(classifier),
            )
            if not study.configurations:
                reasons = [f"{method}: {reason}" for method, reason in study.unsuited]
                small = f"its images of {self.size[0]}×{self.size[1]} are too small"
                raise IgosError(f"no method fits {classifier.name}: {'; '.join(reasons) or small}")
            with closing(evaluate(study, chosen, limit=most)) as progress:
                self.follow(study, chosen, progress)
            configurations = {one.number for one in study.configurations}
            numbers = (photo.number for photo in islice(eligible(study, chosen), most))
            kept = Kept(path, frozenset(configurations), frozenset(numbers))
            if not kept.select("r.photo"):
                names = {photo.name for photo in chosen}
                unread = self.why(store.failures((), names), len(chosen))
                why = store.failures(configurations, names)[0] if kept.photos else unread
                raise IgosError(f"no photo could be explained: {why}")
        return kept

    def why(self, failures: Sequence[str], photos: int) -> str:
        """Why none of so many photos is left, where some could not be read or classified."""
        if len(failures) == photos:
            return failures[0]
        also = f"; {len(failures)} failed, such as: {failures[0]}" if failures else ""
        return f"none has a class of at least {self.min_probability}{also}"

    def maker(self, name: str, **settings: str | float) -> Maker:
        """That method with some settings, at any resolution."""
        return maker(name, seed=self.seed, settings=settings)


@dataclass(frozen=True, eq=False)
class Kept:
    """The results of a study: of its configurations and photos, whatever else is in the store."""

    path: Path
    configurations: frozenset[int]
    photos: frozenset[int]

    def select(self, columns: str) -> list[tuple[Any, ...]]:
        """Columns of results r, configurations c, questions q, photos f and predictions p."""
        return list(self.each(columns))

    def each(self, columns: str, *, order: str = "c.id, f.id") -> Iterator[tuple[Any, ...]]:
        """The same, one after another."""
        with reading(self.path) as db:
            rows = db.execute(
                f"SELECT c.id, f.id, {columns} FROM results r "
                "JOIN configurations c ON c.id = r.configuration JOIN photos f ON f.id = r.photo "
                "JOIN predictions p ON p.photo = r.photo AND p.question = c.question "
                "JOIN questions q ON q.id = c.question "
                f"ORDER BY {order}"
            )
            for configuration, photo, *values in rows:
                if configuration in self.configurations and photo in self.photos:
                    yield tuple(values)

    def rows(self, *, against: str | None = "igos") -> list[Row]:
        return summarise(self.path, against=against, only=(self.configurations, self.photos))


def save_pixels(pixels: Tensor, path: Path) -> None:
    """A picture from (3, H, W) in 0..1."""
    array = (pixels * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="png")
    write(path.parent, path.stem, {path.suffix: buffer.getvalue()})


@dataclass(frozen=True, eq=False)
class Report:
    """What an experiment found, in Markdown, and its figures by name, as PNG."""

    name: str
    text: str
    figures: Mapping[str, bytes] = field(default_factory=dict)

    def save(self, folder: Path) -> list[Path]:
        """NAME.md and a NAME.FIGURE.png for each figure."""
        links = "".join(
            f"\n![{title}]({quote(f'{self.name}.{title}.png')})\n" for title in self.figures
        )
        contents = {".md": (self.text.rstrip() + "\n" + links).encode()}
        contents |= {f".{title}.png": figure for title, figure in self.figures.items()}
        return write(folder, self.name, contents)


Pair = tuple[float, float]  # deletion, insertion


def published(
    title: str, sides: Sequence[int], figures: Mapping[str, Sequence[Pair | None]]
) -> str:
    """The paper's own figures, said to be so."""
    head = ["method", *(f"{side}×{side} {what}" for side in sides for what in ("del.", "ins."))]
    lines = [
        [
            name,
            *("–" if pair is None else f"{pair[at]:.3f}" for pair in pairs for at in (0, 1)),
        ]
        for name, pairs in figures.items()
    ]
    return f"Published ({title}):\n\n{markdown(head, lines)}"
