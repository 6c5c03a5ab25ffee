"""The stage: one canvas component that plays any Scene. Picture, transport and hover run in the browser;
nothing is sent back to the server.

The player is plain JavaScript in this folder: ES modules, joined in the order below into one module. Its texts are
English; the translation to the reader's language comes with each message (texts.py, texts.js).

A browser loads the player once, by a URL with the hash of its content. The component itself is loader.js, which is 60
times smaller: Streamlit sends a component's code again with each rerun.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from rjsmin import jsmin

from kernels.model.row import Row
from visuals.palette import DARK, LIGHT
from visuals.scene.payload import payload
from visuals.scene.scene import Scene
from visuals.stage.texts import catalog

HERE = Path(__file__).parent
SCRIPTS = (  # each after the modules it imports
    "texts",
    "decode",
    "diagram",
    "layout",
    "view",
    "colour",
    "draw",
    "explain",
    "side_panel",
    "strip",
    "chapter",
    "controls",
    "frame",
    "link",
    "input",
    "watch",
    "player",
)


DOWNLOADS = ("texts", "svg", "wrap", "strip_figure", "takeaway", "panels")  # loaded when a reader downloads something


LOADER = "loader"
PLAYER_PLACEHOLDER = "PLAYER_FILE"  # in loader.js: the name of the player's file


def script() -> str:
    """Returns the player as one JavaScript module."""
    return bundle(*SCRIPTS)


@cache
def player() -> str:
    """Returns the module that loader.js imports: the player, with the HTML and the styles of the stage."""
    return f"{script()}\nexport const html={json.dumps(html())},css={json.dumps(css())};\n"


@cache
def player_file() -> str:
    """Returns the name of the player's file. It contains the hash of the content, so that browsers never load it twice."""
    return f"player-{sha256(player().encode()).hexdigest()[:16]}.js"


@cache
def loader() -> str:
    """Returns the code of the component, which loads the player. Streamlit takes code of one line for a file's name."""
    return bundle(LOADER).replace(PLAYER_PLACEHOLDER, player_file()).replace(";", ";\n", 1)


def html() -> str:
    return (HERE / "stage.html").read_text("utf-8").strip()


def css() -> str:
    """Returns the styles of the stage without comments and without space around brackets and semicolons."""
    styles = re.sub(r"/\*.*?\*/", "", (HERE / "stage.css").read_text("utf-8"), flags=re.DOTALL)
    return re.sub(r"\s*([{};])\s*", r"\1", styles)


@cache
def bundle(*names: str) -> str:
    """Join modules of this folder into one, without comments and needless space. Each name comes after the modules
    that it imports. (rjsmin cannot handle a template within a template: a test looks for them.)"""
    modules = ((HERE / f"{name}.js").read_text("utf-8") for name in names)
    code = str(jsmin("\n".join(_IMPORTS_EXPORTS.sub("", module) for module in modules)))
    return _ONE_PARAMETER.sub(r"\1=>", _NEEDLESS.sub("", code))


# Imports and exports between the modules, which joining removes.
_IMPORTS_EXPORTS = re.compile(r"^import [^;]*;\n|^export (?!default)", re.MULTILINE)
# What rjsmin leaves, in code whose statements end with semicolons: lines, the last separator before a bracket,
# parentheses around the only parameter. A test looks for texts in which a module writes one of them.
_NEEDLESS = re.compile(r"(?<=[)}])\n|;(?=\})|,(?=[]})])")
_ONE_PARAMETER = re.compile(r"(?<![\w$])\((\w+)\)=>")


@cache
def _component():
    import streamlit as st

    return st.components.v2.component("stage", html=_PLACE, js=loader())  # pyright: ignore[reportAttributeAccessIssue]  # Streamlit loads it lazily


_PLACE = '<div class="stage-place"></div>'  # loader.js puts the stage here


def message(
    scene: Scene | None,
    *,
    step: int | None = None,
    height: int | None = None,
    param: str | None = "step",
    play: bool = False,
    hide: Sequence[str] = (),
    still: bool = False,
    fit: bool = False,
    orders: Sequence[tuple[str, str]] = (),
    every_step: tuple[bool, str] | None = None,
    chapter: Row | None = None,
    strip: Row | None = None,
) -> bytes:
    """Returns what the player receives: the lengths of a JSON head and of the strip's JSON (4 bytes each, little endian),
    the head, the strip, the scene's block. Arguments as in `mount`.

    It is one bytes object, because Streamlit sends bytes unchanged only if they are the whole message.
    """
    meta, block = payload(scene) if scene else (None, b"")
    head = {
        "meta": meta,
        "texts": catalog(),
        "tokens": {"light": LIGHT, "dark": DARK},
        "step": step,
        "height": height,
        "param": param,
        "play": play,
        "hide": list(hide),
        "still": still,
        "fit": fit,
        "chapter": chapter,
        "orders": [{"name": name, "text": text} for name, text in orders],
        "every": every_step and dict(zip(("all", "text"), every_step, strict=True)),
    }
    texts = [json.dumps(part, separators=(",", ":")).encode() for part in (head, strip)]
    return b"".join([*(len(text).to_bytes(4, "little") for text in texts), *texts, block])


def mount(scene: Scene | None, key: str, **options) -> None:
    """Show the scene, or the strip alone if there is none. A rerun with the same `key` keeps the player. While
    `scene.key` stays the same, the player keeps its step and goes on playing.

    step: the first step, unless the URL names one (default 0).
    height: pixels of the whole stage, caption included, at 900 px and wider (default 560).
    param: the query parameter that holds the step, beside speed, pin, zoom and loop; None leaves the URL alone.
    play: start playing in a loop, unless the reader prefers reduced motion.
    hide: names of controls to leave out, as in ?hide= (HIDEABLE in link.js).
    still: show a picture of the step, without controls.
    fit: at 900 px and wider, end with the window instead of having a height.
    chapter: the chapter beside the picture (pages.parts.chapters.OpenChapter.panel); None: none.
    orders: name and explanation of each order that the reader can choose.
    every_step: whether repeated steps are shown one by one, and the text of the button that changes this; None: no button.
    strip: the measured strip under the picture (visuals.strip.strip.strip); None: no strip.
    """
    show(message(scene, **options), key)


def pressed(key: str) -> Row | None:
    """Returns what the reader pressed on the stage `key` in this rerun, before it is mounted: {"do": "run", "size": "real"}
    say, else None."""
    import streamlit as st

    return (st.session_state.get(key) or {}).get("press")


def show(message: bytes, key: str) -> None:
    """Show a scene by its message, which may be cached from an earlier run."""
    _component()(key=key, data=message, height="content", on_press_change=_ignore)


def _ignore() -> None:
    """A press is read by `pressed`."""
