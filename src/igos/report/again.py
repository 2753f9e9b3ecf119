"""The command that makes a run's results again."""

import json
import shlex
from typing import Any

from igos.image import BASELINES

NEEDED = {"photos", "methods", "resolutions"}


def command(arguments: dict[str, Any], question: dict[str, Any]) -> str | None:
    """`igos evaluate …` from what the store knows; None for what another command has written."""
    if not arguments.keys() >= NEEDED:
        return None
    methods: dict[str, dict[str, Any]] = arguments["methods"]
    words = ["igos", "evaluate", arguments["photos"], "--methods", ",".join(methods)]
    for method, settings in methods.items():
        for name, value in settings.items():
            shown = value if isinstance(value, str) else json.dumps(value)
            words += ["--set", f"{method}.{name}={shown}"]
    words += ["--resolutions", arguments["resolutions"]]
    for name in ("model", "target", "baseline", "score", "curves", "precision"):
        value = question.get(name)
        if name == "baseline" and value not in BASELINES:
            value = "FILE"
        if value is not None and value != "own":  # the precision of a model of one's own
            words += [f"--{name}", value]
    # The question has the weights' digest; where they came from is in newer stores alone.
    for name in ("weights", "limit", "min_probability", "seed"):
        if arguments.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", arguments[name]]
    if arguments.get("heatmaps") is False:
        words.append("--no-heatmaps")
    return shlex.join(str(word) for word in [*words, "--out", "again.sqlite"])
