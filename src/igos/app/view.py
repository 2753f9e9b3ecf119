"""What the page shows, as HTML: pure functions of what is known."""

import base64
import io
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image
from torch import Tensor

from igos.app.curves import DELETION, SMALL, curve_of, draw
from igos.app.work import Answered, Frame, Question
from igos.explainer import PREDICTIONS
from igos.explanation import Explanation
from igos.models.classifier import Classifier
from igos.plot import overlay

# Also what Gradio's HTML component would read as a template.
_SPECIAL = {ord(c): f"&#{ord(c)};" for c in "&<>\"'{}$`\\"}


def escape(text: str) -> str:
    """Text that is text wherever it stands in HTML.

    >>> escape("<b>${x}")
    '&#60;b&#62;&#36;&#123;x&#125;'
    """
    return text.translate(_SPECIAL)


def data_uri(image: Tensor) -> str:
    """(3, H, W) in 0..1 as a PNG within the page: no file, and nothing to fetch."""
    pixels = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def figure(pictures: Sequence[tuple[Tensor, str]], caption: str) -> str:
    """Pictures (and what they show) on top of one another, the last one as opaque as asked."""
    images = "".join(
        f'<img src="{data_uri(picture)}" alt="{escape(alt)}"{" class=top" if at else ""}>'
        for at, (picture, alt) in enumerate(pictures)
    )
    below = f"<figcaption>{caption}</figcaption>"
    return f'<figure class="igos-figure"><div>{images}</div>{below}</figure>'


def placeholder(text: str) -> str:
    return f'<figure class="igos-figure empty"><div>{escape(text)}</div></figure>'


NO_PHOTO = placeholder("No photo yet")
NO_HEAT = placeholder("The heatmap grows here")
NO_TEST = placeholder("Its test comes here: what is left when the marked parts go")


LEGEND = '<p class="igos-legend"><span>less</span><i></i><span>more important</span></p>'


def header(model: str) -> str:
    return (
        "<header class='igos-header'><h1>Why did the network say that?</h1><p>A heatmap of what "
        f"<b>{escape(model)}</b> looks at, and a test of whether that is true.</p></header>"
    )


def method_choices(methods: Mapping[str, object]) -> list[tuple[str, str]]:
    """The methods, each with what it is in a line."""
    lines = {
        name: (made.__doc__ or "").splitlines()[0].rstrip(".") for name, made in methods.items()
    }
    return [(f"{name}: {line}", name) for name, line in lines.items()]


def notice(text: str, kind: str = "problem") -> str:
    """A message that screen readers say at once; empty text is no message."""
    role = "alert" if kind == "problem" else "status"
    return f'<div class="igos-notice {kind}" role="{role}">{escape(text)}</div>' if text else ""


def photo(question: Question, classifier: Classifier) -> str:
    pixels = classifier.normalisation.pixels(question.image).clamp(0, 1)
    h, w = pixels.shape[-2:]
    return figure(
        [(pixels, f"The photo {question.photo}")],
        f"<b>{escape(question.photo)}</b> as the network sees it, {w}×{h}",
    )


def predictions(question: Question, classifier: Classifier) -> str:
    """The most probable classes with their probabilities, as bars."""
    values, classes = question.probabilities.sort(descending=True, stable=True)
    rows = "".join(
        f"<li><span>{escape(short(classifier.class_name(int(at))))}</span>"
        f"<b>{value:.1%}</b><i style='width:{value:.1%}'></i></li>"
        for value, at in zip(
            values[:PREDICTIONS].tolist(), classes[:PREDICTIONS].tolist(), strict=True
        )
    )
    return f'<ol class="igos-bars" aria-label="The most probable classes">{rows}</ol>'


def class_choices(classifier: Classifier, count: int) -> list[tuple[str, int]]:
    """The classes by name; those that share a name also by their index."""
    names = [classifier.class_name(index) for index in range(count)]
    labels = [
        name if names.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(names)
    ]
    return sorted(((label, at) for at, label in enumerate(labels)), key=lambda one: one[0].lower())


def short(name: str) -> str:
    """The first of a class's names."""
    return name.partition(",")[0]


def progress(title: str, frame: Frame | None) -> str:
    """A bar; without a frame, one that only says that something is going on."""
    at = (
        f": iteration {frame.iteration} of {frame.total}, objective {frame.loss:.3f}"
        if frame
        else ""
    )
    value = f' max="{frame.total}" value="{frame.iteration}"' if frame else ""
    return (
        f'<div class="igos-progress">{escape(title + at)}'
        f'<progress aria-label="{escape(title)}"{value}></progress></div>'
    )


