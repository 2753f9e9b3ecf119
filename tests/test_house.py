"""The shape of the project: public names, and imports that point one way."""

import ast
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import igos

SOURCE = Path(igos.__file__).parent
ROOT = Path(__file__).parent.parent

# Each may import only those before it (DESIGN: image <- problem <- descent <- methods, …).
ORDER = (
    "errors",
    "files",
    "image",
    "data",
    "boxes",
    "passes",
    "problem",
    "descent",
    "methods",
    "captum",
    "metrics",
    "models",
    "answer",
    "explanation",
    "explainer",
    "study",
    "experiments",
    "report",
    "plot",
    "app",
    "cli",
)
APART = {("methods", "metrics"), ("metrics", "descent"), ("models", "problem")}
LEAVES = {"captum", "report", "plot", "app", "cli"}
SHOWN = {("app", "plot")}  # the page is made of pictures


def imports(path: Path) -> set[str]:
    """The parts of igos that a file imports when it is imported itself."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("igos."):
            found.add(node.module.split(".")[1])
    return found


def test_imports_point_one_way() -> None:
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for other in imports(path) - {part}:
            assert ORDER.index(other) < ORDER.index(part), f"{path}: imports {other}"
            assert (part, other) not in APART, f"{path}: imports {other}"
            assert other not in LEAVES or (part, other) in SHOWN, f"{path}: imports {other}"


def test_matplotlib_is_imported_in_one_place() -> None:
    users = [
        path.name
        for path in SOURCE.rglob("*.py")
        if re.search(r"^(import|from) matplotlib", path.read_text(), re.MULTILINE)
    ]
    assert users == ["plot.py"]


def test_public_names_are_all_there_and_no_others() -> None:
    assert sorted(igos.__all__) == sorted(igos._MODULE_OF)
    for name in igos.__all__:
        assert getattr(igos, name) is not None
    assert len(igos.__all__) < 25


def test_explain_is_a_function_whatever_was_imported_first() -> None:
    program = "import igos.explainer, igos.explanation, igos; assert callable(igos.explain)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_map_from_paper_to_code_leads_somewhere() -> None:
    text = (ROOT / "docs" / "paper_to_code.md").read_text()
    names = re.findall(r"`(igos\.[\w.]+)`", text)
    tests = re.findall(r"`tests/(\w+\.py)::(\w+)`", text)
    assert len(names) > 20
    assert len(tests) > 15
    for name in names:
        pkgutil.resolve_name(name)  # raises where there is nothing
    for file, function in tests:
        assert f"def {function}(" in (ROOT / "tests" / file).read_text(), function
