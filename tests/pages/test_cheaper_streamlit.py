"""The steps of Streamlit that the app replaces do what Streamlit's own do."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime import metrics_util
from streamlit.runtime.state.safe_session_state import SafeSessionState
from streamlit.runtime.state.session_state import SessionState, Value

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
        session._event_loop.set_exception_handler(lambda loop, context: made.append(type(context["exception"])))
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


def test_the_function_behind_the_counting_one_is_found():
    def element(dg, body, *, width="stretch"):
        return dg, body, width

    counting = metrics_util.gather_metrics("element", element)
    assert cheaper._counted(counting) is element
    assert cheaper._counted(element) is cheaper._counted(3) is None


@pytest.fixture
def direct():
    """Calls elements directly, and as Streamlit does after the test."""
    owners = [(owner, dict(vars(owner))) for owner in (*DeltaGenerator.__mro__[:-1], st)]
    cheaper._call_elements_directly()
    yield
    for owner, before in owners:
        for name, found in before.items():
            if vars(owner)[name] is not found:
                setattr(owner, name, found)


def elements_of_a_page():
    import streamlit as st

    with st.container(key="box", horizontal=True):
        st.html("<p>text</p>")
        st.caption("small")
    box = st.empty().container()
    box.pills("letters", ["a", "b"], default="a", key="letters")
    st.number_input("n", value=2.0, key="n")
    st.text(st.session_state["letters"])
    st.fragment(lambda: st.caption("in a fragment"))()


def test_elements_that_are_called_directly_are_those_of_streamlit(request):
    streamlits = open_part(elements_of_a_page, {})
    assert cheaper._counted(DeltaGenerator.html) and cheaper._counted(st.pills.__func__)
    request.getfixturevalue("direct")
    assert not cheaper._counted(DeltaGenerator.html) and st.html.__func__ is DeltaGenerator.html
    assert not any(cheaper._counted(getattr(DeltaGenerator, name, None)) for name in dir(DeltaGenerator))
    own = open_part(elements_of_a_page, {})
    assert not own.exception and repr(own._tree) == repr(streamlits._tree)
    assert own.number_input(key="n").set_value(3.0).run().number_input(key="n").value == 3.0


@pytest.mark.parametrize("presses", [{}, {"presses": Value(None)}])
def test_the_state_of_a_component_is_its_value_until_something_is_pressed(presses):
    session = SessionState()
    session._new_widget_state.states.update(presses)
    assert cheaper._presenter("presses", "stage")({"step": 3}, session) == {"step": 3}


def test_a_press_is_part_of_the_state_of_a_component():
    session = SessionState()
    session._new_widget_state.states["presses"] = Value([{"event": "press", "value": {"do": "run"}}])
    session._new_widget_state.widget_metadata["presses"] = SimpleNamespace(value_type="json_trigger_value")
    shown = cheaper._presenter("presses", "stage")({"step": 3}, session)
    assert shown == {"step": 3, "press": {"do": "run"}}