def heat(image: Tensor, heatmap: Tensor, method: str, note: str) -> str:
    """The photo, (3, H, W) in 0..1, under the heatmap, whose opacity a slider sets."""
    pictures = [(image, "The photo"), (overlay(image, heatmap), f"Heatmap by {method}, {note}")]
    return figure(pictures, f"<b>{escape(method)}</b> {escape(note)}")


def heat_at(image: Tensor, method: str, frame: Frame) -> str:
    """The heatmap while it grows."""
    return heat(image, frame.heatmap, method, f"iteration {frame.iteration}")


def answer_heat(explanation: Explanation) -> str:
    """The heatmap of an answer."""
    h, w = explanation.resolution
    return heat(pixels_of(explanation), explanation.heatmap, explanation.method, f"{h}×{w}")


def pixels_of(explanation: Explanation) -> Tensor:
    return explanation.normalisation.pixels(explanation.image).clamp(0, 1)


def composed(explanation: Explanation, kind: str, at: int) -> str:
    """The photo at a point of a curve, and what the model said of it there."""
    curve = curve_of(explanation, kind)
    fraction, score = float(curve.fraction[at]), float(curve.score[at])
    what = f"{fraction:.0%} of the pixels {'deleted' if kind == DELETION else 'inserted'}"
    make = explanation.deleted if kind == DELETION else explanation.inserted
    name = short(explanation.class_name)
    caption = f"{what}: {escape(name)} <output>{score:.3f}</output>"
    return figure([(make(fraction), f"The photo with {what}, probability {score:.3f}")], caption)


def numbers(explanation: Explanation) -> str:
    """The figures that sum the answer up."""
    found = [
        ("Probability", f"{explanation.probability:.3f}", escape(short(explanation.class_name))),
        ("Deletion", f"{explanation.deletion.auc:.3f}", "small is good"),
        ("Insertion", f"{explanation.insertion.auc:.3f}", "large is good"),
        ("Time", f"{explanation.seconds:.1f} s", _iterations(explanation)),
    ]
    cells = "".join(
        f"<div class={name.lower()}><dt>{name}</dt><dd>{value}</dd><small>{note}</small></div>"
        for name, value, note in found
    )
    said = (
        f"Done: deletion {explanation.deletion.auc:.3f}, insertion {explanation.insertion.auc:.3f}"
    )
    return f'<p class="igos-hidden" role="status">{said}</p><dl class="igos-numbers">{cells}</dl>'


def _iterations(explanation: Explanation) -> str:
    if explanation.iterations is None:
        return "for the heatmap"
    return f"{explanation.iterations} iterations"


def warnings(explanation: Explanation) -> str:
    texts = [text[0].upper() + text[1:] + "." for text in explanation.warnings]
    return "".join(notice(text, "warning") for text in texts)


def card(answered: Answered) -> str:
    """One method of a comparison: its heatmap, its curves and its numbers."""
    found = answered.explanation
    return (
        f'<article class="igos-card">{answer_heat(found)}{draw(found, area=SMALL)}'
        f"<dl><div class=deletion><dt>Deletion</dt><dd>{found.deletion.auc:.3f}</dd></div>"
        f"<div class=insertion><dt>Insertion</dt><dd>{found.insertion.auc:.3f}</dd></div>"
        f"<div><dt>Time</dt><dd>{found.seconds:.1f} s</dd></div></dl></article>"
    )


# Where the browser has no clipboard (a page without TLS, from afar), the text is selected at least.
_COPY = (
    "const text = this.previousElementSibling; getSelection().selectAllChildren(text); "
    "const says = (word) => { this.textContent = word; }; if (!navigator.clipboard) "
    "says(&#39;Selected&#39;); else navigator.clipboard.writeText(text.innerText)"
    ".then(() => says(&#39;Copied&#39;), () => says(&#39;Selected&#39;))"
)


def command(text: str) -> str:
    """A command to copy."""
    return (
        "<figure class='igos-command'><figcaption>The same on the command line</figcaption>"
        f"<code tabindex='0'>{escape(text)}</code>"
        f"<button type='button' onclick='{_COPY}'>Copy</button></figure>"
    )


def growing(question: Question, classifier: Classifier, method: str, frame: Frame | None) -> str:
    """A method of a comparison that is still at work."""
    image = classifier.normalisation.pixels(question.image).clamp(0, 1)
    picture = placeholder(method) if frame is None else heat_at(image, method, frame)
    return f'<article class="igos-card">{picture}</article>'


def refused(method: str, reason: str) -> str:
    """A method of a comparison that has no answer, and why."""
    return f'<article class="igos-card">{placeholder(method)}{notice(reason, "warning")}</article>'


def cards(made: Sequence[str]) -> str:
    return f'<section class="igos-cards" aria-label="The methods">{"".join(made)}</section>'
