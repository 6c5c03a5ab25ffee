"""Python for the browser: what the site needs of Pyodide and NumPy, and the app's code as an archive."""

from __future__ import annotations

import shutil
import tarfile
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from kernels.i18n import tr
from kernels.model.row import Json, Row
from visuals.site.files import Files, name_of
from visuals.site.host import SHELL

ROOT = SHELL.parents[1]
LAYERS = ("kernels", "visuals", "pages")
KINDS = {".py", ".cu", ".cuh", ".json", ".jsonl", ".zip", ".npz", ".css", ".js", ".html"}
LATER = ("ptx.zip", "watch.zip")  # loaded when the emulator runs a kernel of their topic
SETTINGS = (".streamlit/config.toml",)  # the charts take their font from it
WASM = "pyodide.asm.wasm"
RUNTIME = ("pyodide.mjs", WASM, "python_stdlib.zip", "pyodide-lock.json")
LOADERS = ("pyodide.asm.mjs", "pyodide.asm.js")  # the second until Pyodide 0.28
NUMPY = "numpy-*wasm32.whl"
NPM_NUMPY = "@emscripten-forge/numpy"
NPM_ARCHIVE = "pkg/numpy-*.tar.gz"  # of that package: a folder of conda
# Of NumPy: what nothing here imports.
UNUSED = ("f2py", "tests", "_simd", "distutils", "typing", "_examples")
FOLDER = "python"  # of the site
# Pure Python that the code imports: all of rjsmin, of Pygments what its CUDA lexer loads, of pyelftools what its reader of DWARF loads.
PACKAGES = {
    "rjsmin": ("rjsmin.py",),
    "pygments": tuple(
        f"pygments/{name}.py"
        for name in (
            "__init__",
            "filter",
            "filters/__init__",
            "lexer",
            "lexers/__init__",
            "lexers/_mapping",
            "lexers/_mql_builtins",
            "lexers/c_cpp",
            "lexers/c_like",
            "modeline",
            "plugin",
            "regexopt",
            "token",
            "util",
        )
    ),
    "elftools": tuple(
        f"elftools/{name}.py"
        for name in (
            "__init__",
            "construct/__init__",
            "construct/adapters",
            "construct/core",
            "construct/debug",
            "construct/lib/__init__",
            "construct/lib/binary",
            "construct/lib/bitstream",
            "construct/lib/container",
            "construct/lib/hex",
            "construct/macros",
            "common/__init__",
            "common/construct_utils",
            "common/exceptions",
            "common/utils",
            "dwarf/__init__",
            "dwarf/abbrevtable",
            "dwarf/aranges",
            "dwarf/callframe",
            "dwarf/compileunit",
            "dwarf/constants",
            "dwarf/die",
            "dwarf/dwarf_expr",
            "dwarf/dwarf_util",
            "dwarf/dwarfinfo",
            "dwarf/enums",
            "dwarf/lineprogram",
            "dwarf/locationlists",
            "dwarf/namelut",
            "dwarf/ranges",
            "dwarf/structs",
            "dwarf/typeunit",
        )
    ),
}


class PyodideError(Exception):
    """The folder has no Pyodide with NumPy."""


class Pyodide:
    """Pyodide with NumPy, in a folder of this computer: its release, or node_modules with both packages of npm."""

    def __init__(self, folder: Path):
        """PyodideError names what the folder lacks."""
        npm = (folder / "pyodide").is_dir()
        self.runtime = folder / "pyodide" if npm else folder
        loader = next((name for name in LOADERS if (self.runtime / name).exists()), LOADERS[0])
        self.files = (*RUNTIME, loader)
        found = sorted((folder / NPM_NUMPY).glob(NPM_ARCHIVE) if npm else folder.glob(NUMPY))
        missing = [name for name in self.files if not (self.runtime / name).exists()]
        if not found:
            where = tr("the npm package {name}", name=NPM_NUMPY) if npm else NUMPY
            missing.append(f"NumPy ({where})")
        if missing:
            raise PyodideError(
                tr(
                    "{folder} lacks {files}. Pyodide's release, pyodide-<version>.tar.bz2, has all of them; npm has the "
                    "packages pyodide and {numpy}.",
                    folder=folder,
                    files=", ".join(missing),
                    numpy=NPM_NUMPY,
                )
            )
        self._numpy = found[-1]

    def numpy(self) -> bytes:
        """Returns NumPy for WebAssembly as a zip file, without its tests and tools."""
        return packed(_wheel(self._numpy) if self._numpy.suffix == ".whl" else _conda(self._numpy))

    def copy(self, out: Path, files: Files) -> Json:
        """Copies the runtime, packs NumPy and the code, and returns the names under which the browser finds them.

        "later": files by their place beside the code, which Python loads when it opens them.
        """
        target = out / FOLDER
        target.mkdir(exist_ok=True)
        for file in target.iterdir():
            file.unlink()
        for name in set(self.files) - {WASM}:
            shutil.copy(self.runtime / name, target)
        later = {}
        for place, path in loaded_later().items():
            content = path.read_bytes()
            later[place] = f"{FOLDER}/{name_of(content)}.zip"
            (out / later[place]).write_bytes(content)
        wasm = files.put((self.runtime / WASM).read_bytes())
        packs = {"numpy": files.put(self.numpy()), "wasm": wasm, "code": files.put(archive())}
        return {"runtime": f"{FOLDER}/", **packs, "later": later}


def _is_used(name: str) -> bool:
    parts = name.replace(".", "/").split("/")
    return not name.endswith((".pyi", ".md", ".txt", ".a")) and not set(parts) & set(UNUSED)


def _wheel(file: Path) -> dict[str, bytes]:
    """Returns the files of a wheel by name, those that are used."""
    with ZipFile(file) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist() if name[-1] != "/" and _is_used(name)}


def _conda(file: Path) -> dict[str, bytes]:
    """Returns the files of NumPy in an archive of conda by name, those that are used."""
    with tarfile.open(file) as archive:
        members = {m.name.partition("site-packages/")[2]: m for m in archive if m.isfile()}
        used = {
            name: archive.extractfile(m) for name, m in members.items() if name.startswith("numpy/") and _is_used(name)
        }
        return {name: file.read() for name, file in used.items() if file}


def is_python(file: Path, names: Row) -> bool:
    """Returns whether a file of the site, by its path in it, is one of those that `copy` made."""
    return file.parts[0] == FOLDER or file.stem in (names["numpy"], names["wasm"], names["code"])


def loaded_later() -> dict[str, Path]:
    """Returns the files beside the archive, by their place in it."""
    return {
        str(path.relative_to(ROOT)): path for path in sorted((ROOT / LAYERS[0]).rglob("*.zip")) if path.name in LATER
    }


def archive() -> bytes:
    """Returns the app's code and data as a zip file that is the same for the same files."""
    found = [path for layer in LAYERS for path in (ROOT / layer).rglob("*")]
    sources = {
        str(path.relative_to(ROOT)): path
        for path in found
        if path.is_file() and path.suffix in KINDS and "__pycache__" not in path.parts and path.name not in LATER
    }
    sources |= {name: ROOT / name for name in SETTINGS}
    for package, names in PACKAGES.items():
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(package)
        folder = Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]
        sources |= {name: folder / name for name in names}
    return packed({name: path.read_bytes() for name, path in sources.items()})


def packed(content: dict[str, bytes]) -> bytes:
    """Returns files by name as a zip file that is the same for the same files."""
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(content):
            archive.writestr(ZipInfo(name), content[name], ZIP_DEFLATED)
    return out.getvalue()
