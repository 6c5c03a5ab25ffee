"""The trace of a block: its barriers, commits and waits, and what it costs to leave out the values."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels.engines import emulator
from kernels.engines.emulator.trace import BARRIER, COMMIT, WAIT
from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from kernels.model.program import INPUT, Program

TILES = {"BM": 32, "BN": 32, "BK": 8, "TM": 4, "TN": 4, "STAGES": 2}


def traced(rung, K, tiles, values=True):
    found, s = find(rung), GemmShape(32, 32, K)
    program = found.build(s, found.check(s, tiles))
    alone = Program(program.buffers, (dataclasses.replace(program.steps[0], grid=(1, 1, 1)),))
    zeros = {b.name: np.zeros(b.shape, b.dtype) for b in program.of_role(INPUT)}
    return emulator.trace_launch(alone, 0, zeros, values=values)[0]


def test_the_barriers_commits_and_waits_are_those_of_the_source():
    syncs = traced("gemm/double-buffer", 24, TILES).syncs
    loop = [WAIT, BARRIER, COMMIT]
    assert syncs.kind.tolist() == [COMMIT, *loop * 3]
    assert set(syncs.pending[syncs.kind == WAIT].tolist()) == {0}
    assert set(syncs.warps.tolist()) == {0b11}  # 64 threads
    assert (np.diff(syncs.requests) >= 0).all() and (np.diff(syncs.step) >= 0).all()


def test_three_stages_leave_one_group_running():
    syncs = traced("gemm/double-buffer", 24, TILES | {"STAGES": 3}).syncs
    assert set(syncs.pending[syncs.kind == WAIT].tolist()) == {1}


@pytest.mark.parametrize(
    ("rung", "tiles", "share"),
    [("gemm/double-buffer", TILES, 1.0), ("gemm/shared-tile", {"BM": 32, "BN": 32, "BK": 32}, 0.0)],
)
def test_requests_of_asynchronous_copies_are_told_apart(rung, tiles, share):
    trace = traced(rung, 16, tiles)
    names = np.array(trace.buffers)[trace.requests.buffer]
    assert trace.requests.async_copy[trace.requests.write & (names != "C")].mean() == share
    assert trace.requests.async_copy[np.isin(names, ["A", "B"])].mean() == share
    assert not trace.requests.async_copy[names == "C"].any()


def test_without_values_only_the_accesses_are_missing():
    whole, bare = (traced("gemm/shared-tile", 16, {"BM": 32, "BN": 32, "BK": 32}, values) for values in (True, False))
    assert len(whole.step) and not len(bare.step)
    np.testing.assert_array_equal(whole.line, bare.line)
    np.testing.assert_array_equal(whole.masks, bare.masks)
    for name in ("step", "write", "warp", "mask", "width", "byte"):
        np.testing.assert_array_equal(getattr(whole.requests, name), getattr(bare.requests, name))
