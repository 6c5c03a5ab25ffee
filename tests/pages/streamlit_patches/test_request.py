"""A run that a page asks for keeps what the browser has sent since the run began."""

from ast import literal_eval
from types import SimpleNamespace
from urllib.parse import parse_qsl

import pytest
from streamlit.commands import execution_control
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData, ScriptRequests

from pages.parts import query
from pages.streamlit_patches import VERSION, request
from tests.helpers.page_runner import open_part


def request_left_after(monkeypatch, *waiting: RerunData, ask=query.rerun) -> RerunData:
    """Returns the request that is left when a run with the URL K=3 asks for another one by `ask()`, and `waiting` came
    before."""
    requests = ScriptRequests()
    context = SimpleNamespace(
        script_requests=requests,
        query_string="K=3",
        page_script_hash="here",
        cached_message_hashes=frozenset(),
        context_info=None,
    )

    def end():
        raise EndOfRun

    for one in waiting:
        requests.request_rerun(one)
    monkeypatch.setattr(query.st, "query_params", dict(parse_qsl(context.query_string)))
    monkeypatch.setattr(query, "in_browser", lambda: True)
    for module in (request, execution_control):
        monkeypatch.setattr(module, "get_script_run_ctx", lambda *_, **__: context)
    monkeypatch.setattr(execution_control.ThreadState, "get", lambda: SimpleNamespace(run_location=None))
    monkeypatch.setattr(query.st, "empty", end)
    monkeypatch.setattr(execution_control, "_force_yield_point", end)
    with pytest.raises(EndOfRun):
        ask()
    return requests.on_scriptrunner_yield().rerun_data


class EndOfRun(Exception):
    """What Streamlit ends a run with, at its next element."""


def K(value: float) -> WidgetStates:
    return WidgetStates(widgets=[WidgetState(id="K", double_value=value)])


def test_a_run_that_the_page_asks_for_has_its_url(monkeypatch):
    assert request_left_after(monkeypatch).query_string == "K=3"


@pytest.mark.parametrize("fragment", [None, "cards"])
def test_a_change_that_the_browser_sent_keeps_its_url(monkeypatch, fragment):
    """st.rerun gave the number field its old value back: it combined K = 5 with the URL K=3."""
    sent = RerunData("K=5", K(5), "here", fragment_id=fragment)
    left = request_left_after(monkeypatch, RerunData("K=4", K(4), "here"), sent)
    assert (left.query_string, left.widget_states.widgets[0].double_value) == ("K=5", 5)
    assert not left.fragment_id_queue  # the whole page runs


@pytest.mark.parametrize("card", ["other", ""])
def test_what_a_run_has_written_is_put_into_a_request_from_before_it(monkeypatch, card):
    """A card that the reader chose was lost when a timer in the browser had sent its request with the old URL."""

    def choose():
        query.st.query_params["card"] = card
        query.rerun("card")

    poll = RerunData("K=5&card=old", K(5), "here", fragment_id="poll", is_auto_rerun=True)
    left = request_left_after(monkeypatch, poll, ask=choose)
    assert dict(parse_qsl(left.query_string)) == {"K": "5"} | ({"card": card} if card else {})
    assert not left.fragment_id_queue and left.widget_states.widgets[0].double_value == 5


def test_a_link_that_the_browser_sent_is_followed(monkeypatch):
    assert request_left_after(monkeypatch, RerunData("", K(3), "there")).page_script_hash == "there"


def test_streamlit_alone_would_lose_the_link(monkeypatch):
    """If this fails, st.rerun keeps what the browser has sent: `end_for_waiting` can go."""
    sent = RerunData("K=5", K(5), "there")
    left = request_left_after(monkeypatch, sent, ask=query.st.rerun)
    assert (left.page_script_hash, left.query_string) == ("here", "K=3")


def bound_control():
    import streamlit as st

    st.number_input("K", value=2.0, key="K", bind="query-params")
    try:
        st.query_params["K"] = "3"
    except st.errors.StreamlitAPIException as error:
        st.caption(str(error))


def test_streamlit_alone_refuses_to_write_the_parameter_of_a_control():
    """If this fails, st.query_params writes it: `put_into_url` can go."""
    (error,) = open_part(bound_control).caption
    assert "bound to a widget" in error.value


def corrected():
    import streamlit as st

    from pages.streamlit_patches.request import put_into_url

    st.number_input("K", value=2.0, key="K", bind="query-params")
    put_into_url({"K": "3", "C": ""})
    st.caption(str(st.query_params.to_dict()))


@pytest.mark.parametrize(("version", "url"), [(VERSION, {"K": "3", "M": "8"}), ("1.68.0", {"C": "1", "M": "8"})])
def test_the_url_of_a_run_is_corrected(monkeypatch, version, url):
    monkeypatch.setattr("streamlit.__version__", version)
    shown = open_part(corrected, C=1, M=8).caption[0].value
    assert literal_eval(shown) == url


def test_with_another_version_a_run_is_asked_for_as_streamlit_does_it(monkeypatch):
    monkeypatch.setattr("streamlit.__version__", "1.68.0")
    left = request_left_after(monkeypatch, RerunData("K=5", K(5), "there"))
    assert (left.page_script_hash, left.query_string) == ("here", "K=3")
