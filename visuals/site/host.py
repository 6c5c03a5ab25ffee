"""A host of the app's pages beside Streamlit: it runs their scripts, and records what they draw as data.

The pages draw with about thirty functions of a module named `streamlit`. Here this module is a stand-in: each function
appends an element to a tree, and a control returns the value of the URL. So the site has no second version of a page, and
the same holds for Python in the browser, where Streamlit does not run.

An element is a dict: "t" is its kind, "k" its key, "c" its children. Nothing here imports a page: scripts are run by path.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from kernels.model.row import Json, Row
from visuals.site.session import Context, Query, Rerun, RunContext, Switch

SHELL = Path(__file__).resolve().parents[2] / "pages" / "_shell.py"
MAX_RUNS = 8  # of one page until it stops asking for another run
Element = Json


@dataclass
class Component:
    """A part of a page with JavaScript of its own: what the browser loads to show it."""

    name: str
    js: str
    html: str = ""
    css: str = ""
    isolated: bool = True


class Download(NamedTuple):
    """A file that a page offers. `data`: its bytes, or a function that returns them."""

    data: bytes | str | Callable[[], bytes | str]
    name: str
    mime: str


@dataclass
class Recording:
    """A page as it was drawn, and the address it ended at: its elements in order, and its parameters."""

    path: str
    params: dict[str, str]
    elements: list[Element]


@dataclass
class _Run:
    """The run that is under way."""

    path: str
    query: Query
    state: Json
    root: list[Element] = field(default_factory=list)
    open: list[list[Element]] = field(default_factory=list)  # the innermost container last


class Host:
    """Runs pages. There is one in a process, because a page finds it as the module `streamlit`."""

    def __init__(self) -> None:
        self.components: dict[str, Component] = {}
        self.pages: dict[str, Page] = {}
        self.downloads: dict[str, Download] = {}  # of the pages that were recorded, by key
        self.context = Context()
        self.run: _Run | None = None
        self.listed: list[Page] = []
        self.mounted: Callable[[str], None] = lambda name: None  # called with the name of a component that was drawn

    # -- running ---------------------------------------------------------------------------------
    def record(
        self, path: str, params: Mapping[str, str], presses: Row | None = None, state: Json | None = None
    ) -> Recording:
        """Returns a page at these parameters. `presses`: what was pressed on a stage or which button, by
        its key, before the first run.
        `state`: of the session, which the page changes.

        Switch if the page leads to another address.
        """
        state = {} if state is None else state
        state |= {key: {"press": value} for key, value in (presses or {}).items()}
        query = Query({name: str(value) for name, value in params.items()})
        for _ in range(MAX_RUNS):
            self.run = run = _Run(path, query, state)
            run.open.append(run.root)
            try:
                runpy.run_path(str(SHELL), run_name="__main__")
            except Rerun:
                for key in presses or {}:
                    state.pop(key, None)
                continue
            return Recording(path, dict(query), run.root)
        raise RuntimeError(f"{path}?{urlencode(params)} still asks for another run after {MAX_RUNS}")

    @property
    def now(self) -> _Run:
        """Returns the run that is under way."""
        assert self.run is not None  # a page draws
        return self.run

    def add(self, kind: str, **fields: Any) -> Element:
        """Appends an element to the open container and returns it. Fields without a value are left out."""
        element = {"t": kind} | {
            name: value for name, value in fields.items() if value is not None and value is not False and value != ""
        }
        self.now.open[-1].append(element)
        return element

    @contextmanager
    def inside(self, children: list[Element]) -> Iterator[None]:
        self.now.open.append(children)
        try:
            yield
        finally:
            self.now.open.pop()

    # -- the values of controls ------------------------------------------------------------------
    def value(self, key: str | None, default: object, bound: bool, parse: Callable[[str], object] = str) -> Any:
        """Returns the value of a control: that of the session, else of the URL if it is bound to it, else its default."""
        state, query = self.now.state, self.now.query
        if key in state:
            return state[key]
        if bound and key in query:
            try:
                return parse(query[key])
            except ValueError:
                return default
        return default


class Box:
    """A container that was drawn: more can be drawn into it later, by its functions or inside `with`."""

    def __init__(self, host: Host, children: list[Element]):
        self._host, self._children, self._inside = host, children, []
        self.open = True  # of a tab: every listing is recorded

    def __enter__(self) -> Box:
        self._inside.append(self._host.inside(self._children))
        self._inside[-1].__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inside.pop().__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        function = getattr(sys.modules["streamlit"], name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._host.inside(self._children):
                return function(*args, **kwargs)

        return call


class Page:
    """A page of the app: its script, its title and its address."""

    def __init__(self, page: str, *, title: str = "", url_path: str = "", default: bool = False, **_: object):
        self.file, self.title, self.url_path = page, title, "" if default else url_path

    def run(self) -> None:
        runpy.run_path(str(SHELL.parent / self.file), run_name="__main__")


def install(host: Host) -> None:
    """Puts the stand-in where the pages import Streamlit from."""
    module = _module(host)
    ends = {"runtime": {}, "runtime.scriptrunner": {"get_script_run_ctx": lambda **_: RunContext()}}
    ends |= {"navigation": {}, "navigation.page": {"StreamlitPage": Page}}
    sys.modules["streamlit"] = module
    for name, members in ends.items():
        full = ".".join((module.__name__, name))
        sys.modules[full] = part = ModuleType(full)
        part.__dict__.update(members)


def _module(host: Host) -> ModuleType:
    """Returns the stand-in: the functions that the pages call."""
    module = ModuleType("streamlit")
    vars(module)["__getattr__"] = _of_run(host)
    layout, controls = _layout(host), _controls(host)
    for name, function in {**layout, **controls, **_flow(host)}.items():
        setattr(module, name, function)
    return module


def _of_run(host: Host) -> Callable[[str], Any]:
    def found(name: str) -> Any:
        match name:
            case "session_state":
                return host.now.state
            case "query_params":
                return host.now.query
            case "context":
                return host.context
        raise AttributeError(f"the site's stand-in for Streamlit has no {name}")

    return found


# -- what is drawn --------------------------------------------------------------------------------
def _layout(host: Host) -> Json:
    def box(kind: str, key: str | None, **fields: Any) -> Box:
        children: list[Element] = []
        host.add(kind, k=key, **fields)["c"] = children
        return Box(host, children)

    def container(*, key=None, horizontal=False, border=False, height=None, **_) -> Box:
        return box("box", key, hz=horizontal, border=border, height=height if isinstance(height, int) else None)

    def popover(label: str, *, key=None, **_) -> Box:
        return box("pop", key, l=label)

    def tabs(names: Sequence[str], *, default=None, key=None, **_) -> list[Box]:
        parts: list[list[Element]] = [[] for _ in names]
        front = list(names).index(default) if default is not None and default in names else 0
        host.add("tabs", k=key, names=list(names), front=front)["c"] = parts
        return [Box(host, part) for part in parts]

    def page_link(page: Page | str, *, label: str = "", query_params=None, help=None, **_) -> None:
        path = page.url_path if isinstance(page, Page) else host.pages[page].url_path
        host.add("link", l=label, help=help)["to"] = [path, dict(query_params or {})]

    def html(text: str, **_) -> None:
        host.add("html")["h"] = text

    def chart(figure: Any, *, key=None, **_) -> None:
        text = figure.to_json() if not isinstance(figure, Mapping) else json.dumps(figure)
        found = json.loads(text)
        found["layout"].pop("template", None)
        host.add("chart", k=key)["figure"] = found

    def component(name: str, *, html="", css="", js="", isolate_styles=True) -> Callable:
        host.components[name] = Component(name, js, html, css, isolate_styles)

        def mount(*, key=None, data=None, **_) -> None:
            host.add("component", k=key, name=name)["data"] = parted(data) if isinstance(data, bytes) else data
            host.mounted(name)

        return mount

    return {
        "components": SimpleNamespace(v2=SimpleNamespace(component=component)),
        "html": html,
        "caption": lambda text, **_: host.add("caption", l=text),
        "code": lambda text, *, language=None, **_: host.add("code", language=language, text=text),
        "container": container,
        "popover": popover,
        "empty": lambda: container(),
        "tabs": tabs,
        "page_link": page_link,
        "plotly_chart": chart,
        "progress": lambda share, text="": host.add("progress", share=share, l=text),
        "set_page_config": lambda **_: None,
    }


# -- controls -------------------------------------------------------------------------------------
def _controls(host: Host) -> dict[str, Callable]:
    def pills(label: str, options: Sequence, *, default=None, key=None, bind=None, label_visibility="", **_) -> object:
        chosen = host.value(key, default, bool(bind), _one_of(options))
        host.add("pills", k=key, l="" if label_visibility == "collapsed" else label, o=list(map(str, options)))
        host.now.open[-1][-1] |= {"v": _text(chosen), "d": _text(default), "bound": bool(bind), "name": label}
        return chosen

    def selectbox(label: str, options: Sequence, index=0, *, key=None, bind=None, width=None, **_) -> object:
        default = options[index] if index is not None and options else None
        chosen = host.value(key, default, bool(bind), _one_of(options))
        host.add("select", k=key, l=label, o=list(map(str, options)), width=width)
        host.now.open[-1][-1] |= {"v": _text(chosen), "d": _text(default), "bound": bool(bind)}
        return chosen

    def number_input(
        label: str,
        min_value=None,
        max_value=None,
        value=None,
        step=None,
        format=None,
        *,
        key=None,
        bind=None,
        width=None,
        **_,
    ) -> float:
        chosen = host.value(key, value, bool(bind), float)
        host.add("number", k=key, l=label, width=width)
        host.now.open[-1][-1] |= {"v": chosen, "d": value, "min": min_value, "max": max_value, "bound": bool(bind)}
        return chosen

    def text(kind: str) -> Callable:
        def draw(
            label: str, value="", *, key=None, bind=None, width=None, placeholder=None, max_chars=None, **_
        ) -> str:
            chosen = host.value(key, value, bool(bind))
            host.add(kind, k=key, l=label, width=width, hint=placeholder)
            host.now.open[-1][-1] |= {"v": chosen, "d": value, "bound": bool(bind)}
            return chosen

        return draw

    def button(label: str, *, key: str = "", type=None, on_click=None, args=(), **_) -> bool:
        host.add("button", k=key, l=label, primary=type == "primary")
        pressed = host.now.state.pop(key, None) is not None
        if pressed and on_click:
            on_click(*args)
            raise Rerun
        return pressed

    def download(label: str, data: Any, file_name: str, mime: str, *, key: str, **_) -> None:
        host.add("button", k=key, l=label, file=file_name)
        host.downloads[key] = Download(data, file_name, mime)

    def uploader(label: str, type: Sequence[str] = (), *, key=None, **_) -> None:
        host.add("file", k=key, l=label, kinds=[f".{kind}" for kind in type])

    return {
        "pills": pills,
        "selectbox": selectbox,
        "number_input": number_input,
        "text_input": text("text"),
        "text_area": text("area"),
        "button": button,
        "file_uploader": uploader,
        "download_button": download,
    }


def _text(value: object) -> str | None:
    return None if value is None else format(value, "g") if isinstance(value, float) else str(value)


def _one_of(options: Sequence) -> Callable[[str], object]:
    def parse(text: str) -> object:
        for option in options:
            if str(option) == text:
                return option
        raise ValueError(text)

    return parse


# -- the order of runs, and what stays between them ------------------------------------------------
def _flow(host: Host) -> Json:
    def navigation(pages: Sequence[Page], **_) -> Page:
        host.pages, host.listed = {page.file: page for page in pages}, list(pages)
        return next(page for page in pages if page.url_path == host.now.path)

    def rerun(*_, **__) -> None:
        raise Rerun

    def switch_page(page: Page | str, *, query_params=None) -> None:
        found = page if isinstance(page, Page) else host.pages[page]
        raise Switch(found.url_path, query_params or {})

    return {
        "Page": Page,
        "navigation": navigation,
        "rerun": rerun,
        "switch_page": switch_page,
        "fragment": _decorator(lambda function: function),
        "cache_data": _decorator(_cached),
        "cache_resource": _decorator(cache),
    }


def _decorator(wrap: Callable) -> Callable:
    """Returns a decorator that is used with or without arguments."""

    def decorate(function: Callable | None = None, **_: object) -> Callable:
        return wrap(function) if function else wrap

    return decorate


def _cached(function: Callable) -> Callable:
    found = cache(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return found(*args, **kwargs)
        except TypeError:  # arguments that have no hash
            return function(*args, **kwargs)

    vars(call)["clear"] = found.cache_clear
    return call


def parted(message: bytes) -> Json:
    """Returns the parts of a message to the player (visuals.stage.message): what a page says, and the scene."""
    head, strip = (int.from_bytes(message[at : at + 4], "little") for at in (0, 4))
    found = json.loads(message[8 : 8 + head])
    meta = found.pop("meta")
    block = message[8 + head + strip :]
    return {"head": found, "strip": json.loads(message[8 + head : 8 + head + strip]), "meta": meta, "block": block}
