"""The parts all lessons share: heading, URL parameters, presets, fields, parts.

The URL is the source of truth. Every control is bound to a URL parameter, defaults are left out, and each run reads
the URL anew. Six facts about Streamlit 1.67 matter here:

* A bound field of integers crashes on ?H=inf; one of floats drops it. So the fields hold floats.
* A bound value equal to its default is removed from the URL. So the default never depends on the other controls. If
  the default is out of bounds, the field has none.
* A control in a closed popover is not updated. Later it sends the value it had before Back or a link changed it. So
  the page reads the URL and not the control.
* A link to the current page reruns it but leaves the browser's URL unchanged: `query.current_values` corrects the URL.
* A fragment that polls sends the browser's URL. That can be the previous one while a new one is on its way. A rerun of
  the page from there would undo the change. A rerun by one of two fragments loses what was pressed in the other.
  `query.url_is_stale` detects both cases.
* The stage writes ?step=, and the server learns of it only when a bound control changes. Writing to st.query_params
  sends back the old step. So no code writes to it while controls change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from kernels.i18n import tr
from pages.parts import address, chapters, guess
from pages.parts.chapters import OpenChapter
from pages.parts.query import in_browser, is_story, rerun, url_is_stale, wrong_choices
from pages.parts.text import heading, note, note_in_place

# -- the parts of a page ---------------------------------------------------------------------------
_NOTES = "_notes"  # in the session: the place of notes under the controls
PARTS = frozenset({"watch", "kernel", "run", "why"})


def parts(*more: str) -> frozenset[str]:
    """Returns the parts to draw. `more` are the parts that this lesson has besides PARTS.

    ?view=watch gives one part alone, for embedding. ?present=1 gives the stage alone, for a lecture hall. So does a
    story in a frame. Anything else gives the whole page.
    """
    every = PARTS | set(more)
    view = "watch" if is_stage_alone() else st.query_params.get(address.VIEW)
    return frozenset({view}) if view in every else every


def is_stage_alone() -> bool:
    """Returns whether the page is the stage alone, with its chapter: in a lecture hall or in a frame."""
    watched = st.query_params.get(address.VIEW) == "watch" or is_story()
    return address.is_presented(st.query_params) or bool(st.context.is_embedded and watched)


def begin(title: str, *more: str, page: str, chapter: OpenChapter | None = None) -> tuple[frozenset[str], bool]:
    """Returns the parts to draw (`more` as in `parts`) and whether they are the whole page. Draws its heading if so.

    `page` is the file of the lesson: if it has a story, links switch between its modes. `chapter` is the open one.
    """
    guess.keep(has_question=False)  # until a stage is drawn
    visible = parts(*more)
    whole = len(visible) > 1
    if whole:
        with st.container(key="title_row", horizontal=True, vertical_alignment="center"):
            heading(title)
            chapters.switch(page, chapter)
    views = (address.EXPLORE, address.STORY, *sorted(PARTS | set(more)))
    note_in_place(*address.choice_notes(address.VIEW, st.query_params.get(address.VIEW), views))
    note_in_place(*(chapter.notes() if chapter else ()))
    return visible, whole


@contextmanager
def controls(visible: bool) -> Iterator[None]:
    """Draws what the block draws, a lesson's controls, in a line that wraps. On a phone they are folded under one word.

    If not `visible`, the block only reads the URL."""
    if visible:
        with st.container(key="controls", horizontal=True, vertical_alignment="center"):
            label = tr("Controls")
            st.html(f'<details class="kt-fold"><summary>{label}</summary></details>')
            yield
    else:
        yield
    st.session_state[_NOTES] = st.empty()


def deferred_loaded() -> bool:
    """Returns False in a browser's first run of a page.

    Charts and code listings load megabytes of script, which would delay the stage's first paint. They are drawn in the
    second run, which `load_deferred` starts.
    """
    return not in_browser() or "_settled" in st.session_state


def load_deferred(parts: frozenset[str]) -> None:
    """Starts the second run of a page, at its end. The stage alone has no deferred parts.

    Under the controls it names the choices of the URL that the page does not have: all are read by then."""
    if wrong := wrong_choices():
        with st.session_state[_NOTES].container():
            note(*wrong)
    if parts != {"watch"} and not deferred_loaded():
        _load_soon()


@st.fragment(run_every=0.5)
def _load_soon() -> None:
    """Runs the page again after a short time, now with all parts."""
    if (
        "_waited" in st.session_state and not url_is_stale()
    ):  # not in the fragment's first run, which is part of the page's
        st.session_state["_settled"] = True
        rerun()
    st.session_state["_waited"] = True


def below():
    """Returns the container under the cards: pictures left and kernels right if the page is wide enough."""
    return st.container(key="below", horizontal=True)
