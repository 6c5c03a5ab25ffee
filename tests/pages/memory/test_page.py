"""Tests of the lesson on threads and memory without a browser: the parts of each topic, and Run."""

from __future__ import annotations

from functools import partial

import pytest

from kernels.memory.shape import StrideShape
from pages.memory import address
from tests.helpers.page_runner import components, finish, open_page, strip, texts

open_at = partial(open_page, "memory/page.py")


@pytest.mark.parametrize("topic", address.TOPICS)
def test_every_topic_has_every_part(topic):
    at = open_at(topic=topic)
    assert len(components(at)) == 1
    html = texts(at)
    for title in ("Time", "Why", "Levels of memory", "kt-badge-counted", "L1 cache", "Kernel"):
        assert title in html, title
    assert at.get("code"), "the kernel's source"


def test_a_control_of_another_lesson_may_have_the_name_of_this_one():
    assert len(components(open_page("memory/page.py", {"threads": "2"}, view="story"))) == 1


@pytest.mark.parametrize("view", ["watch", "kernel", "run", "why"])
def test_each_view_shows_only_its_part(view):
    at = open_at(topic="banks", view=view)
    html = texts(at)
    assert bool(components(at)) == (view == "watch")
    assert ("Levels of memory" in html) == (view == "why")
    assert bool(at.get("code")) == (view == "kernel")
    assert "kt-title" not in html


def test_url_selects_the_scene():
    plain = address.scene("banks", {"stride": 8, "row": 32})
    padded = address.scene("banks", {"stride": 8, "row": 33})
    assert plain.steps == 11 and padded.steps == 4
    assert [address.rung("banks", {"row": row}) for row in (32, 33)] == ["banks/plain", "banks/padded"]
    at = open_at(topic="banks", stride="8", row="33")
    assert "One unused word after each row" in texts(at)
    html = texts(at)
    assert "At stride 8 a read takes 8 passes without padding." in html and "With padding it takes 1 pass." in html


def test_invalid_value_is_named():
    at = open_at(topic="banks", stride="33")
    assert "stride must be 1 to 32 on this page, got “33”: stride=4 is used" in texts(at)
    assert "one thread per element" in texts(open_at(topic="nothing"))


def test_run_measures_every_stride_and_compares_with_the_counts(monkeypatch):
    monkeypatch.setitem(address.SIZES["cpu"], "stride", 4096)
    at = open_at(topic="coalescing", stride="8")
    finish(at, "run", "thread_jobs")
    rows = at.session_state["thread_rows"]["coalescing"]
    assert [row["shape"] for row in rows] == [StrideShape(4096, s).params() for s in (1, 2, 3, 4, 8, 16, 32)]
    html = texts(at)
    assert "kt-badge-measured" in html and "The stage shows warp 0 of the 128 warps that run." in html
    assert "stride 8 takes" in html and "4.5× the sectors" in html
    assert "copy speed" in html  # in the levels card: measured by the same run


def test_banks_have_no_run_button_without_a_gpu():
    at = open_at(topic="banks")
    assert "run" not in [button.key for button in at.button]
    assert "A processor has no banks" in texts(at)


@pytest.mark.parametrize("topic", ["coalescing", "banks"])
def test_the_recorded_size_has_the_stride_of_the_stage(topic):
    real, stage = strip(open_at(topic=topic, stride="8"))["sizes"]
    assert real["label"].endswith("loads with stride 8") and stage["label"].startswith("32 loads with stride 8")
