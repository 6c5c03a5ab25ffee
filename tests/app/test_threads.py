"""The lesson on threads and memory without a browser: each topic has every part, and Run runs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kernels.jobs import JobError
from kernels.shapes_memory import StrideShape
from pages import _run, _threads

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def stop_the_worker():
    yield
    _run.worker().close()
    _run.worker.clear()


def open_at(**params):
    at = AppTest.from_file(str(ROOT / "pages" / "_shell.py"), default_timeout=60)
    at.run()
    at.switch_page("threads.py")
    for name, value in params.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception
    return at


def texts(at):
    return " ".join(html.value for html in at.get("html") if not html.value.startswith("<style"))


@pytest.mark.parametrize("topic", _threads.TOPICS)
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
    plain = _threads.scene("banks", {"stride": 8, "row": 32})
    padded = _threads.scene("banks", {"stride": 8, "row": 33})
    assert plain.steps == 10 and padded.steps == 3
    at = open_at(topic="banks", stride="8", row="33")
    assert "One unused word behind each row" in texts(at)
    assert "At stride 8 a read takes 8 passes, with padding 1" in texts(at)


def test_what_cannot_be_taken_is_named():
    at = open_at(topic="banks", stride="33")
    assert "stride must lie in 1 .. 32 on this page, got “33”: stride=4 is used" in texts(at)
    assert "A grid of threads" in texts(open_at(topic="nothing"))


def test_run_measures_every_stride_and_tells_beside_the_counts(monkeypatch):
    monkeypatch.setitem(_threads.SIZES["cpu"], "stride", 4096)
    at = open_at(topic="coalescing", stride="8")
    at.button(key="run").click().run()
    while "thread_jobs" in at.session_state:
        for job in at.session_state["thread_jobs"]:
            with contextlib.suppress(JobError):
                job.result(timeout=60)
        at.run()
    assert not at.exception
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
