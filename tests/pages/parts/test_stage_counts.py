"""The stage of a story requests its counts itself: no card beside it does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import streamlit as st

from pages.parts import counts, stage


class Drawn(Exception):
    """Raised where the stage begins to draw."""


class Rerun(Exception):
    """Raised instead of a rerun of the page."""


@pytest.fixture
def poll(monkeypatch):
    """Returns a function that polls a stage while counts are missing or there. It returns the calls for counts and how the
    poll ended."""

    def run(missing: bool, chapter: object | None = "a chapter", polled: bool = True):
        calls = []
        request = counts.CountRequest(("key",), 0.0)

        def request_counts(settings, rungs):
            calls.append(rungs)
            return request if missing else None

        def end(error):
            def call(*_):
                raise error

            return call

        monkeypatch.setattr(counts, "request_counts", request_counts)
        monkeypatch.setattr(counts, "countable", lambda settings: ["rung"])
        monkeypatch.setattr(counts, "counts", lambda: SimpleNamespace(waiting=lambda: 0))
        monkeypatch.setattr(stage.run, "collect", end(Drawn))
        monkeypatch.setattr(st, "rerun", end(Rerun))
        monkeypatch.setattr(stage, "url_is_stale", lambda: False)
        monkeypatch.setattr(stage.stage, "pressed", lambda key: None)
        on_stage = SimpleNamespace(settings=None, rung=None, chapter=chapter, key="", by_size=dict)
        with pytest.raises((Drawn, Rerun)) as ended:
            stage._draw(on_stage, polled)
        return calls, ended.type

    return run


def test_each_poll_of_a_story_goes_on_with_the_request(poll):
    assert poll(missing=True) == ([["rung"]], Drawn)


def test_the_polling_ends_with_the_counts(poll):
    assert poll(missing=False) == ([["rung"]], Rerun)


def test_explore_leaves_the_request_to_its_card(poll):
    assert poll(missing=True, chapter=None) == ([], Drawn)


def test_a_stage_that_is_not_polled_requests_nothing(poll):
    assert poll(missing=True, polled=False) == ([], Drawn)
