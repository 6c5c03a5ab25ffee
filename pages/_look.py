"""The look that Streamlit's theme cannot say: one block of CSS, its colours from the palette."""

from functools import cache
from pathlib import Path

import streamlit as st

from visuals.palette import DARK, LIGHT

# In somebody's slide or page the lesson fills the frame it was given.
EMBEDDED = '[data-testid="stMainBlockContainer"] { max-width: none; padding: 4px 6px !important; }'


def tokens() -> dict[str, str]:
    """The palette of the theme on screen."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def css() -> str:
    variables = "".join(f"--kt-{name}:{colour};" for name, colour in tokens().items())
    frame = EMBEDDED if st.context.is_embedded else ""
    return f"<style>:root{{{variables}}}\n{_rules()}{frame}</style>"


@cache
def _rules() -> str:
    return Path(__file__).with_name("_look.css").read_text(encoding="utf-8")
