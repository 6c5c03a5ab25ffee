"""Draws the controls of a lesson after its stage, though they are above it.

A reader who changes a control waits for the stage. What a control shows is known from the URL before it is drawn, and most
controls are drawn as they were. So they need not delay the stage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from pages.parts.turns import TURNS

_LATER = "_after_the_stage"  # in the session: the container of the controls, and what draws them
_SHOWN = "_controls_shown"  # whether the last run of this page had controls


def begin(place: Any) -> None:
    """Keeps what `later` gets, from now on, for `draw_controls`. They will be in the container `place`.

    If the browser shows no controls yet, they are drawn at once: else the stage would move down when they come.
    """
    if st.session_state.get(_SHOWN):
        st.session_state[_LATER] = place, []
    st.session_state[_SHOWN] = True


def forget() -> None:
    """Forgets what a run that was cut off has not drawn."""
    st.session_state.pop(_LATER, None)


def no_controls() -> None:
    """Notes that the browser shows no controls: it has opened another page, or a view without them."""
    st.session_state.pop(_SHOWN, None)


def later(draw: Callable[[], Any]) -> None:
    """Calls `draw()` after the stage of this run; at once if no line of controls has begun."""
    if pending := st.session_state.get(_LATER):
        pending[1].append(draw)
    else:
        draw()


def draw_controls() -> None:
    """Draws the controls that wait, after the stages of other readers."""
    place, draws = st.session_state.pop(_LATER, (None, ()))
    if not draws:
        return
    with TURNS.paused():
        pass
    with place:
        for draw in draws:
            draw()
