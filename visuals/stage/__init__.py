"""The stage: one canvas component that plays any Scene. Picture, transport and hover live in the browser;
nothing comes back to the server.

The player is plain JavaScript in this folder, joined in the order below and sent as one module.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from visuals.palette import DARK, LIGHT
from visuals.scene import Scene

HERE = Path(__file__).parent
SCRIPTS = ("decode.js", "layout.js", "colour.js", "draw.js", "explain.js", "pane.js", "link.js", "player.js")


def script() -> str:
    """The player as one JavaScript module, indents and whole-line comments left out: they stay here."""
    lines = (line.strip() for name in SCRIPTS for line in (HERE / name).read_text("utf-8").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


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
    scene: Scene, *, step: int | None = None, height: int | None = None, param: str | None = "step"
) -> bytes:
    """What the player gets: the length of a JSON head (4 bytes, little endian), the head, the scene's block.

    One piece of bytes, because Streamlit keeps bytes as they are only where they are the whole message.
    """
    meta, block = scene.payload()
    head = {
        "meta": meta,
        "tokens": {"light": LIGHT, "dark": DARK},
        "step": step,
        "height": height,
        "param": param,
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    return len(text).to_bytes(4, "little") + text + block


def mount(
    scene: Scene,
    key: str,
    *,
    step: int | None = None,
    height: int | None = None,
    param: str | None = "step",
) -> None:
    """Show the scene. A rerun with the same `key` keeps the player, and its step and playing while
    `scene.key` stays.

    step: where to begin, unless the address says (0 when left out).
    height: pixels of the whole stage, caption included, at 900 px and wider (560 when left out).
    param: the query parameter that holds the step; None leaves the address alone.
    """
    _component()(key=key, data=message(scene, step=step, height=height, param=param), height="content")
