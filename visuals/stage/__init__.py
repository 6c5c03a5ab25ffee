"""The stage: one canvas component that plays any Scene. Picture, transport and hover live in the browser;
nothing comes back to the server.

The player is plain JavaScript in this folder, ES modules as they stand, joined in the order below and sent as one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from rjsmin import jsmin

from visuals.palette import DARK, LIGHT
from visuals.scene.payload import payload
from visuals.scene.scene import Scene

HERE = Path(__file__).parent
SCRIPTS = (  # each after what it imports
    "view",
    "decode",
    "layout",
    "colour",
    "draw",
    "explain",
    "pane",
    "face",
    "frame",
    "link",
    "input",
    "player",
)


def script() -> str:
    """The player as one JavaScript module."""
    return joined(*SCRIPTS)


@cache
def joined(*names: str) -> str:
    """Modules of this folder as one, in an order in which each stands after what it imports; comments and needless
    space left out: they stay here. (rjsmin takes no template within a template: a test looks for them.)"""
    modules = ((HERE / f"{name}.js").read_text("utf-8") for name in names)
    return jsmin("\n".join(_OUTSIDE.sub("", module) for module in modules))


# What makes a file a module of its own; joined, they share one.
_OUTSIDE = re.compile(r"^import [^;]*;\n|^export (?!default)", re.MULTILINE)


@cache
def _component():
    import streamlit as st

    return st.components.v2.component(
        "stage",
        html=(HERE / "stage.html").read_text(encoding="utf-8"),
        css=(HERE / "stage.css").read_text(encoding="utf-8"),
        js=script(),
    )


def message(
    scene: Scene,
    *,
    step: int | None = None,
    height: int | None = None,
    param: str | None = "step",
    play: bool = False,
    hide: Sequence[str] = (),
    still: bool = False,
) -> bytes:
    """What the player gets: the length of a JSON head (4 bytes, little endian), the head, the scene's block.
    Arguments as in `mount`.

    One piece of bytes, because Streamlit keeps bytes as they are only where they are the whole message.
    """
    meta, block = payload(scene)
    head = {
        "meta": meta,
        "tokens": {"light": LIGHT, "dark": DARK},
        "step": step,
        "height": height,
        "param": param,
        "play": play,
        "hide": list(hide),
        "still": still,
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "little") + text + block


def mount(scene: Scene, key: str, **how) -> None:
    """Show the scene. A rerun with the same `key` keeps the player, and its step and playing while
    `scene.key` stays.

    step: where to begin, unless the address says (0 when left out).
    height: pixels of the whole stage, caption included, at 900 px and wider (560 when left out).
    param: the query parameter that holds the step, beside speed, pin, zoom and loop; None leaves the address alone.
    play: begin to play, over and over, unless the reader wants less motion.
    hide: names of controls to leave out, as in ?hide= (HIDEABLE in link.js).
    still: a picture of the step and nothing to press.
    """
    show(message(scene, **how), key)


def show(message: bytes, key: str) -> None:
    """Show a scene by its message, which may have been kept from an earlier run."""
    _component()(key=key, data=message, height="content")
