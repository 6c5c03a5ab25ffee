"""The styles that Streamlit's theme cannot express: one block of CSS with the colours of both palettes.

A system can change from light to dark while a page is open. The browser then takes the other palette at once. Charts have
their colours from the server, so a component runs the page again.
"""

from functools import cache
from pathlib import Path

import streamlit as st

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

# Streamlit calls it when the component is drawn, and again when the theme changes.
SCHEME = """
const sent = new WeakMap();
export default function ({ data, parentElement, setStateValue }) {
  const dark = getComputedStyle(parentElement).colorScheme === "dark";
  if (dark === data.dark) sent.delete(parentElement);
  else if (sent.get(parentElement) !== dark) {
    sent.set(parentElement, dark);
    setStateValue("dark", dark);
  }
}
"""


def tokens() -> dict[str, str]:
    """Returns the palette of the current theme."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def draw(alone: bool = False) -> None:
    """Sends the styles."""
    st.html(css(alone))
    if st.context.url is not None and not alone:  # the stage alone has its colours from the player
        _watch_scheme(st.context.theme.type == "dark")


def css(alone: bool = False) -> str:
    """Returns the styles as an element of HTML. A colour follows the `color-scheme` of the element that uses it.

    That is Streamlit's theme inside the app, and the system's outside of it.
    """
    variables = "".join(f"--kt-{name}:light-dark({colour},{DARK[name]});" for name, colour in LIGHT.items())
    frame = ALONE if alone else EMBEDDED if st.context.is_embedded else ""
    return f"<style>:root{{color-scheme:light dark;{variables}}} {_rules()}{frame}</style>"


def _watch_scheme(dark: bool) -> None:
    """Draws nothing. Runs the page again if the browser's theme is not `dark`."""
    _component()(key="scheme", data={"dark": dark})


@cache
def _component():
    return st.components.v2.component("scheme", js=SCHEME, isolate_styles=False)  # pyright: ignore[reportAttributeAccessIssue]  # Streamlit loads it lazily


@cache
def _rules() -> str:
    """Returns the rules of both files in one line: Streamlit dedents every text at every run, which is slow for many lines."""
    texts = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("streamlit.css", "theme.css"))
    return " ".join(line.strip() for text in texts for line in text.splitlines())
