"""Buttons that save a text of the page as a file, without asking the server."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pages.parts.component import component

SCRIPT = Path(__file__).with_name("save.js")


class File(NamedTuple):
    label: str  # of the button
    name: str
    kind: str  # media type
    text: str


def save_buttons(files: Sequence[File], key: str) -> None:
    """Draws a button for each file.

    The texts travel with the page: Streamlit forgets a file of st.download_button after two script runs of any reader.
    """
    component("save", SCRIPT)(key=key, data=[file._asdict() for file in files], height="content", width="content")
