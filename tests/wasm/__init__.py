"""Unit tests of kernels and visuals in WebAssembly: the Python that readers of the static site have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from visuals.site.python import Pyodide, PyodideError

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / ".venv" / "wasm"  # make wasm installs requirements-wasm.txt there
NPM = ROOT / "node_modules"
MARKS = "not gpu and not browser"
UNITS = ("tests/kernels", "tests/visuals", "--ignore=tests/visuals/site")  # the site's fixtures drive a browser


def lacking() -> str:
    """Returns in words what is missing here; "" if the tests can run."""
    if not shutil.which("node"):
        return "no Node.js here: install it (Debian: apt-get install nodejs)"
    if not (PACKAGES / "pytest").is_dir():
        return "no .venv/wasm here: make wasm installs it"
    try:
        Pyodide(NPM)
    except PyodideError as error:
        return f"npm install brings Pyodide and NumPy for it: {error}"
    return ""


def run(folder: Path, *arguments: str, **options) -> subprocess.CompletedProcess:
    """Runs pytest in WebAssembly with these arguments, and returns the ended process. `folder`: for temporary files."""
    numpy, cache = folder / "numpy.zip", folder / "bytecode"
    cache.mkdir(exist_ok=True)
    numpy.write_bytes(Pyodide(NPM).numpy())
    # PyPI has it with a compiled part, which it can do without.
    shutil.copy(find_spec("rjsmin").origin, PACKAGES)
    command = ["node", str(ROOT / "tests/wasm/run.mjs"), str(numpy), str(PACKAGES), str(cache)]
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run([*command, "-m", MARKS, *arguments], cwd=ROOT, env=env, **options)


def main(arguments: list[str]) -> int:
    """Runs tests in WebAssembly, all unit tests of kernels and visuals without arguments. Returns pytest's exit code."""
    if why := lacking():
        sys.exit(why)
    with TemporaryDirectory() as folder:
        return run(Path(folder), "-q", *(arguments or UNITS)).returncode
