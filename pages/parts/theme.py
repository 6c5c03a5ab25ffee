"""The styles that Streamlit's theme cannot express: one block of CSS with the colours of the palette."""

from functools import cache
from pathlib import Path

import streamlit as st

from pages.parts.replay import replayed
from visuals.palette import DARK, LIGHT

# In a slide or another page the lesson fills its frame.
EMBEDDED = '[data-testid="stMainBlockContainer"] { max-width: none; padding: 4px 6px !important; }'
# The stage alone fills the frame.
ALONE = """
[data-testid="stMain"] { overflow: auto; }
[data-testid="stMainBlockContainer"] { max-width: none; height: 100dvh; padding: 0 !important; }
[data-testid="stMainBlockContainer"] > [data-testid="stVerticalBlock"] { height: 100%; gap: 0; }
[data-testid="stElementContainer"]:has(> [data-testid^="stBidiComponent"]) { flex: 1; min-height: 0; }
[data-testid="stHeader"], [data-testid="stToolbar"], [data-testid="stStatusWidget"] { display: none; }
"""


def tokens() -> dict[str, str]:
    """Returns the palette of the current theme."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def draw(alone: bool = False) -> None:
    """Sends the styles. Streamlit looks through 37 KB for indents and tags each time, so they are sent again as they were."""
    dark = st.context.theme.type == "dark"
    replayed(lambda: st.html(css(alone)), "css", alone, dark, bool(st.context.is_embedded), styles=True)


def css(alone: bool = False) -> str:
    variables = "".join(f"--kt-{name}:{colour};" for name, colour in tokens().items())
    frame = ALONE if alone else EMBEDDED if st.context.is_embedded else ""
    return f"<style>:root{{{variables}}} {_rules()}{frame}</style>"


@cache
def _rules() -> str:
    """Returns theme.css in one line: Streamlit dedents every text at every run, which is slow for many lines."""
    lines = Path(__file__).with_name("theme.css").read_text(encoding="utf-8").splitlines()
    return " ".join(line.strip() for line in lines)
