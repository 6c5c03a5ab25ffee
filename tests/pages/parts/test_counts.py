"""Counts on a lesson's page: they appear after the page, changed controls drop them, no run waits for them."""

from __future__ import annotations

import json

import pytest

from kernels.conv.shape import ConvShape
from kernels.jobs.counts import Counts
from kernels.runner import run
from pages.parts import counts as parts_counts
from tests.children.helpers import act, begun
from tests.helpers.page_runner import finish, strip, texts
from tests.pages.parts.test_run import open_at
from visuals import units

TOY = ConvShape(1, 1, 8, 8, 2, 3, 3)


@pytest.fixture
def counting(request, monkeypatch):
    """Yields the app's counts, computed by the child module of the parameter and requested without delay."""
    counts = Counts(getattr(request, "param", "kernels.jobs.counter"))
    monkeypatch.setattr(parts_counts, "counts", lambda: counts)
    monkeypatch.setattr(parts_counts, "REST_S", 0.0)
    yield counts
    counts.close()


def finish_counting(at):
    """Waits for the counts and reruns the page, as the browser's polling does."""
    at.run()
    at.session_state["wish"].job._done.wait(60)
    at.run()
    assert not at.exception


def test_counts_appear_after_the_page_and_are_the_emulators(counting):
    at = open_at()
    assert "counting …" in texts(at) and "sectors read" not in texts(at)
    finish_counting(at)
    assert "counting" not in texts(at) and "wish" not in at.session_state
    for rung in ("conv/direct", "conv/im2col-gemm"):
        total = run(rung, TOY, engine="emulator").counters.total
        for name in ("sectors_ld", "sectors_st", "warp_instructions", "wavefronts_ld", "wavefronts_st"):
            assert f"<td>{units.count(total[name])}</td>" in texts(at)


def test_another_reader_has_known_counts_at_once(counting):
    finish_counting(open_at(K="3"))
    at = open_at(K="3")
    assert "sectors read" in texts(at) and "wish" not in at.session_state


def test_recently_changed_shape_is_not_requested(counting, monkeypatch):
    monkeypatch.setattr(parts_counts, "REST_S", 3600.0)
    at = open_at(K="4")
    at.run()
    assert at.session_state["wish"].job is None and "counting …" in texts(at)


@pytest.mark.parametrize("counting", ["tests.children.broken"], indirect=True)
def test_failed_count_shows_its_error_until_the_shape_changes(counting):
    at = open_at()
    finish_counting(at)
    assert "not counted: the process that runs kernels does not start" in texts(at)
    failed = at.session_state["wish"]
    assert failed.watch.read()["done"]  # the browser waits no longer
    at.run()
    assert at.session_state["wish"] is failed
    at.number_input(key="K").set_value(3.0).run()
    assert at.session_state["wish"] is not failed and "counting …" in texts(at)


@pytest.mark.parametrize("counting", ["tests.children.acts"], indirect=True)
def test_changed_kernels_are_reported(counting):
    at = open_at()
    finish_counting(at)  # this child returns rows that are not counts
    assert parts_counts.CHANGED in texts(at)


@pytest.mark.parametrize("counting", ["tests.children.acts"], indirect=True)
def test_request_is_dropped_when_the_shape_changes_and_runs_do_not_wait(counting, monkeypatch):
    begun(counting._worker.submit(act("hang")))  # the process that counts is busy
    at = open_at(engine="cpu")
    at.run()
    first = at.session_state["wish"]
    assert counting.position(first.job) == 1 and counting.waiting() == 1
    at.run()
    assert "counting …, 1 shapes before this one" in texts(at)
    monkeypatch.setattr(parts_counts, "REST_S", 3600.0)
    at.query_params["K"] = "3"
    at.run()
    assert first.job.done and counting.waiting() == 0  # dropped at once; the new shape waits REST_S
    monkeypatch.setattr(parts_counts, "REST_S", 0.0)
    at.run()
    second = at.session_state["wish"]
    assert second is not first and second.job.request.shape.K == 3 and counting.waiting() == 1
    finish(at, "run", "job")
    assert "kt-badge-measured" in texts(at) and not second.job.done


def test_shape_too_large_is_reported_and_not_requested(counting):
    at = open_at(H="112", W="112", C="64", K="64")
    assert "counts shapes of up to" in texts(at) and "wish" not in at.session_state


def strip_watch(at) -> str:
    return strip(at).get("watch", "")


def test_the_browser_gets_the_counts_without_a_rerun(counting):
    """Strip and table that the route sends are those that a rerun of the page draws."""
    at = open_at(K="5")
    watch = at.session_state["wish"].watch
    assert strip_watch(at) == watch.path == f"stage/watch/{watch.token}"
    before = watch.read()
    assert not before["done"] and "counting" in before["text"] and watch.read()["tag"] == before["tag"]
    at.session_state["wish"].job._done.wait(60)
    news = watch.read()
    assert news["done"] and news["tag"] != before["tag"]
    at.run()
    assert strip_watch(at) == "" and "wish" not in at.session_state
    assert news["strip"] == json.loads(json.dumps(strip(at)))
    assert news["why"] in texts(at) and "sectors read" in news["why"]


def test_a_story_is_drawn_again_with_its_counts(counting):
    at = open_at(view="story")
    watch = at.session_state["wish"].watch
    watch.read()
    at.session_state["wish"].job._done.wait(60)
    news = watch.read()
    assert news["rerun"] and "strip" not in news and strip_watch(at) == watch.path


def test_a_request_is_sent_when_the_shape_has_rested(counting, monkeypatch):
    monkeypatch.setattr(parts_counts, "REST_S", 3600.0)
    at = open_at(K="6")
    request = at.session_state["wish"]
    assert request.watch.due_s() == pytest.approx(3600, abs=60)
    request.watch.read()
    assert request.job is None
    request.since -= 3600
    assert request.watch.due_s() == pytest.approx(0.05)
    request.watch.read()
    assert request.job and request.watch.due_s() is None


def test_a_request_that_was_left_is_not_sent(counting, monkeypatch):
    monkeypatch.setattr(parts_counts, "REST_S", 3600.0)
    at = open_at(K="6")
    first = at.session_state["wish"]
    watch = first.watch
    at.number_input(key="K").set_value(3.0).run()
    assert at.session_state["wish"] is not first and first.left
    first.since -= 3600
    assert watch.gone() and not watch.read()["done"] and first.job is None
    assert first.watch is None and not first.views  # they hold the scene
