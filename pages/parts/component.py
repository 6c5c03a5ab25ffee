"""Components of the pages: a script each, which the browser runs with the data of a page."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st


@cache
def component(name: str, script: Path):
    """Returns a component by its name. Its script is part of each of its messages."""
    js = script.read_text(encoding="utf-8")
    return st.components.v2.component(name, js=js, isolate_styles=False)  # pyright: ignore[reportAttributeAccessIssue]  # Streamlit loads it lazily
