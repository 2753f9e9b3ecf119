"""The page's layout."""

from typing import Any

import gradio as gr

from igos.app import view
from igos.app.actions import Actions
from igos.app.curves import DELETION, INSERTION
from igos.app.wiring import wire
from igos.image import BASELINES
from igos.methods import METHODS

TITLE = "igos: why did the network say that?"
RESOLUTIONS = (7, 14, 28, 56, 112, 224)
DEFAULT_RESOLUTION = 28
COMPARED = ["igos", "gradcam", "integrated-gradients", "random"]
MOST_WAITING = 64  # for the model
UPLOADS_KEPT = (60, 600)  # seconds: how often Gradio looks, and how old a file may be


def build(actions: Actions, classes: int, size: tuple[int, int]) -> gr.Blocks:
    """The page for a model with that many classes and images of that size."""
    page = gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=UPLOADS_KEPT)
    with page:
        gr.HTML(view.header(actions.worker.classifier.name))
        parts: dict[str, Any] = {"notice": gr.HTML(elem_id="notice")}
        with gr.Row(elem_classes="igos-page"):
            with gr.Column(scale=4, min_width=300):
                parts |= _question(actions, classes, size)
            with gr.Column(scale=9, min_width=320), gr.Tabs():
                with gr.Tab("Explain"):
                    parts |= _explain()
                with gr.Tab("Compare"):
                    parts |= _compare()
        wire(page, actions, parts)
    page.queue(max_size=MOST_WAITING, default_concurrency_limit=1, api_open=False)
    return page


def _question(actions: Actions, classes: int, size: tuple[int, int]) -> dict[str, Any]:
    file = gr.File(label="Photo", file_types=["image"], height=120, elem_id="upload")
    sample = gr.Button("Use the sample photo", size="sm", elem_id="sample")
    choices = view.class_choices(actions.worker.classifier, classes)
    fitting = [side for side in RESOLUTIONS if side <= min(size)]
    return {
        "file": file,
        "name": gr.Textbox(visible=False),
        "sample": sample,
        "photo": gr.HTML(view.NO_PHOTO, elem_id="photo"),
        "predictions": gr.HTML(elem_id="predictions"),
        "target": gr.Dropdown(
            choices,
            value=None,
            label="Class to explain",
            info="By default the most probable one. Type to search.",
            filterable=True,
            elem_id="target",
        ),
        "resolution": gr.Radio(
            fitting,
            value=DEFAULT_RESOLUTION if DEFAULT_RESOLUTION in fitting else fitting[-1],
            label="Resolution of the heatmap",
            elem_id="resolution",
        ),
        "baseline": gr.Radio(list(BASELINES), value="blur", label="What hides a pixel"),
        "seed": gr.Number(0, label="Seed", precision=0, elem_id="seed"),
    }


def _explain() -> dict[str, Any]:
    parts: dict[str, Any] = {}
    with gr.Row(equal_height=True, elem_classes="igos-bar"):
        parts["method"] = gr.Dropdown(
            view.method_choices(METHODS),
            value="igos",
            label="Method",
            scale=6,
            min_width=260,
            elem_id="method",
        )
        parts["explain"] = gr.Button("Explain", variant="primary", scale=1, min_width=110)
        parts["stop"] = gr.Button("Stop", scale=1, min_width=80, interactive=False)
    parts["progress"] = gr.HTML(elem_id="progress")
    with gr.Row():
        with gr.Column(min_width=280):
            parts["heat"] = gr.HTML(view.NO_HEAT, elem_id="heat")
            with gr.Column(elem_id="looking"):
                gr.HTML(view.LEGEND)
                parts["opacity"] = gr.Slider(
                    0, 100, 100, step=1, label="Opacity, %", elem_id="opacity"
                )
        with gr.Column(min_width=280):
            parts["composed"] = gr.HTML(view.NO_TEST, elem_id="composed")
            with gr.Column(elem_id="testing"):
                parts["kind"] = gr.Radio(
                    [("Delete", DELETION), ("Show alone", INSERTION)],
                    value=DELETION,
                    label="The most important pixels",
                    elem_id="kind",
                )
                parts["fraction"] = gr.Slider(
                    0, 100, 20, step=1, label="Pixels changed, %", elem_id="fraction"
                )
    with gr.Column(elem_id="summary"):
        parts["warnings"] = gr.HTML(elem_id="warnings")
        parts["numbers"] = gr.HTML(elem_id="numbers")
        parts["curves"] = gr.HTML(elem_id="curves")
        with gr.Row(elem_classes="igos-files"):
            for suffix, what in (("png", "picture"), ("npy", "heatmap"), ("json", "record")):
                parts[suffix] = gr.Button(f"{suffix.upper()} {what}", size="sm", min_width=90)
        parts["command"] = gr.HTML(elem_id="command")
    parts["saved"] = gr.JSON(visible=False)
    return parts


def _compare() -> dict[str, Any]:
    parts: dict[str, Any] = {}
    parts["methods"] = gr.CheckboxGroup(
        list(METHODS), value=COMPARED, label="Methods", elem_id="methods"
    )
    with gr.Row(elem_classes="igos-bar"):
        parts["compare"] = gr.Button("Compare", variant="primary", scale=0, min_width=160)
        parts["stop_comparing"] = gr.Button("Stop", scale=0, min_width=110, interactive=False)
    parts["comparing"] = gr.HTML(elem_id="comparing")
    parts["cards"] = gr.HTML(elem_id="cards")
    with gr.Column(elem_id="compared"):
        with gr.Row(elem_classes="igos-files"):
            for suffix, what in (("png", "picture"), ("json", "records")):
                label = f"{suffix.upper()} {what}"
                parts[f"all_{suffix}"] = gr.Button(label, size="sm", min_width=90)
        parts["compare_command"] = gr.HTML(elem_id="compare-command")
    return parts
