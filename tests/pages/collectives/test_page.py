"""The lesson on many GPUs without a browser: every collective, its cards, its run on emulated GPUs."""

from __future__ import annotations

import time
from functools import partial

import pytest

from kernels.collectives import recorded, schedules
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE
from kernels.jobs.job import JobError
from pages.collectives import chapters, live
from pages.parts.one_run import OneRun
from tests.helpers.chapters import WITH_STORY, open_chapter, story
from tests.helpers.page_runner import heads, links, open_page, press, stages, strip, texts
from visuals import units
from visuals.collectives.captions import ALGORITHM_TITLES as TITLES

open_at = partial(open_page, "collectives/page.py")


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_a_collective_shows_its_stage_and_cards(kind):
    at = open_at(kind=kind)
    first = "ring" if "ring" in ALGORITHMS[kind] else ALGORITHMS[kind][0]
    assert stages(at) == [f"{kind} {first} 4 16"]
    for card in ("Time over length", "Bytes of each link", "All collectives", "Kernel"):
        assert f'<h2 class="kt-card">{card}' in texts(at)
    assert set(links(at)) >= {"Story", "**Explore**"}
    (stage, real) = strip(at)["sizes"]
    assert (stage["key"], real["key"]) == ("stage", "real") and real["label"] == "4 GPUs, 64 MiB each"


def test_the_emulator_agrees_with_the_schedule():
    assert "Each link moved the same bytes" in texts(open_at(ranks=3, elements=10))
    assert "Each link moved the same bytes" in texts(open_at(algorithm="tree", ranks=8))
    assert "Counted from the schedule" in texts(open_at(kind="broadcast", algorithm="tree"))


def test_an_algorithm_of_another_collective_is_named():
    at = open_at(kind="broadcast", algorithm="one-shot")
    assert stages(at) == ["broadcast ring 4 16"]
    assert "broadcast has the algorithms naive, tree, ring, got one-shot" in texts(at)


def test_alone_in_a_frame_it_is_the_stage():
    assert len(heads(open_at(view="watch"))) == 1


@pytest.fixture
def one_gpu(monkeypatch):
    monkeypatch.setattr(live, "refusal", lambda ranks: f"{ranks} GPUs are needed, this machine has 1")


def test_without_enough_gpus_the_button_emulates(one_gpu):
    at = open_at(ranks=2, elements=8)
    run = strip(at)["run"]
    assert run["can"] and run["label"] == "Emulate"
    assert run["text"] == "Not measured here: 2 GPUs are needed, this machine has 1."
    press(at, "run", size="real")
    end = time.monotonic() + 60
    while at.session_state[live.KEY].running:
        assert time.monotonic() < end and not at.exception
        time.sleep(0.05)
        at.run()
    at.run()
    assert strip(at)["run"]["text"].startswith("Emulated: 5 kernels on 2 GPUs. All sums are right")


def test_a_collective_without_a_kernel_has_no_button(one_gpu):
    run = strip(open_at(kind="broadcast"))["run"]
    assert not run["can"] and run["text"].startswith("Not measured here")


class Done:
    """A job that is over: rows, or the error of its process."""

    done, share, text = True, 1.0, ""

    def __init__(self, rows):
        self.rows = rows

    def result(self):
        if isinstance(self.rows, str):
            raise JobError(self.rows)
        return self.rows


def ran(monkeypatch, rows):
    """Returns the page after a run that gave these rows or this error."""
    monkeypatch.setattr(live, "refusal", lambda ranks: "")
    monkeypatch.setattr(OneRun, "start", lambda self, request: vars(self).update(request=request, job=Done(rows)))
    at = open_at()
    assert strip(at)["run"]["can"]
    press(at, "run", size="real")
    at.run()
    return at


def test_a_run_shows_its_times_and_what_failed(monkeypatch):
    row = {
        "kind": "all-reduce",
        "ranks": 4,
        "median_ms": 0.4,
        "p20_ms": 0.4,
        "p80_ms": 0.41,
        "n": 15,
        "device": "NVIDIA X",
        "date": "2026-01-01",
    }
    rows = [row | {"algorithm": "ring"}, {"kind": "all-reduce", "algorithm": "nccl", "refused": "NCCL was not found"}]
    at = ran(monkeypatch, rows)
    _, real = strip(at)["sizes"]
    assert real["time"]["value"] == "400 µs" and real["time"]["badge"]["kind"] == "measured"
    assert strip(at)["run"]["error"] == "nccl: NCCL was not found"


def test_a_run_that_hangs_ends_in_words(monkeypatch):
    at = ran(monkeypatch, "GPU 1 did not end within 20 s: another GPU or its link may be lost")
    assert strip(at)["run"]["error"].startswith("GPU 1 did not end within 20 s")
    assert strip(at)["sizes"][1]["time"]["badge"]["kind"] == "predicted"


# -- the story -------------------------------------------------------------------------------------------
def opened(title):
    """Returns the head of the stage, the chapter's panel and the evidences of a chapter."""
    lesson = next(lesson for lesson in WITH_STORY if lesson.path == "collectives")
    n = next(n for n, chapter in enumerate(story(lesson).chapters) if chapter.title == title)
    at, panel, evidences = open_chapter(lesson, n)
    return heads(at)[0], panel, evidences


def test_the_answer_on_small_arrays_has_every_algorithm_that_is_as_fast():
    _, panel, evidences = opened("Small arrays: latency decides")
    found = evidences["real"]
    ms = {name: found.predicted_ms(name) for name in ALGORITHMS[ALL_REDUCE]}
    same = {name for name, each in ms.items() if each <= 1.05 * min(ms.values())}
    assert same == set(chapters.CHOICES[panel["question"]["right"]])
    for name in same:  # on two GPUs, recorded
        row = chapters._two(name, found.shape.nbytes)
        assert units.time_(row["median_ms"]) in panel["question"]["reveal"]
        assert row["median_ms"] <= 1.05 * min(
            chapters._two(other, found.shape.nbytes)["median_ms"] for other in ALGORITHMS[ALL_REDUCE]
        )
    assert all(TITLES[name].capitalize() in " ".join(panel["text"]) for name in same)


@pytest.mark.parametrize(
    "title", [chapter.title for chapter in chapters.CHAPTERS if "rounds" in " ".join(chapter.text)]
)
def test_a_chapter_on_rounds_has_an_arrow_for_every_link(title):
    head, _, evidences = opened(title)
    used = schedules.of_shape(evidences["stage"].shape).link_elements()
    assert {(flow["source"], flow["target"]) for flow in head["meta"]["flows"]} == set(used)


def test_the_table_of_fits_has_the_latency_in_its_unit():
    link = recorded.fitted(ALL_REDUCE, "ring", 2).link
    assert f"<td>{link.latency * 1e6:.3g} µs</td>" in texts(open_at(ranks=2))
