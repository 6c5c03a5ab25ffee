"""The stage of a story requests its counts itself: no card beside it does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import streamlit as st

from pages.parts import counts, stage


class Rerun(Exception):
    """Raised instead of a rerun of the page."""


@pytest.fixture
def poll(monkeypatch):
    """Returns a function that polls while counts are missing or there. It returns the rungs whose counts it requested."""

    def run(missing: bool, stale: bool = False):
        calls = []
        request = counts.CountRequest(("key",), 0.0)

        def request_counts(settings, rungs):
            calls.append(rungs)
            return request if missing else None

        def rerun():
            raise Rerun

        monkeypatch.setattr(counts, "request_counts", request_counts)
        monkeypatch.setattr(counts, "countable", lambda settings: ["rung"])
        monkeypatch.setattr(counts, "counts", lambda: SimpleNamespace(waiting=lambda: 0))
        monkeypatch.setattr(st, "rerun", rerun)
        monkeypatch.setattr(stage, "url_is_stale", lambda: stale)
        stage._rerun_when_counted(settings=None)
        return calls

    return run


def test_each_poll_of_a_story_goes_on_with_the_request(poll):
    assert poll(missing=True) == [["rung"]]


def test_the_polling_ends_with_the_counts(poll):
    with pytest.raises(Rerun):
        poll(missing=False)


def test_a_poll_from_before_the_chapter_was_opened_does_not_run_the_page(poll):
    assert poll(missing=False, stale=True) == [["rung"]]
