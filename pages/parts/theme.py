"""The look that Streamlit's theme cannot say: one block of CSS, its colours from the palette."""

from functools import cache
from pathlib import Path

import streamlit as st

from visuals.palette import DARK, LIGHT

# In somebody's slide or page the lesson fills the frame it was given.
EMBEDDED = '[data-testid="stMainBlockContainer"] { max-width: none; padding: 4px 6px !important; }'
# The stage alone: it is given all of the frame, and nothing stands round it or before it.
ALONE = """
[data-testid="stMain"] { overflow: auto; }
[data-testid="stMainBlockContainer"] { max-width: none; height: 100dvh; padding: 0 !important; }
[data-testid="stMainBlockContainer"] > [data-testid="stVerticalBlock"] { height: 100%; gap: 0; }
[data-testid="stElementContainer"]:has(> [data-testid^="stBidiComponent"]) { flex: 1; min-height: 0; }
[data-testid="stHeader"], [data-testid="stToolbar"], [data-testid="stStatusWidget"] { display: none; }
"""


def tokens() -> dict[str, str]:
    """The palette of the theme on screen."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def css(alone: bool = False) -> str:
    variables = "".join(f"--kt-{name}:{colour};" for name, colour in tokens().items())
    frame = ALONE if alone else EMBEDDED if st.context.is_embedded else ""
    return f"<style>:root{{{variables}}} {_rules()}{frame}</style>"


@cache
def _rules() -> str:
    """In one line: Streamlit dedents every text at every run, which takes long where lines are many."""
    lines = Path(__file__).with_name("theme.css").read_text(encoding="utf-8").splitlines()
    return " ".join(line.strip() for line in lines)
