"""Python for the browser: what the site needs of Pyodide's release, and the app's code as an archive."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from kernels.i18n import tr
from visuals.site.files import Files
from visuals.site.host import SHELL

ROOT = SHELL.parents[1]
LAYERS = ("kernels", "visuals", "pages")
KINDS = {".py", ".cu", ".cuh", ".json", ".jsonl", ".zip", ".npz", ".css", ".js", ".html"}
SETTINGS = (".streamlit/config.toml",)  # the charts take their font from it
RUNTIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
NUMPY = "numpy-*wasm32.whl"
FOLDER = "python"  # of the site


class PyodideError(Exception):
    """The folder is no release of Pyodide with NumPy."""


def wheel(folder: Path) -> Path:
    """Returns NumPy's wheel in a folder with Pyodide's release. PyodideError names what it lacks."""
    missing = [name for name in RUNTIME if not (folder / name).exists()]
    found = sorted(folder.glob(NUMPY))
    if missing or not found:
        lacks = ", ".join([*missing, *([] if found else [f"NumPy ({NUMPY})"])])
        raise PyodideError(
            tr(
                "{folder} lacks {files}. Pyodide's release, pyodide-<version>.tar.bz2, has all of them.",
                folder=folder,
                files=lacks,
            )
        )
    return found[-1]


def copy(folder: Path, out: Path, files: Files) -> dict[str, str]:
    """Copies the runtime, packs the code, and returns the names under which the browser finds both."""
    numpy = wheel(folder)
    target = out / FOLDER
    target.mkdir(exist_ok=True)
    for name in (*RUNTIME, numpy.name):
        shutil.copy(folder / name, target)
    return {"runtime": f"{FOLDER}/", "numpy": numpy.name, "code": files.put(archive())}


def archive() -> bytes:
    """Returns the app's code and data as a zip file that is the same for the same files."""
    found = [path for layer in LAYERS for path in (ROOT / layer).rglob("*")]
    sources = {
        str(path.relative_to(ROOT)): path
        for path in found
        if path.is_file() and path.suffix in KINDS and "__pycache__" not in path.parts
    }
    sources |= {name: ROOT / name for name in SETTINGS}
    sources["rjsmin.py"] = Path(find_spec("rjsmin").origin)  # visuals.stage imports it
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(sources):
            archive.writestr(ZipInfo(name), sources[name].read_bytes(), ZIP_DEFLATED)
    return out.getvalue()
