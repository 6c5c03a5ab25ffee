"""The site as a folder: its pages recorded in processes of their own, its scripts and styles, the search, the deck."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from html import escape
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import plotly
from rjsmin import jsmin

from kernels.i18n import tr
from kernels.model.row import Json, Row
from visuals.palette import DARK, LIGHT
from visuals.site.files import FOLDER, Files, name_of, plain
from visuals.site.host import SHELL
from visuals.site.python import Pyodide, is_python
from visuals.site.unit import BUILD, HISTORY, Unit, build, extend, is_current, listed
from visuals.stage.standalone import standalone, takeaway

P = ParamSpec("P")
T = TypeVar("T")
HERE = Path(__file__).parent / "web"
SCRIPTS = (
    "address",
    "load",
    "stage",
    "code",
    "chart",
    "draw",
    "search",
    "hall",
    "python",
    "site",
)  # in the order of imports
PYTHON = ("python-runtime", "python-worker")  # in a worker
DECK = SHELL.parents[1] / "docs" / "deck"
REVEAL = SHELL.parents[1] / "node_modules" / "reveal.js" / "dist"
MAX_BYTES = 40_000_000
LANGUAGE = "en"
_IMPORTS_EXPORTS = re.compile(r"^import [^;]*;\n|^export \{[^}]*\};\n|^export (?!default)", re.MULTILINE)


@dataclass(frozen=True)
class Settings:
    """The settings of a build. `pages`: their paths, all without any; `live`: the URL of an app; `jobs`: processes."""

    out: Path
    pages: Sequence[str] = ()
    live: str = ""
    pyodide: Path | None = None
    jobs: int = 2
    depth: int = 1  # how many choices lead from the controls of a page to an address of the site; 0: chapters alone


def write(settings: Settings, report: Callable[[str], None] = print) -> Json:
    """Writes the site and returns what it holds: bytes, files, addresses, and the addresses that failed."""
    if settings.pyodide:
        Pyodide(settings.pyodide)  # names what is missing before anything is recorded
    settings.out.mkdir(parents=True, exist_ok=True)
    titles = _in_process(listed)
    wanted = [path for path in titles if not settings.pages or path in (*settings.pages, "")]
    units = {unit.path: unit for unit in _units(settings, wanted, report)}
    units |= {unit.path: unit for unit in _linked(settings, units, report)}
    files = Files(settings.out)
    for unit in units.values():
        files.used |= set(unit.files)
    shell = _shell(files, units, settings)
    for path, unit in units.items():
        _page(settings.out, path, unit, shell, "../" if path else "./")
    _missing_page(settings.out, shell)
    _plain_files(settings.out)
    _sweep(settings.out, files, set(units))
    return _summary(settings.out, units, shell["config"]["python"], report)


# -- the pages -----------------------------------------------------------------------------------
def _in_process(function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Returns what a function returns in a process of its own: the stand-in for Streamlit stays there."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *args, **named).result()


def _units(settings: Settings, paths: Iterable[str], report: Callable[[str], None]) -> Iterable[Unit]:
    """Yields the unit of each page: as the last build left it if nothing that it read has changed, else recorded anew."""
    todo = []
    for path in paths:
        if unit := _kept(settings, path):
            report(f"{path or 'home'}: unchanged, {len(unit.docs)} addresses")
            yield unit
        else:
            todo.append(path)
    yield from _made(settings, [(build, path, settings.out, settings.depth) for path in todo], report)


def _linked(settings: Settings, units: Mapping[str, Unit], report: Callable[[str], None]) -> Iterable[Unit]:
    """Yields the units to which others link, with the addresses that were missing."""
    lacking = [(unit, unit.missing(units.values())) for unit in units.values() if unit.path != HISTORY]
    tasks = [(extend, unit, settings.out, addresses) for unit, addresses in lacking if addresses]
    yield from _made(settings, tasks, report)


def _made(settings: Settings, tasks: Sequence[tuple], report: Callable[[str], None]) -> Iterable[Unit]:
    """Yields the units that tasks make, each in a process of its own, and keeps them for the next build."""
    with ProcessPoolExecutor(settings.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in as_completed([pool.submit(*task) for task in tasks]):
            unit = done.result()
            state = {"depth": settings.depth, "unit": asdict(unit)}
            _state(settings.out, unit.path).write_text(plain(state), "utf-8")
            failed = f", {len(unit.failed)} failed" if unit.failed else ""
            report(f"{unit.path or 'home'}: recorded, {len(unit.docs)} addresses{failed}")
            yield unit


def _state(out: Path, path: str) -> Path:
    return out / BUILD / f"{path or 'home'}.json"


def _kept(settings: Settings, path: str) -> Unit | None:
    """Returns the unit of the last build; None if one of its files, or of those it was made from, is not as it was."""
    try:
        state = json.loads(_state(settings.out, path).read_text("utf-8"))
        unit = Unit(**state["unit"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    whole = all((settings.out / FOLDER / f"{name}.bin").exists() for name in unit.files)
    return unit if state["depth"] == settings.depth and whole and is_current(unit.reads) else None


def outdated(out: Path) -> list[str]:
    """Returns the paths of a site's pages that were recorded from other files than those of now."""
    found = []
    for file in sorted((out / BUILD).glob("*.json")):
        state = json.loads(file.read_text("utf-8"))
        if "unit" in state and not is_current(state["unit"]["reads"]):
            found.append(state["unit"]["path"])
    return found


