"""Counts: what the emulator counted, kept for all, by a process that yields to every other."""

from __future__ import annotations

import os
import sys

import pytest

from kernels.conv import ladder as conv_ladder
from kernels.conv.shape import ConvShape
from kernels.gemm.shape import GemmShape
from kernels.jobs import counts as module
from kernels.jobs.counts import Counts
from kernels.jobs.job import JobError
from kernels.ladders import LADDERS, find, ladder_of
from kernels.records import availability
from kernels.records.row import kernel_digest
from kernels.runner import run
from tests.children.helpers import act, begun

RUNGS = conv_ladder.OWN
DIRECT, IM2COL, LIBRARY = RUNGS[:3]
SHAPE = ConvShape(1, 2, 6, 5, 3, 3, 2, pad=1)


@pytest.fixture
def counts():
    made = Counts()
    yield made
    made.close()


@pytest.fixture
def held():
    """Counts whose process is held up."""
    made = Counts("tests.children.acts")
    begun(made._worker.submit(act("hang")))
    yield made
    made.close()


def test_counts_are_the_emulators_and_known_by_tiles_and_shape(counts):
    assert counts.of(IM2COL, SHAPE, {}) is None
    counts.ask(RUNGS[:3], SHAPE, {"TILE": 8}).result(60)
    for rung, tiles in ((DIRECT, {}), (IM2COL, {"TILE": 8}), (LIBRARY, {})):
        counted = run(rung.name, SHAPE, engine="emulator", tiles=tiles).counters
        got = counts.of(rung, SHAPE, tiles)
        assert {name: got.total[name] for name in counted.total} == counted.total
        assert got.left_out == counted.uncounted
    assert counts.of(IM2COL, SHAPE, {}) is None and counts.of(IM2COL, SHAPE, {"TILE": 16}) is None
    assert counts.of(DIRECT, ConvShape(1, 2, 6, 5, 4, 3, 2, pad=1), {}) is None


TILED = [rung.name for ladder in LADDERS.values() for rung in ladder.rungs if len(rung.tiles) > 1]


@pytest.mark.parametrize("name", TILED)
def test_a_digest_does_not_hang_on_the_order_in_which_tiles_came(name):
    rung, presets = find(name), ladder_of(name).presets
    shape = next(p.shape for p in presets.values() if availability.runs(rung, p.shape, rung.default_tiles))
    turned = dict(reversed(rung.default_tiles.items()))
    assert kernel_digest(rung.build(shape, turned)) == kernel_digest(rung.build(shape, rung.default_tiles))


def test_a_rung_of_many_tile_sizes_is_known_once_it_is_counted(counts):
    rung, shape = find("gemm/warp-tile"), GemmShape(40, 36, 20)
    tiles = {"BM": 32, "BN": 32, "BK": 8, "WM": 32, "WN": 16, "TM": 4, "TN": 4, "STAGES": 2}
    counts.ask([rung], shape, {rung.name: tiles}).result(60)
    assert counts.of(rung, shape, tiles).total["sectors_st"] > 0


def test_counts_of_other_kernels_are_not_those(counts, monkeypatch):
    counts.ask([DIRECT], SHAPE, {}).result(60)
    module._digest.cache_clear()
    monkeypatch.setattr(module, "kernel_digest", lambda program: "changed")
    assert counts.of(DIRECT, SHAPE, {}) is None
    module._digest.cache_clear()


def test_kept_counts_are_bounded_the_oldest_used_goes(counts, monkeypatch):
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    for K in (1, 2, 1, 3):
        shape = ConvShape(1, 1, 3, 3, K, 2, 2)
        if counts.of(DIRECT, shape, {}) is None:
            counts.ask([DIRECT], shape, {}).result(60)
    known = [counts.of(DIRECT, ConvShape(1, 1, 3, 3, K, 2, 2), {}) is not None for K in (1, 2, 3)]
    assert known == [True, False, True]


def test_an_owners_newer_wish_replaces_the_one_that_waits(held):
    older = held.ask([DIRECT], SHAPE, {}, "ann")
    others = held.ask([IM2COL], SHAPE, {}, "bob")
    newer = held.ask([DIRECT], ConvShape(1, 1, 3, 3, 1, 2, 2), {}, "ann")
    with pytest.raises(JobError, match="replaced by a newer request"):
        older.result(0)
    assert not others.done and not newer.done and held.waiting() == 2


def test_what_waits_can_be_dropped_what_runs_goes_on(held):
    running, waiting = held._worker._running.jobs[0], held.ask([DIRECT], SHAPE, {})
    pid = held._worker._child.pid
    for job in (running, waiting):
        held.drop(job)
    assert waiting.done and held.waiting() == 0
    assert not running.done and held._worker._child.pid == pid and held._worker._child.alive


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such priorities")
def test_its_process_is_last_in_line(counts):
    counts.ask([DIRECT], SHAPE, {}).result(60)
    assert os.getpriority(os.PRIO_PROCESS, counts._worker._child.pid) == 19


def test_a_rule_that_is_broken_is_words(counts):
    with pytest.raises(JobError, match=r"TILE must be one of 8, 16, 32, got 7"):
        counts.ask([IM2COL], SHAPE, {"TILE": 7}).result(60)
