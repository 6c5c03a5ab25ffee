"""The request that a run answers: its URL, and the newer one that waits. Streamlit has no public way to either.

In a lesson the URL is the source of truth, and Streamlit sends what changes it in several ways. So a run must be able to
correct the URL that it was given, and must not outrun a newer request. With another version of Streamlit these functions do
nothing: a press that comes while a page is drawn may then be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequestType
from streamlit.runtime.state import get_session_state

from pages import streamlit_patches


def put_into_url(params: Mapping[str, str]) -> None:
    """Writes parameters into the URL of this run, without a message to the browser. "" removes one.

    `st.query_params` refuses those that are bound to a control.
    """
    if not streamlit_patches.fits():
        return
    with get_session_state().query_params() as found:
        for name, text in params.items():
            if text:
                found.set_with_no_forward_msg(name, text)
            else:
                found.discard_param_no_forward_msg(name)
    if context := get_script_run_ctx():
        context.query_string = _with(context.query_string, params)


def _with(url: str, params: Mapping[str, str]) -> str:
    """Returns the parameters of a URL with others in their place; "" removes one."""
    return urlencode(
        {name: text for name, text in {**dict(parse_qsl(url, keep_blank_values=True)), **params}.items() if text}
    )


def is_back() -> bool:
    """Returns whether Back or Forward led to this run: its URL may be that of a link, but none was pressed."""
    context = get_script_run_ctx()
    return streamlit_patches.fits() and context is not None and context.is_history_navigation


def has_other_fragments() -> bool:
    """Returns whether this run draws several fragments, one after the other. If one of them runs the page again, Streamlit
    drops what was pressed in the others."""
    context = get_script_run_ctx()
    return streamlit_patches.fits() and context is not None and len(context.fragment_ids_this_run or ()) > 1


def end_for_waiting(written: Mapping[str, str]) -> None:
    """Ends this run if the browser has sent a request for another one, which then runs the whole page. written: parameters to
    put into its URL; "" removes one.

    `st.rerun` would put the page and the URL of this run into that request: a link that was followed is lost, and a control
    gets its old value back.
    """
    context = get_script_run_ctx(suppress_warning=True)
    requests = context.script_requests if context and streamlit_patches.fits() else None
    if not requests or requests._state is not ScriptRequestType.RERUN:
        return
    sent = requests._rerun_data
    requests.request_rerun(
        RerunData(
            _with(sent.query_string, written),
            page_script_hash=sent.page_script_hash,
            page_name=sent.page_name,
            cached_message_hashes=sent.cached_message_hashes,
            is_history_navigation=sent.is_history_navigation,
            context_info=sent.context_info,
        )
    )
    st.empty()  # Streamlit ends the run at its next element
