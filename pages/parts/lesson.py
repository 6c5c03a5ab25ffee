"""The parts all lessons share: heading, what the address asks for, presets, fields, parts.

The address is the document: every control is bound to a parameter of it, defaults are left out, and
each run reads it anew. Streamlit 1.67 makes six things worth knowing:

* A bound field of integers crashes on ?H=inf; one of floats drops it. So the fields hold floats.
* A bound value equal to its default leaves the address. The default therefore never depends on the
  other controls; where it is out of bounds the field has none.
* A control in a closed popover is told nothing, and later sends the value it had before Back or a
  link changed it. So the address is believed, not the control.
* A link to the page one is on reruns it but leaves the browser's address as it was: `asked` mends it.
* A fragment that polls sends the address that the browser has, which is the one before while news of a
  new one is on its way. Were the page run again from there, the news would be undone. And where it is run
  again by one of two fragments, what was pressed in the other is lost. `behind` tells of both.
* The server learns of ?step=, which the stage writes, only when a bound control is turned. Writing to
  st.query_params sends back the step it knows, an old one: nothing does so while controls are turned.
"""

from __future__ import annotations

import streamlit as st

from pages.parts import address as parts_address
from pages.parts.query import behind
from pages.parts.text import heading

# -- the parts of a page ---------------------------------------------------------------------------
PARTS = frozenset({"watch", "kernel", "run", "why"})


def parts(*more: str) -> frozenset[str]:
    """The parts asked for: ?view=watch gives one alone, for embedding, ?present=1 the stage for a lecture
    hall; anything else the whole page. `more` are those that this lesson has besides PARTS."""
    every = PARTS | set(more)
    view = "watch" if parts_address.presents(st.query_params) else st.query_params.get("view")
    return frozenset({view}) if view in every else every


def begin(title: str, idea: str, *more: str) -> tuple[frozenset[str], bool]:
    """The parts asked for (`more` as in `parts`), and whether they are the whole page: that begins with its heading."""
    asked = parts(*more)
    whole = len(asked) > 1
    if whole:
        heading(title, idea)
    return asked, whole


def settled() -> bool:
    """False in a browser's first run of a page: charts and code listings bring megabytes of script, which
    would hold up the stage's first paint. They wait for the run that `settle` asks for."""
    return st.context.url is None or "_settled" in st.session_state


def settle(parts: frozenset[str]) -> None:
    """The end of a page: what waits for a second run gets one. The stage alone has nothing that waits."""
    if parts != {"watch"} and not settled():
        _settle_soon()


@st.fragment(run_every=0.5)
def _settle_soon() -> None:
    """Run the page again shortly, now with everything on it."""
    if "_waited" in st.session_state and not behind():  # the second time: the first is the page's own run
        st.session_state["_settled"] = True
        st.rerun()
    st.session_state["_waited"] = True


def below():
    """The container of what stands under the cards: pictures left, kernels right, where there is room."""
    return st.container(key="below", horizontal=True)
