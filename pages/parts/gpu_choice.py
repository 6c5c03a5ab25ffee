"""The GPU that recordings are shown from: the URL's, else each ladder's default one. A control where there are
several."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kernels import records
from kernels.i18n import tr
from kernels.records import files, gpus
from kernels.records.gpus import PARAM, Gpu
from pages.parts.address import quoted
from pages.parts.query import note_on, rerun, write
from pages.parts.text import note, quiet

_PREFERRED = "_gpu_of_lesson"  # the key of the GPU that this page shows if the URL names none
_OF_PAGE = "_gpu_of_page"  # the choice in the last run of the whole page: a fragment draws only a part of it


def of_reader() -> str:
    """Returns the key of the GPU in the URL of the session that runs in this thread, else that which its page prefers;
    "" without one or outside of sessions."""
    return (_of_url() or st.session_state.get(_PREFERRED, "")) if _can_choose() else ""


def _can_choose() -> bool:
    return len(records.known_gpus()) > 1 and get_script_run_ctx(suppress_warning=True) is not None


def _of_url() -> str:
    """Returns the key of the GPU in the URL; "" if it names none that is known."""
    key = st.query_params.get(PARAM, "")
    return key if key in records.known_gpus() else ""


def prefer(gpu: Gpu | None) -> None:
    """Shows this page from a GPU unless the URL names another one: its kernels have rows of few GPUs. Call it before
    the page reads any row."""
    st.session_state[_PREFERRED] = gpu.key if gpu else ""
    st.session_state[_OF_PAGE] = of_reader()


def begin_page() -> None:
    """Keeps the choice that the whole page is drawn with. A URL with an unknown GPU gets a note."""
    st.session_state.pop(_PREFERRED, None)
    st.session_state[_OF_PAGE] = of_reader()
    wish, known = st.query_params.get(PARAM), records.known_gpus()
    if wish and wish not in known:
        fields = {"known": ", ".join(known), "gpu": quoted(wish)}
        note_on(PARAM, [tr("card must be one of {known}; got {gpu}: each lesson shows its usual GPU", **fields)])


def kept() -> dict[str, str]:
    """Returns the URL parameter that links to other pages keep."""
    wish = _of_url() if _can_choose() else ""
    return {PARAM: wish} if wish else {}


def control(*ladders: str) -> None:
    """Draws the choice between the GPUs that have rows of these ladders; nothing if there is one GPU in all.

    A GPU that has none of them is named."""
    if files.problems():
        note(*files.problems())
    wish = of_reader()
    if wish != st.session_state.get(_OF_PAGE, wish):  # chosen in a fragment: the rest of the page is old
        rerun(PARAM)
    known, shown = records.gpus_of(*ladders), records.shown(*ladders)
    if shown and len(known) > 1:
        names = {gpu.key: gpu.name for gpu in known}
        st.session_state[PARAM] = shown.key
        st.pills(
            tr("Recorded on"),
            list(names),
            format_func=names.__getitem__,
            required=True,
            key=PARAM,
            on_change=_choose,
            args=(st.session_state.get(_PREFERRED) or known[0].key,),
        )
    if wish and shown and shown.key != wish:
        named = {"gpu": records.known_gpus()[wish].name, "shown": shown.name}
        quiet(tr("No recording of these kernels exists for the GPU {gpu}. These are of {shown}.", **named))


def _choose(default: str) -> None:
    """Writes the GPU that the reader pressed to the URL. It is not bound to it: the URL of a run of a fragment alone
    would still have the old one."""
    chosen = st.session_state[PARAM]
    write(PARAM, "" if chosen == default else chosen)


gpus.follow(of_reader)