# -- what all pages load --------------------------------------------------------------------------
def _shell(files: Files, units: Mapping[str, Unit], settings: Settings) -> Json:
    """Returns the part of a page's HTML that is the same on all: names of the files, and the pages by path."""
    components: Json = {}
    common: Json = {}
    for unit in units.values():
        components |= unit.components
        common |= unit.common
    core = files.put_json({"components": components, "common": common})
    theme = next(unit.css for unit in units.values() if unit.css)
    script = bundle()
    script_name, style_name = f"site-{name_of(script.encode())}.js", ""
    style = "\n".join((_variables(), _text("base.css"), theme, _text("frame.css")))
    style_name = f"site-{name_of(style.encode())}.css"
    (settings.out / script_name).write_text(script, "utf-8")
    (settings.out / style_name).write_text(style, "utf-8")
    pages = {}
    for path, unit in units.items():
        index = {"docs": unit.docs, "defaults": unit.defaults}
        pages[path] = {"title": unit.title, "index": files.put_json(index)}
    python = _python(files, settings)
    texts = [entry for unit in units.values() for entry in unit.texts]
    return {
        "script": script_name,
        "style": style_name,
        "player": components["stage"]["js"],
        "config": {
            "core": core,
            "pages": pages,
            "search": files.put_json(texts),
            "plotly": files.put(_plotly()),
            "live": settings.live,
            "python": python,
        },
    }


def _python(files: Files, settings: Settings) -> Json | None:
    """Returns the names under which a browser finds Python; None if the site is built without it."""
    if not settings.pyodide:
        return None
    worker = bundle(PYTHON)
    name = f"python-{name_of(worker.encode())}.js"
    (settings.out / name).write_text(worker, "utf-8")
    return Pyodide(settings.pyodide).copy(settings.out, files) | {"worker": name}


def bundle(names: Sequence[str] = SCRIPTS) -> str:
    """Returns scripts of the site as one module."""
    return str(jsmin("\n".join(_IMPORTS_EXPORTS.sub("", _text(f"{name}.js")) for name in names)))


