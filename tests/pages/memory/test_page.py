"""The lesson on threads and memory without a browser: each topic has every part, and Run runs."""

from __future__ import annotations

from functools import partial

import pytest

from kernels.memory.shape import StrideShape
from pages.memory import address
from tests.helpers.opened import finish, open_page, texts

open_at = partial(open_page, "memory/page.py")


@pytest.mark.parametrize("topic", address.TOPICS)
def test_every_topic_has_every_part(topic):
    at = open_at(topic=topic)
    assert len(at.get("bidi_component")) == 1
    told = texts(at)
    for words in ("Time", "Why", "Levels of memory", "kt-badge-counted", "L1 cache", "Kernel"):
        assert words in told, words
    assert at.get("code"), "the kernel's source"


@pytest.mark.parametrize("view", ["watch", "kernel", "run", "why"])
def test_a_part_alone(view):
    at = open_at(topic="banks", view=view)
    told = texts(at)
    assert bool(at.get("bidi_component")) == (view == "watch")
    assert ("Levels of memory" in told) == (view == "why")
    assert bool(at.get("code")) == (view == "kernel")
    assert "kt-title" not in told


def test_the_address_decides_the_scene():
    plain = address.scene("banks", {"stride": 8, "row": 32})
    padded = address.scene("banks", {"stride": 8, "row": 33})
    assert plain.steps == 10 and padded.steps == 3
    at = open_at(topic="banks", stride="8", row="33")
    assert "One unused word behind each row" in texts(at)
    assert "At stride 8 a read takes 8 passes, with padding 1" in texts(at)


def test_what_cannot_be_taken_is_named():
    at = open_at(topic="banks", stride="33")
    assert "stride must lie in 1 .. 32 on this page, got “33”: stride=4 is used" in texts(at)
    assert "A grid of threads" in texts(open_at(topic="nothing"))


def test_run_measures_every_stride_and_tells_beside_the_counts(monkeypatch):
    monkeypatch.setitem(address.SIZES["cpu"], "stride", 4096)
    at = open_at(topic="coalescing", stride="8")
    finish(at, "run", "thread_jobs")
    rows = at.session_state["thread_rows"]["coalescing"]
    assert [row["shape"] for row in rows] == [StrideShape(4096, s).params() for s in (1, 2, 3, 4, 8, 16, 32)]
    told = texts(at)
    assert "kt-badge-measured" in told and "the stage shows warp 0 of the 128 that run" in told
    assert "stride 8 took" in told and "4.5 times the sectors" in told
    assert "copying there" in told  # of the levels: measured by the same run


def test_without_a_gpu_nobody_is_offered_to_time_banks():
    at = open_at(topic="banks")
    assert "run" not in [button.key for button in at.button]
    assert "A processor has no banks" in texts(at)
