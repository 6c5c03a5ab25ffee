"""The language of the reader: ?lang= if a translation exists, else the one that the browser asks for, else English."""

from __future__ import annotations

from threading import local

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kernels import i18n
from pages.parts import gpu_choice
from pages.parts.address import LANGUAGE as PARAM

_KEY = "_language"
_thread = local()  # a thread that runs pages runs those of one session: its language is known after the first look


def of_reader() -> str:
    """Returns the language of the session that runs in this thread, English outside of sessions.

    Every text calls it, also in a fragment, for which the frame of the page does not run.
    """
    if found := getattr(_thread, "language", ""):
        return found
    if get_script_run_ctx(suppress_warning=True) is None:
        return i18n.SOURCE
    _thread.language = st.session_state.get(_KEY, i18n.SOURCE)
    return _thread.language


def choose() -> str:
    """Sets the language of this session and returns it."""
    wish = st.query_params.get(PARAM)
    found = wish if wish in i18n.languages() else i18n.best_language(st.context.locale)
    st.session_state[_KEY] = found
    if get_script_run_ctx(suppress_warning=True) is not None:
        _thread.language = found
    return found


def kept() -> dict[str, str]:
    """Returns the URL parameters that links to other pages keep: the language, and the card of recordings."""
    wish = st.query_params.get(PARAM)
    return ({PARAM: wish} if wish in i18n.languages() else {}) | gpu_choice.kept()


i18n.follow(of_reader)
