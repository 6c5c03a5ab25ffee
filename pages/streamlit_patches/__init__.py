"""Fixes of faults in Streamlit that need its private parts: one table, applied to the one version that it was written for.

Each row has a canary in tests/pages/streamlit_patches: a test that fails when Streamlit itself has mended the fault. The
row and its module can go then. With another version of Streamlit the app starts without them and logs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import streamlit as st
from starlette.middleware import Middleware

from pages.streamlit_patches import stale_requests, unsent_messages

VERSION = "1.67.0"


class Patch(NamedTuple):
    """install: fixes the fault, and returns the middleware that the app needs for it."""

    target: str
    why: str
    issue: str
    install: Callable[[], Sequence[Middleware]] = tuple  # with nothing to install, pages call the fix


PATCHES = (
    Patch(
        "streamlit.runtime.forward_msg_queue.ForwardMsgQueue.clear, replaced",
        "A fragment that runs before the browser has received its page removes its own first drawing from the page.",
        "not reported; since https://github.com/streamlit/streamlit/pull/9381",
        unsent_messages.install,
    ),
    Patch(
        "streamlit.proto.BackMsg_pb2.BackMsg, read by a middleware of the app",
        "A timer's request for a fragment of the page that the reader has left empties the new page; a press there brings it back.",
        "not reported; of the same kind: https://github.com/streamlit/streamlit/issues/15084",
        stale_requests.install,
    ),
    Patch(
        "streamlit.runtime.state.query_params.QueryParams, written by request.put_into_url",
        "A page cannot correct a parameter of its URL that is bound to a control.",
        "https://github.com/streamlit/streamlit/issues/14670",
    ),
    Patch(
        "streamlit.runtime.scriptrunner_utils: ScriptRequests, ScriptRunContext, read by request",
        "st.rerun puts the page and the URL of its run into a newer request: a link or a press is lost.",
        "not reported; of the same kind: https://github.com/streamlit/streamlit/issues/7961",
    ),
)


def fits() -> bool:
    """Returns whether the installed version of Streamlit is that of the patches."""
    return st.__version__ == VERSION


def apply() -> list[Middleware]:
    """Fixes all faults, and returns the middleware that the app needs for it. Nothing for another version of Streamlit."""
    if not fits():
        logging.getLogger(__name__).warning(
            "Streamlit is %s. The fixes for %s are left out: %s",
            st.__version__,
            VERSION,
            "; ".join(patch.target for patch in PATCHES),
        )
        return []
    return [middleware for patch in PATCHES for middleware in patch.install()]
