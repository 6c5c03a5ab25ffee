"""CPU and GPU: where the times cross, Amdahl's limit, the sizes, and what their recorded rows say."""

from __future__ import annotations

import math
import pickle
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import engines
from kernels.jobs import transfer
from kernels.jobs.transfer import SizesRun
from kernels.jobs.worker import DEADLINE_S
from kernels.machine.status import Status
from kernels.model.program import RuleError
from kernels.offload import crossover, figures, recorded, works
from kernels.offload.figures import Figures, Range, of_cpu, of_gpu
from kernels.offload.measure import CPU, GPU
from kernels.offload.works import COPIES, NONE, PAGEABLE, PINNED, WORKS


# -- crossing ----------------------------------------------------------------------------------------
@given(st.floats(1.1, 5.0), st.floats(0.2, 0.9), st.integers(3, 12), st.floats(2.0, 1e4))
def test_two_power_laws_cross_where_they_are_equal(steep, flat, count, where):
    sizes = np.geomspace(1, 1e5, count)
    before, after = sizes**steep, where ** (steep - flat) * sizes**flat
    assert crossover.crossing(sizes, before, after).size == pytest.approx(where, rel=1e-6)


def test_a_time_that_is_longer_at_the_largest_size_never_crosses():
    assert crossover.crossing([1, 2, 4], [1, 2, 4], [3, 1, 5]) is None
    assert crossover.crossing([], [], []) is None


def test_the_crossing_is_the_last_one_and_a_faster_start_is_named():
    found = crossover.crossing([1, 10, 100, 1000], [2, 1, 2, 8], [1, 2, 4, 2])
    assert 100 < found.size < 1000 and not found.first
    assert crossover.crossing([8, 16], [2, 2], [1, 1]) == crossover.Crossing(8, first=True)


def side(times, passes=()):
    """Returns the figures of one side, by size."""
    return {size: Figures(ms, ms, ms, 3, passes or (ms,)) for size, ms in times.items()}


def test_the_crossing_is_a_range_over_the_passes():
    cpu = {8: Figures(1, 1, 1, 3, (1, 1)), 32: Figures(4, 4, 4, 3, (4, 4))}
    gpu = {8: Figures(2, 2, 2, 3, (2, 4)), 32: Figures(2, 2, 2, 3, (2, 4 - 1e-9))}
    found = figures.crossing(cpu, gpu)
    assert found.low == pytest.approx(16) and found.high == pytest.approx(32) and not found.first
    assert figures.crossing(cpu, side({8: 0.5, 64: 1})) == Range(8, 8, first=True)
    assert figures.crossing(cpu, side({32: 9})) is None and figures.crossing({}, {}) is None


# -- Amdahl ------------------------------------------------------------------------------------------
@given(st.floats(0, 0.999), st.floats(1, 1e6))
def test_no_speedup_exceeds_the_limit_and_more_never_hurts(share, factor):
    found = crossover.speedup(share, factor)
    assert 1 - 1e-9 <= found <= min(factor, crossover.limit(share)) + 1e-9
    assert crossover.speedup(share, 2 * factor) >= found


def test_amdahl_by_hand():
    assert crossover.speedup(0.95, 20) == pytest.approx(1 / (0.05 + 0.0475))
    assert crossover.limit(0.95) == pytest.approx(20) and crossover.limit(1) == math.inf
    for share, factor in ((-0.1, 2), (1.1, 2), (0.5, 0)):
        with pytest.raises(ValueError, match="share"):
            crossover.speedup(share, factor)


@given(st.floats(0.01, 100), st.floats(0.001, 99), st.floats(0, 1000))
def test_the_repeats_that_win_are_the_fewest(cpu_ms, kernel_ms, once_ms):
    n = crossover.repeats_to_win(cpu_ms, kernel_ms, once_ms)
    if n is None:
        assert kernel_ms >= cpu_ms
        return
    assert once_ms + n * kernel_ms <= n * cpu_ms * (1 + 1e-9)
    assert n == 1 or once_ms + (n - 1) * kernel_ms >= (n - 1) * cpu_ms * (1 - 1e-9)


# -- sizes and rows ------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", WORKS)
def test_a_work_has_sizes_in_order_and_the_nearest_is_found(key):
    sizes = [point.size for point in works.points(key)]
    assert len(sizes) >= 10 and sizes == sorted(set(sizes))
    assert works.at(key, sizes[3]).size == sizes[3] and works.at(key, 10**12).size == sizes[-1]
    assert set(works.live(key)) <= set(works.points(key)) and len(works.live(key)) >= 7


def test_an_unknown_work_is_named():
    with pytest.raises(RuleError, match="no work magic; there are: gemm, conv, add"):
        works.points("magic")


@pytest.mark.parametrize("key", WORKS)
def test_both_sides_of_every_size_are_recorded(key):
    sizes = [point.size for point in works.points(key)]
    for name in (CPU, GPU):
        assert [row["size"] for row in recorded.rows(key, name)] == sizes
    for row in recorded.rows(key, CPU):
        found = of_cpu(row)
        assert 0 < found.p20_ms <= found.ms <= found.p80_ms and found.n >= 3 and found.passes


@pytest.mark.parametrize("key", WORKS)
def test_the_parts_of_a_recorded_run_add_up_and_copies_take_time(key):
    for row in recorded.rows(key, GPU):
        alone = of_gpu(row, NONE)
        assert alone.copies_ms == 0
        for copies in COPIES:
            if found := of_gpu(row, copies):
                assert sum(found.parts.values()) == pytest.approx(found.ms, abs=1e-5)
                assert found.p20_ms <= found.ms <= found.p80_ms and found.n >= 3
                assert found.ms == pytest.approx(alone.ms + found.copies_ms, abs=1e-5)


def test_short_pageable_copies_are_left_out_and_long_ones_are_the_slowest():
    rows = recorded.rows("gemm", GPU)
    assert of_gpu(rows[0], PAGEABLE) is None
    assert of_gpu(rows[-1], PAGEABLE).ms > of_gpu(rows[-1], PINNED).ms


def test_copies_once_and_many_runs():
    alone = Figures(1, 1, 1, 3, (1,), {"in": 0, "call": 0.1, "kernel": 0.9, "out": 0})
    copied = Figures(11, 11, 11, 3, (11,), {"in": 6, "call": 0.1, "kernel": 0.9, "out": 4})
    assert figures.repeats_to_win(Figures(3, 3, 3, 3, (3,)), alone, copied) == 6  # 10 + 6 < 18
    assert figures.repeats_to_win(Figures(1, 1, 1, 3, (1,)), alone, copied) is None


# -- the job -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ready", [False, True])
def test_a_run_measures_the_gpu_if_there_is_one(monkeypatch, ready):
    requested, lines = [], []

    def times(key, with_gpu, progress, end):
        requested.append((key, with_gpu))
        assert time.monotonic() < end < time.monotonic() + DEADLINE_S / 1.5
        progress(0.5)
        return {CPU: []}

    monkeypatch.setattr(transfer.offload, "times", times)
    monkeypatch.setattr(engines.load("cuda"), "status", lambda: Status(ready, "a GPU"))
    monkeypatch.setattr(transfer, "device_name", lambda: "a GPU")
    (row,) = transfer.sizes(pickle.loads(SizesRun("add").packed()), lambda share, text: lines.append(text))
    assert requested == [("add", ready)] and row["gpu"] == ("a GPU" if ready else "")
    n = transfer.offload.PASSES * len(works.live("add"))
    assert lines == [f"timing size {round(n / 2)} of {n}"]
