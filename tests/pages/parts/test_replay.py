"""A part that is drawn again from kept messages: the same elements at the same places, without drawing."""

from streamlit.proto.RootContainer_pb2 import RootContainer

from pages.parts import replay
from tests.helpers.page_runner import open_part


def page():
    import streamlit as st

    from pages.parts.replay import replayed

    def links():
        st.session_state["drawn"] = st.session_state.get("drawn", 0) + 1
        with st.container(key="box"):
            st.caption("one")
        st.caption(f"size {size}")

    size = st.number_input("size", value=1.0, key="size")
    st.caption("before")
    replayed(links, "links", size)
    st.caption("after")


def captions(at):
    assert not at.exception
    return [one.value for one in at.caption]


def test_a_part_is_drawn_once_for_its_key_and_takes_its_places_again():
    at = open_part(page, {})
    for size, drawn in ((1.0, 1), (2.0, 2), (1.0, 2), (2.0, 2), (3.0, 3)):
        at.number_input(key="size").set_value(size).run()
        assert captions(at) == ["before", "one", f"size {size}", "after"]
        assert at.session_state["drawn"] == drawn


def test_other_readers_get_the_same_messages():
    first, other = open_part(page, {}), open_part(page, {})
    assert captions(first) == captions(other)
    assert "drawn" not in other.session_state
    replay.forget()
    other.run()
    assert other.session_state["drawn"] == 1


def test_the_part_that_was_not_drawn_for_the_longest_time_is_forgotten(monkeypatch):
    monkeypatch.setattr(replay, "MAX_PARTS", 2)
    at = open_part(page, {})
    for size in (2.0, 1.0, 3.0, 1.0, 2.0):  # at 3 that of 2 goes
        at.number_input(key="size").set_value(size).run()
    assert at.session_state["drawn"] == 4


def styled():
    import streamlit as st

    from pages.parts.replay import replayed

    replayed(lambda: st.html("<style>a { color: red }</style>"), "styles", styles=True)
    st.html("<style>b { color: red }</style>")
    st.caption("after")


def test_styles_take_their_place_in_the_container_of_styles():
    at = open_part(styled, {})
    for _ in range(2):  # the second time from messages
        event = at._tree[RootContainer.EVENT].children
        assert [event[n].proto.body for n in sorted(event)] == [
            "<style>a { color: red }</style>",
            "<style>b { color: red }</style>",
        ]
        assert captions(at) == ["after"]
        at.run()
