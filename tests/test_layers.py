"""Arrows run one way, pages -> visuals -> kernels, and importing costs little."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "kernels": {"streamlit", "plotly", "visuals", "pages"},
    "visuals": {"pages"},
}


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_no_arrow_turns(layer):
    files = list((ROOT / layer).rglob("*.py"))
    assert files
    for path in files:
        assert not FORBIDDEN[layer] & set(imports(path)), path


def test_streamlit_stays_out_of_visuals_but_for_the_mount():
    for path in (ROOT / "visuals").rglob("*.py"):
        if path.parent.name != "stage":
            assert "streamlit" not in set(imports(path)), path


def test_importing_kernels_pulls_in_nothing_heavy():
    code = (
        "import sys, kernels; heavy = {'cupy', 'numba', 'plotly', 'streamlit', 'PIL', 'psutil'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr


def test_asking_what_runs_here_imports_no_cupy():
    code = "import sys; from kernels import engines; engines.available(); sys.exit('cupy' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
