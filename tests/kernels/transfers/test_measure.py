"""Measuring a scenario: the GPU's backend on a stand-in for CuPy, the allocator's log, and CuPy's own names."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from kernels.engines.cuda import device
from kernels.model.program import RefusedError, RuleError
from kernels.transfers import cuda, measure, scenarios
from kernels.transfers.gpu import FILE, Gpu
from kernels.transfers.operations import COMPUTE, HOST, IN, OUT, Timeline, text_log
from kernels.transfers.scenarios import SCENARIOS, Settings, operations
from tests.helpers import fake_cupy
from tests.helpers.offenders import every


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    """Puts the stand-in in CuPy's place, and gives the batches 16 columns."""
    module = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", module)
    for where in (cuda, measure):
        monkeypatch.setattr(where, "load", lambda: module)
    monkeypatch.setattr(device, "load", lambda: module)
    monkeypatch.setattr(cuda, "compile_kernel", fake_cupy.compile_kernel)
    monkeypatch.setattr(scenarios, "WIDTH", 16)
    monkeypatch.setattr(measure, "WARM_UP", 0)
    operations.cache_clear()
    yield module
    operations.cache_clear()


def usual(key: str) -> Settings:
    return Settings(key, 24, min(4, SCENARIOS[key].default_n))


@every("key", SCENARIOS)
def test_a_scenario_is_verified_and_has_a_timeline_of_all_its_operations(key):
    found = measure.measure(usual(key), repeats=2)
    ops, timeline = operations(usual(key)), Timeline.from_json(found["timeline"])
    assert found["ops"] == len(ops) and found["n"] == 2 and found["error"] <= scenarios.TOLERANCE
    assert 0 < found["p20_ms"] <= found["total_ms"] <= found["p80_ms"]
    for queue in (IN, COMPUTE, OUT):
        timed = sorted(s.op for s in timeline.spans if s.queue == queue)
        assert timed == [at for at, op in enumerate(ops) if op.queue == queue]
    assert all(s.end >= s.start for s in timeline.spans)
    assert {s.op for s in timeline.spans if s.queue == HOST} >= {at for at, op in enumerate(ops) if op.blocks}


def test_a_copy_that_does_not_arrive_is_found(monkeypatch):
    monkeypatch.setattr(fake_cupy.MemoryPointer, "copy_from_host_async", lambda *args: None)
    with pytest.raises(RuntimeError, match="not finite"):
        measure.measure(usual("pinned"), repeats=1)


def test_a_kernel_that_is_wrong_is_found(monkeypatch):
    def wrong(source, entry, defines):
        right = fake_cupy.compile_kernel(source, entry, defines)

        def call(grid, block, args, shared_mem=0):
            right(grid, block, args)
            args[3].numpy[-1, -1] *= 1.01

        return call

    monkeypatch.setattr(cuda, "compile_kernel", wrong)
    with pytest.raises(RuntimeError, match="off by"):
        measure.measure(usual("pieces"), repeats=1)


def test_the_allocator_s_log_names_the_line_of_the_leak():
    found = measure.leak_log(usual("leak"))
    ((line, nbytes),) = found["log"]
    assert "d_y = gpu.empty" in FILE.read_text("utf-8").splitlines()[line - 1]
    assert nbytes == found["predicted_last"] == found["after"][-1] == 4 * 24 * 16 * 4
    assert measure.leak_log(usual("no_leak"))["log"] == []
    assert text_log({line: nbytes}) == [f"programs.py:{line}: {nbytes:,} bytes in use"]


def test_managed_memory_is_refused_where_it_is_not_safe(monkeypatch):
    monkeypatch.setattr(fake_cupy.Device, "attributes", {"ManagedMemory": 1, "ConcurrentManagedAccess": 0})
    with pytest.raises(RuleError, match="does not allow the processor"):
        measure.measure(usual("managed"), repeats=1)
    monkeypatch.setattr(fake_cupy.Device, "attributes", {})
    assert cuda.managed_refusal() == "this GPU has no managed memory"


def test_memory_that_cannot_be_pinned_or_allocated_is_refused(monkeypatch, fake):
    def full(size):
        raise fake_cupy.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")

    monkeypatch.setattr(fake.cuda, "PinnedMemory", full)
    with pytest.raises(RefusedError, match="cannot be pinned"):
        measure.measure(usual("pinned"), repeats=1)
    monkeypatch.undo()


def test_too_little_memory_on_the_gpu_is_named(monkeypatch):
    monkeypatch.setattr(measure, "free_bytes", lambda: 100)
    with pytest.raises(RuleError, match="the GPU, 100 bytes are free; take fewer rows"):
        measure.measure(usual("pinned"), repeats=1)


def test_without_notes_nothing_is_noted_but_the_result_is_the_same():
    gpu = Gpu(cuda.CudaBackend(), notes=False)
    given = scenarios.arrays(gpu, usual("launches"), gpu.backend.pinned)
    given.reset(gpu)
    gpu.backend.restart()
    scenarios.run(gpu, usual("launches"), given.args)
    assert given.check() == 0.0
    assert not [op for op in gpu.ops if op.kind == "launch"]


def test_cupy_has_what_the_backend_calls():
    sys.modules.pop("cupy", None)
    cupy = pytest.importorskip("cupy", exc_type=ImportError)
    for name in (
        "Stream",
        "Event",
        "MemoryPool",
        "Memory",
        "MemoryPointer",
        "PinnedMemory",
        "PinnedMemoryPointer",
        "MemoryHook",
        "malloc_managed",
        "get_elapsed_time",
        "Device",
    ):
        assert hasattr(cupy.cuda, name), name
    for name in ("copy_from_host_async", "copy_to_host_async", "memset", "ptr"):
        assert hasattr(cupy.cuda.MemoryPointer, name), name
    for name in ("record", "wait_event", "synchronize", "begin_capture", "end_capture"):
        assert hasattr(cupy.cuda.Stream, name), name
    assert np.float32 is cupy.float32
