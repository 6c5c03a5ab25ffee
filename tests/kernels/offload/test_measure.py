"""Both sides of a work are timed: verified, in passes, and the parts of a run on the GPU add up to its total."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import offload as benchmark
from kernels.engines import cpu as cpu_engine
from kernels.engines.cuda import device
from kernels.machine.timing import Budget
from kernels.model.program import RuleError
from kernels.offload import cpu, gpu, measure, works
from kernels.offload.measure import CPU, GPU
from kernels.offload.works import COPIES, NONE, PAGEABLE, PINNED, WORKS
from kernels.transfers import cuda
from tests.helpers import fake_cupy

QUICK = Budget(samples=3, seconds=0.01, min_samples=2, warm_up_s=0)


@pytest.fixture(autouse=True)
def no_flush(monkeypatch):
    """Overwrites no cache: it takes longer than all else here."""
    monkeypatch.setattr(measure, "flusher", lambda: lambda: None)


@pytest.fixture
def fake(monkeypatch):
    """Puts the stand-in in CuPy's place. Its kernels compute what their CPU implementation does."""
    module = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr("kernels.conv.reference.on_gpu", lambda compute: None)  # it computes no reference
    for where in (cuda, device):
        monkeypatch.setattr(where, "load", lambda: module)
    monkeypatch.setattr(gpu, "MIN_FLUSH", 4096)
    monkeypatch.setattr(gpu, "free_bytes", lambda: fake_cupy.FREE)

    def launch(self, step, args, stream):
        step.cpu(*(a.numpy if isinstance(a, fake_cupy.ndarray) else a for a in args))

    monkeypatch.setattr(cuda.CudaBackend, "launch", launch)
    return module


def first(key):
    return works.case(key, works.points(key)[0])


# -- the processor -----------------------------------------------------------------------------------
@pytest.mark.parametrize("key", WORKS)
def test_the_smallest_sizes_are_verified_and_timed_here(key):
    rows = measure.times(key, works.live(key)[:2], budget=QUICK, passes=2)[CPU]
    assert [row["size"] for row in rows] == [point.size for point in works.live(key)[:2]]
    for row in rows:
        assert 0 < row["p20_ms"] <= row["ms"] <= row["p80_ms"]
        assert len(row["passes"]) == 2 and row["n"] in range(4, 7)


def test_a_wrong_result_of_the_processor_gets_no_time(monkeypatch):
    monkeypatch.setattr(cpu_engine.Session, "fetch", lambda self, name: self.arrays[name] * np.float32(1.001))
    with pytest.raises(RuntimeError, match="the processor's result disagrees"):
        cpu.samples(first("gemm"), lambda: None, QUICK)


def test_the_caches_are_overwritten_before_each_run(fake):
    flushes = []
    runs = cpu.samples(first("add"), lambda: flushes.append(1), QUICK)
    assert len(flushes) == len(runs)
    rounds = gpu.samples(first("add"), lambda: flushes.append(1), QUICK)
    assert len(flushes) == len(runs) + len(rounds[PINNED])


def test_no_size_begins_after_the_end_and_none_that_does_not_fit(monkeypatch):
    shares = []
    some = works.points("add")[:2]
    assert measure.times("add", some, progress=shares.append, passes=1, end=0.0) == {CPU: []}
    assert shares == [0.5, 1.0]
    monkeypatch.setattr(measure.processor, "free_bytes", lambda: 0)
    assert measure.times("add", some, passes=1) == {CPU: []}


def test_a_large_size_is_measured_in_one_pass(monkeypatch):
    monkeypatch.setattr(measure, "MAX_BYTES", works.points("gemm")[0].shape.bytes)
    small, large = measure.times("gemm", works.points("gemm")[:2], budget=QUICK, passes=2)[CPU]
    assert (len(small["passes"]), len(large["passes"])) == (2, 1)


# -- the GPU -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", WORKS)
def test_the_parts_of_a_run_add_up_to_its_total(fake, key):
    some = works.points(key)[:2]
    found = measure.times(key, some, with_gpu=True, budget=QUICK, passes=1)
    for of_cpu, row, point in zip(found[CPU], found[GPU], some, strict=True):
        assert of_cpu["size"] == row["size"] == point.size
        for copies in COPIES:
            parts = row[copies]["parts_ms"]
            assert tuple(parts) == gpu.PARTS
            assert sum(parts.values()) == pytest.approx(row[copies]["ms"], abs=3e-6)
            assert (parts["in"] > 0, parts["out"] > 0) == (copies != NONE,) * 2


def test_a_wrong_result_of_the_gpu_gets_no_time(fake, monkeypatch):
    monkeypatch.setattr(cuda.CudaBackend, "launch", lambda self, step, args, stream: None)
    with pytest.raises(RuntimeError, match="the GPU's result disagrees"):
        gpu.samples(first("add"), lambda: None, QUICK)


def test_a_size_that_does_not_fit_on_the_gpu_is_left_out(fake, monkeypatch):
    monkeypatch.setattr(gpu, "free_bytes", lambda: 0)
    found = measure.times("add", works.points("add")[:1], with_gpu=True, budget=QUICK, passes=1)
    assert len(found[CPU]) == 1 and found[GPU] == []
    with pytest.raises(RuleError, match="are needed, 0 bytes are free"):
        gpu.samples(first("add"), lambda: None, QUICK)


# -- figures -----------------------------------------------------------------------------------------
runs = st.lists(st.tuples(*[st.floats(1e-3, 1e3)] * 4), min_size=1, max_size=9)


@given(st.lists(runs, min_size=1, max_size=4))
def test_the_figures_of_the_passes_are_those_of_a_run_in_the_middle(passes):
    row = measure.gpu_row(8, [dict.fromkeys(COPIES, found) for found in passes])[PINNED]
    totals = sorted(sum(run) for found in passes for run in found)
    assert row["n"] == len(totals) and len(row["passes"]) == len(passes)
    assert totals[0] - 1e-6 <= row["p20_ms"] <= row["ms"] <= row["p80_ms"] <= totals[-1] + 1e-6
    assert min(abs(row["ms"] - total) for total in totals) < 1e-6
    assert sum(row["parts_ms"].values()) == pytest.approx(row["ms"], abs=5e-6)


def test_a_record_has_both_sides_of_each_work(fake, monkeypatch):
    monkeypatch.setattr(benchmark, "points", lambda key: works.points(key)[:1])
    monkeypatch.setattr(benchmark, "device_name", lambda: "a GPU")
    written = []
    found = benchmark.record(1e9, lambda row: written.append(len(row["works"])), QUICK)
    assert written == [1, 2, 3]
    assert found["gpu"] == "a GPU" and set(found["works"]) == set(WORKS)
    for rows in found["works"].values():
        assert len(rows[CPU]) == len(rows[GPU]) == 1 and rows[GPU][0][PAGEABLE]["n"] >= 3
