"""HTML of a page that the browser replaces when the server has news, without a rerun of the page."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st

from pages.parts.watch import Watch


@cache
def _component():
    js = Path(__file__).with_name("live.js").read_text(encoding="utf-8")
    return st.components.v2.component("live", js=js, isolate_styles=False)  # pyright: ignore[reportAttributeAccessIssue]  # Streamlit loads it lazily


def live(html: str, key: str, part: str, watch: Watch | None, alone: bool) -> None:
    """Draws trusted HTML. `part`: its name in the answers about `watch`. `alone`: no stage on the page asks for them."""
    data = {"html": html, "part": part, "watch": watch.path if watch else "", "alone": alone}
    _component()(key=key, data=data, height="content")
