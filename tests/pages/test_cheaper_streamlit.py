"""The steps of Streamlit that the app replaces do what Streamlit's own do."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from streamlit.runtime.state.safe_session_state import SafeSessionState
from streamlit.runtime.state.session_state import SessionState

from pages import _cheaper_streamlit as cheaper
from tests.helpers.page_runner import open_part


def a_session() -> SafeSessionState:
    state = SessionState()
    state["mine"], state["none"] = 3, None
    return SafeSessionState(state, lambda: None)


def test_the_view_of_a_session_is_its_filtered_state():
    session = a_session()
    view, streamlits = cheaper._SessionView(session), session._state.filtered_state
    assert dict(view) == dict(streamlits) == {"mine": 3, "none": None} and len(view) == 2
    assert "mine" in view and "none" in view and "other" not in view
    with pytest.raises(KeyError):
        view["other"]


def test_fields_keep_their_values_with_it(monkeypatch):
    def fields():
        import streamlit as st

        st.number_input("a", value=1.0, key="a")
        st.number_input("empty", value=2.0, key="empty")
        st.text_area("text", "some", key="text")
        st.text(sorted(name for name in st.session_state if name in ("a", "empty", "text")))

    for own in (False, True):
        with monkeypatch.context() as patch:
            if own:
                patch.setattr(SafeSessionState, "filtered_state", property(cheaper._SessionView))
            at = open_part(fields, {"empty": None})
            assert (at.number_input(key="a").value, at.number_input(key="empty").value) == (1.0, None)
            at.number_input(key="a").set_value(5.0).run()
            assert at.number_input(key="a").value == 5.0 and at.text_area(key="text").value == "some"
            assert at.text[0].value == "['a', 'empty', 'text']"


def in_a_loop(act):
    """Runs `act(session, made)` in another thread while a loop runs; returns what the calls appended to `made`."""

    async def run():
        session, made, done = SimpleNamespace(_event_loop=asyncio.get_running_loop()), [], asyncio.Event()
        session._event_loop.set_exception_handler(
            lambda loop, context: made.append(type(context["exception"]))
        )
        thread = threading.Thread(target=act, args=(session, made))
        thread.start()
        await asyncio.to_thread(thread.join)
        cheaper._call_soon(session, done.set)
        await asyncio.wait_for(done.wait(), 20)
        return made

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()


def test_calls_are_made_in_their_order():
    def act(session, made):
        for n in range(1000):
            cheaper._call_soon(session, lambda n=n: made.append(n))

    assert in_a_loop(act) == list(range(1000))


def test_a_call_that_fails_stops_no_other():
    def act(session, made):
        cheaper._call_soon(session, lambda: made.append(1))
        cheaper._call_soon(session, lambda: 1 / 0)
        cheaper._call_soon(session, lambda: made.append(2))

    assert in_a_loop(act) == [1, ZeroDivisionError, 2]


def test_calls_to_a_closed_loop_are_dropped():
    loop = asyncio.new_event_loop()
    loop.close()
    cheaper._call_soon(SimpleNamespace(_event_loop=loop), lambda: None)