def _text(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def _plotly() -> bytes:
    """Returns the drawing library of the charts, from the Python package of it."""
    return (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_bytes()


def _variables() -> str:
    """Returns the colours and fonts of both themes as variables: those of the app, and those that the stage reads."""
    fonts = (
        "--st-font: system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; "
        "--st-code-font: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace;"
    )

    def of(colours: Mapping[str, str]) -> str:
        own = "".join(f"--kt-{name}: {colour}; " for name, colour in colours.items())
        return f"{own}--st-background-color: {colours['ground']};"

    dark = of(DARK)
    return (
        f":root {{ {of(LIGHT)} {fonts} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="dark"] {{ {dark} }}'
    )


def _page(out: Path, path: str, unit: Unit, shell: Row, root: str) -> None:
    folder = out / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(html(unit.title, shell, root, path), "utf-8")
    if path:  # a server that leaves out the ending needs no redirect to the folder
        (out / f"{path}.html").write_text(html(unit.title, shell, "./", path), "utf-8")


def html(title: str, shell: Row, root: str, path: str | None) -> str:
    """Returns the HTML of a page: what it loads, in the order in which it needs it."""
    config = shell["config"]
    first = [config["core"], shell["player"]] + ([config["pages"][path]["index"]] if path is not None else [])
    preloads = "\n".join(f'<link rel="preload" as="fetch" crossorigin href="{FOLDER}/{name}.bin">' for name in first)
    app = tr("Kernel Theatre")
    name = title if title == app else f"{title} · {app}"
    script_off = tr("This site draws its pages with JavaScript, which is switched off in this browser.")
    data = plain(config | {"root": root}).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="{LANGUAGE}" data-static>
<head>
<meta charset="utf-8">
<base href="{root}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(name)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{shell["style"]}">
<link rel="modulepreload" href="{shell["script"]}">
{preloads}
</head>
<body>
<div data-testid="stApp"><main data-testid="stMain" tabindex="-1"><div data-testid="stMainBlockContainer">
<noscript><p class="kt-note">{script_off}</p></noscript>
</div></main></div>
<script type="application/json" id="site">{data}</script>
<script id="boot" data-script="{shell["script"]}">
{_text("boot.js").strip()}
</script>
</body>
</html>
"""


def _missing_page(out: Path, shell: Row) -> None:
    """Writes the page for addresses that do not exist. Its address can have any depth, so it finds the root by itself."""
    (out / "404.html").write_text(_text("404.html"), "utf-8")


def _plain_files(out: Path) -> None:
    """Writes what the player loads by its address, and the deck."""
    (out / ".nojekyll").touch()  # GitHub Pages: serve every file as it is
    folder = out / "stage"
    folder.mkdir(exist_ok=True)
    (folder / "takeaway.js").write_text(takeaway(), "utf-8")
    (folder / "standalone.html").write_text(standalone(), "utf-8")
    if not REVEAL.exists():
        return
    deck = out / "deck"
    deck.mkdir(exist_ok=True)
    talk = (DECK / "index.html").read_text("utf-8").replace("../../node_modules/reveal.js/dist/", "reveal/")
    (deck / "index.html").write_text(on_site(talk), "utf-8")
    shutil.copy(DECK / "stage.js", deck)
    for source in sorted(set(re.findall(r'(?:href|src)="reveal/([^"]+)"', talk))):
        (deck / "reveal" / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REVEAL / source, deck / "reveal" / source)


def on_site(talk: str) -> str:
    """Returns the deck with the stages of this site in place of those of an app on this machine."""
    here = 'RevealStage({ app: new URL("..", location.href).href.replace(/[/]$/, "") })'
    texts = {"RevealStage()": here, "make run, or ?app= with its address": tr("it is being loaded")}
    for text, replacement in texts.items():
        talk = talk.replace(text, replacement)
    return talk


# -- what is left over, and what there is ----------------------------------------------------------
def _sweep(out: Path, files: Files, paths: set[str]) -> None:
    """Removes files of earlier builds that no page names."""
    for file in files.folder.iterdir():
        if file.stem not in files.used:
            file.unlink()
    page = (out / "index.html").read_text("utf-8")
    for file in (*out.glob("site-*.js"), *out.glob("site-*.css"), *out.glob("python-*.js")):
        if file.name not in page:
            file.unlink()


def _summary(out: Path, units: Mapping[str, Unit], python: Row | None, report: Callable[[str], None]) -> Json:
    """Reports and returns what the site holds. Python's files are counted apart from its pages."""
    files = [file for file in out.rglob("*") if file.is_file() and BUILD not in file.parts]
    of_python = [file for file in files if python and is_python(file.relative_to(out), python)]
    size_of_python = sum(file.stat().st_size for file in of_python)
    total = sum(file.stat().st_size for file in files) - size_of_python
    failed = {f"{path}?{key}": why for path, unit in units.items() for key, why in unit.failed.items()}
    addresses = sum(len(unit.docs) for unit in units.values())
    report(f"{len(units)} pages, {addresses} addresses, {len(files)} files, {total / 1e6:.1f} MB")
    if python:
        report(tr("and Python: {n} of the files, {mb} MB", n=len(of_python), mb=f"{size_of_python / 1e6:.1f}"))
    for address, why in failed.items():
        report(tr("missing: {address}: {why}", address=address, why=why))
    if total > MAX_BYTES:
        report(tr("larger than {mb} MB: record fewer addresses", mb=f"{MAX_BYTES / 1e6:.0f}"))
    return {"bytes": total, "files": len(files), "addresses": addresses, "failed": failed}
