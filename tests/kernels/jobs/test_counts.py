"""Counts: the emulator's counts, cached for all users, from a low-priority process."""

from __future__ import annotations

import os
import sys

import pytest

from kernels.conv import ladder as conv_ladder
from kernels.conv.shape import ConvShape
from kernels.gemm.shape import GemmShape
from kernels.jobs import counts as counts_module
from kernels.jobs.counts import Counts
from kernels.jobs.job import JobError
from kernels.ladders import LADDERS, find, ladder_of
from kernels.records import availability
from kernels.records.row import kernel_digest
from kernels.runner import run
from tests.children.helpers import act, begun
from tests.helpers.offenders import every

RUNGS = conv_ladder.BASIC_RUNGS
DIRECT, IM2COL, LIBRARY = RUNGS[:3]
SHAPE = ConvShape(1, 2, 6, 5, 3, 3, 2, pad=1)


@pytest.fixture
def counts():
    counts = Counts()
    yield counts
    counts.close()


@pytest.fixture
def blocked():
    """Counts whose process is blocked by a run that hangs."""
    counts = Counts("tests.children.acts")
    begun(counts._worker.submit(act("hang")))
    yield counts
    counts.close()


def test_counts_equal_the_emulator_and_are_keyed_by_tiles_and_shape(counts):
    assert counts.get(IM2COL, SHAPE, {}) is None
    counts.request(RUNGS[:3], SHAPE, {"TILE": 8}).result(60)
    for rung, tiles in ((DIRECT, {}), (IM2COL, {"TILE": 8}), (LIBRARY, {})):
        expected = run(rung.name, SHAPE, engine="emulator", tiles=tiles).counters
        counted = counts.get(rung, SHAPE, tiles)
        assert {name: counted.total[name] for name in expected.total} == expected.total
        assert counted.uncounted == expected.uncounted
    assert counts.get(IM2COL, SHAPE, {}) is None and counts.get(IM2COL, SHAPE, {"TILE": 16}) is None
    assert counts.get(DIRECT, ConvShape(1, 2, 6, 5, 4, 3, 2, pad=1), {}) is None


TILED = [rung.name for ladder in LADDERS.values() for rung in ladder.rungs if len(rung.tiles) > 1]


@every("name", TILED)
def test_digest_does_not_depend_on_the_order_of_tiles(name):
    rung, presets = find(name), ladder_of(name).presets
    shape = next(p.shape for p in presets.values() if availability.runs(rung, p.shape, rung.default_tiles))
    reversed_tiles = dict(reversed(rung.default_tiles.items()))
    assert kernel_digest(rung.build(shape, reversed_tiles)) == kernel_digest(rung.build(shape, rung.default_tiles))


def test_counts_of_a_rung_with_many_tile_sizes(counts):
    rung, shape = find("gemm/warp-tile"), GemmShape(40, 36, 20)
    tiles = {"BM": 32, "BN": 32, "BK": 8, "WM": 32, "WN": 16, "TM": 4, "TN": 4, "STAGES": 2}
    counts.request([rung], shape, {rung.name: tiles}).result(60)
    assert counts.get(rung, shape, tiles).total["sectors_st"] > 0


def test_counts_of_changed_kernels_are_not_returned(counts, monkeypatch):
    counts.request([DIRECT], SHAPE, {}).result(60)
    counts_module._key.cache_clear()
    monkeypatch.setattr(counts_module, "kernel_digest", lambda program: "changed")
    assert counts.get(DIRECT, SHAPE, {}) is None
    counts_module._key.cache_clear()


def test_cached_counts_are_bounded_and_the_least_recently_used_is_dropped(counts, monkeypatch):
    monkeypatch.setattr(counts_module, "MAX_CACHED", 2)
    for K in (1, 2, 1, 3):
        shape = ConvShape(1, 1, 3, 3, K, 2, 2)
        if counts.get(DIRECT, shape, {}) is None:
            counts.request([DIRECT], shape, {}).result(60)
    known = [counts.get(DIRECT, ConvShape(1, 1, 3, 3, K, 2, 2), {}) is not None for K in (1, 2, 3)]
    assert known == [True, False, True]


def test_newer_request_of_an_owner_replaces_the_waiting_one(blocked):
    older = blocked.request([DIRECT], SHAPE, {}, "ann")
    others = blocked.request([IM2COL], SHAPE, {}, "bob")
    newer = blocked.request([DIRECT], ConvShape(1, 1, 3, 3, 1, 2, 2), {}, "ann")
    with pytest.raises(JobError, match="replaced by a newer request"):
        older.result(0)
    assert not others.done and not newer.done and blocked.waiting() == 2


def test_waiting_job_can_be_dropped_and_running_job_continues(blocked):
    running, waiting = blocked._worker._running.jobs[0], blocked.request([DIRECT], SHAPE, {})
    pid = blocked._worker._child.pid
    for job in (running, waiting):
        blocked.drop(job)
    assert waiting.done and blocked.waiting() == 0
    assert not running.done and blocked._worker._child.pid == pid and blocked._worker._child.alive


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such priorities")
def test_counting_process_has_the_lowest_priority(counts):
    counts.request([DIRECT], SHAPE, {}).result(60)
    pid = counts._worker._child.pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == 19 and os.getsid(pid) == pid


def test_broken_rule_is_a_job_error(counts):
    with pytest.raises(JobError, match=r"TILE must be one of 8, 16, 32, got 7"):
        counts.request([IM2COL], SHAPE, {"TILE": 7}).result(60)
