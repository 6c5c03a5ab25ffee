"""Imports run one way, pages -> visuals -> kernels, without cycles and not between topics; importing is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.offenders import every

ROOT = Path(__file__).parents[1]
COMMAND_LINE = "kernels.__main__"  # the project's, of all layers
FORBIDDEN = {"kernels": {"streamlit", "plotly", "visuals", "pages"}, "visuals": {"pages"}}
TOPICS = {
    "attention",
    "collectives",
    "conv",
    "cross_entropy",
    "elementwise",
    "embedding",
    "fusion",
    "gemm",
    "heads",
    "linear",
    "memory",
    "norm",
    "optimizer",
    "pooling",
    "softmax",
}
# Attention's loops for the processor call GEMM's; a chain of blocks contains convolutions.
BETWEEN_TOPICS = {("kernels", "attention", "gemm"), ("kernels", "fusion", "conv")}


@cache
def modules() -> dict[str, Path]:
    """Returns the file of every module of the app by its dotted name."""
    paths = [path for layer in ("kernels", "visuals", "pages") for path in (ROOT / layer).rglob("*.py")]
    names = (path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in paths)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yields every module that a file imports, including those for type checkers and within functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules() else node.module


def is_of_types(node: ast.stmt) -> bool:
    """Returns whether only a type checker reads it: objects that hold each other name each other's types."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@cache
def imports() -> dict[str, tuple[set[str], set[str]]]:
    """Returns by module what it imports, and what only its types import."""
    found = {}
    for name, path in modules().items():
        both: tuple[set[str], set[str]] = set(), set()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            both[is_of_types(node)].update(imported(node))
        found[name] = both
    return found


@cache
def graph() -> dict[str, set[str]]:
    """Returns the modules of the app that each module imports, including those for type checkers."""
    return {name: (runs | types) & modules().keys() for name, (runs, types) in imports().items()}


def packages_of(name: str) -> set[str]:
    """Returns the first names of what a module imports."""
    return {module.partition(".")[0] for module in set.union(*imports()[name])}


def import_cycles(imports_of: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns the groups of modules that reach each other by imports (Tarjan 1972)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in imports_of[node]:
            if target not in number:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == number[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in imports_of:
        if name not in number:
            visit(name)
    return found


def topics_of(name: str) -> list[str]:
    return [part for part in name.split(".")[1:2] if part in TOPICS]


def test_no_import_cycles():
    assert not import_cycles({name: runs & modules().keys() for name, (runs, _) in imports().items()})


def test_import_cycle_is_found():
    assert import_cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]


def test_topics_do_not_import_each_other():
    cross_imports = {
        (name.partition(".")[0], topic, other)
        for name, others in graph().items()
        for target in others
        for topic in topics_of(name)
        for other in topics_of(target)
        if topic != other and name.partition(".")[0] == target.partition(".")[0]
    }
    assert cross_imports == BETWEEN_TOPICS


@every(
    ("below", "above"),
    [
        ("kernels.model", ("kernels.machine", "kernels.libraries", "kernels.engines", "kernels.records")),
        ("kernels.machine", ("kernels.libraries", "kernels.engines", "kernels.records", "kernels.ladders")),
        ("kernels.libraries", ("kernels.engines", "kernels.records", "kernels.ladders")),
        ("kernels.engines", ("kernels.records", "kernels.ladders", "kernels.runner", "kernels.jobs")),
        ("kernels.records", ("kernels.runner", "kernels.jobs", "kernels.sweep")),
        ("visuals.scene", ("visuals.charts", "visuals.stage")),
    ],
)
def test_lower_modules_do_not_import_higher_ones(below, above):
    topics = tuple(f"{below.partition('.')[0]}.{topic}" for topic in TOPICS) if below != "kernels.records" else ()
    for name, others in graph().items():
        if name.startswith(below):
            assert not [target for target in others if target.startswith((*above, *topics))], name


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_layers_import_in_one_direction(layer):
    for name, path in modules().items():
        if name.startswith(layer) and name != COMMAND_LINE:
            assert not FORBIDDEN[layer] & packages_of(name), path


def test_visuals_import_streamlit_only_in_stage():
    for name, path in modules().items():
        if name.startswith("visuals") and path.parent.name != "stage":
            assert "streamlit" not in packages_of(name), path


def test_importing_kernels_imports_no_large_package_and_listing_engines_no_cupy():
    code = (
        "import sys, kernels, kernels.records.store; heavy = {'cupy', 'numba', 'plotly', 'streamlit', 'PIL', 'psutil', 'sqlalchemy',"
        "'alembic', 'psycopg', 'sqlite3'} & set(sys.modules);"
        "kernels.engines.available(); heavy |= {'cupy'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
