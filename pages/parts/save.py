"""Buttons that save a text of the page as a file, without asking the server."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import streamlit as st


class File(NamedTuple):
    label: str  # of the button
    name: str
    kind: str  # media type
    text: str


@cache
def _component():
    js = Path(__file__).with_name("save.js").read_text(encoding="utf-8")
    return st.components.v2.component("save", js=js, isolate_styles=False)  # pyright: ignore[reportAttributeAccessIssue]  # Streamlit loads it lazily


def save_buttons(files: Sequence[File], key: str) -> None:
    """Draws a button for each file.

    The texts travel with the page: Streamlit forgets a file of st.download_button after two script runs of any reader.
    """
    _component()(key=key, data=[file._asdict() for file in files], height="content", width="content")
