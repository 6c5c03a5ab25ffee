"""The cards under a chapter whose question waits for a guess: a line in their place until then.

Whether it waits is known in the browser alone: the stage's player sets an attribute of the document, and streamlit.css hides one
of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

import streamlit as st

from kernels.i18n import tr

_ASKS = "_asks"  # in the session: whether the open chapter has a question


def keep(has_question: bool) -> None:
    """Keeps whether the chapter on the stage has a question, for the cards below it."""
    st.session_state[_ASKS] = has_question


@contextmanager
def cards() -> Iterator[None]:
    """Draws the container of a page's cards, and the line in their place."""
    if st.session_state.get(_ASKS):
        text, button = escape(tr("The figures come after your guess.")), escape(tr("Show them"))
        st.html(f'<p class="kt-guess">{text} <button type="button" class="kt-reveal">{button}</button></p>')
    with st.container(key="cards", horizontal=True):
        yield
