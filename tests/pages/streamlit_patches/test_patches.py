"""The patches are for one version of Streamlit. With another one the app starts without them and says so."""

import logging

import pytest
import streamlit as st
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

from pages import streamlit_patches
from pages.streamlit_patches import stale_requests, unsent_messages
from tests.helpers.harness import ROOT


@pytest.fixture(autouse=True)
def as_streamlit_has_it(monkeypatch):
    monkeypatch.setattr(ForwardMsgQueue, "clear", unsent_messages.streamlit_clear)


def test_they_are_applied_to_the_version_that_they_were_written_for(caplog):
    middleware = streamlit_patches.apply()
    assert ForwardMsgQueue.clear is not unsent_messages.streamlit_clear
    assert [one.cls for one in middleware] == [stale_requests.StaleRequestMiddleware]
    assert not caplog.records


def test_another_version_starts_without_them_and_says_so(monkeypatch, caplog):
    monkeypatch.setattr(st, "__version__", "1.68.0")
    with caplog.at_level(logging.WARNING):
        assert streamlit_patches.apply() == []
    assert ForwardMsgQueue.clear is unsent_messages.streamlit_clear
    (record,) = caplog.records
    for text in ("1.68.0", streamlit_patches.VERSION, *(patch.target for patch in streamlit_patches.PATCHES)):
        assert text in record.getMessage()


def test_requirements_pin_that_version():
    requirements = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert f"streamlit=={streamlit_patches.VERSION}" in requirements
