"""CPU and GPU: where the times cross, Amdahl's limit, the recorded sizes, and what is measured on this processor."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.engines import cpu as cpu_engine
from kernels.machine.timing import Budget
from kernels.model.program import RuleError
from kernels.offload import cpu, crossover, works
from kernels.offload.works import NONE, PAGEABLE, PINNED, WORKS

QUICK = Budget(samples=3, seconds=0.01, min_samples=1, warm_up_s=0)


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


# -- recorded sizes ------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", WORKS)
def test_a_work_has_recorded_sizes_with_copies(key):
    found = works.points(key)
    assert len(found) >= 5 and [p.size for p in found] == sorted({p.size for p in found})
    for p in found:
        assert 0 < p.gpu_ms(NONE) < p.gpu_ms(PINNED)
        assert p.gpu_ms(PINNED, 10) == pytest.approx(p.gpu_ms(PINNED) + 9 * p.kernel_ms)
        assert p.copy_ms(NONE) == 0 and p.device == "NVIDIA H200"
    assert found[-1].copy_ms(PAGEABLE) > found[-1].copy_ms(PINNED)


@pytest.mark.parametrize("key", WORKS)
def test_the_smallest_sizes_are_verified_and_timed_here(key):
    for point in works.live(key)[:2]:
        row = cpu.time_of(key, point, QUICK)
        assert row["size"] == point.size and 0 < row["p20_ms"] <= row["ms"] <= row["p80_ms"] and row["n"] >= 1


def test_a_wrong_result_gets_no_time(monkeypatch):
    monkeypatch.setattr(cpu_engine.Session, "fetch", lambda self, name: self.arrays[name] * np.float32(1.001))
    with pytest.raises(RuntimeError, match="disagrees"):
        cpu.time_of("gemm", works.points("gemm")[0], QUICK)


def test_sizes_are_sent_one_by_one_and_stop_at_the_end(monkeypatch):
    monkeypatch.setattr(cpu, "live", lambda key: works.points(key)[:2])
    shares, parts = [], []
    rows = cpu.times("add", shares.append, parts.append, QUICK)
    assert rows == parts and shares == [0.5, 1.0]
    assert cpu.times("add", end=0.0) == []
    monkeypatch.setattr(cpu.processor, "free_bytes", lambda: 0)
    assert cpu.times("add") == []


def test_an_unknown_work_is_named():
    with pytest.raises(RuleError, match="no work magic; there are: gemm, conv, add"):
        cpu.times("magic")


def test_the_nearest_recorded_size_is_found():
    assert (
        works.at("gemm", 1000).size == 1024 and works.at("gemm", 10**9).size == works.points("gemm")[-1].size
    )
