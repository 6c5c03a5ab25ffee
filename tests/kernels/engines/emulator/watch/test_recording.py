"""A program is recorded: what lanes exchange, where blocks wait, which elements of arrays are read, what atomics leave, and both builds' bits."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.watch.recording import record
from kernels.engines.emulator.watch.user import record_kernel
from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from kernels.runner import inputs_of
from kernels.softmax.shape import SoftmaxShape
from tests.helpers.emulated import needs_nvrtc

SOURCE = """extern "C" __global__ void k(const float* x, float* y, int* count) {
  __shared__ float kept[32];
  float values[2] = {x[threadIdx.x], 0.0f};
  values[1] = __shfl_down_sync(~0u, values[0], 1);
  kept[threadIdx.x] = values[0] + values[1];
  __syncthreads();
  y[threadIdx.x] = kept[31 - threadIdx.x];
  atomicAdd(count, 2);
}
"""
ARGS = ("f32:32:arange", "f32:32:empty", "i32:1:zeros")


@pytest.fixture
def recorded(tmp_path):
    def make(source: str = SOURCE, block: int = 32, args=ARGS, **settings):
        (tmp_path / "own.cu").write_text(source, encoding="utf-8")
        return record_kernel(tmp_path / "own.cu", "k", (1, 1, 1), (block, 1, 1), args, **settings).recording

    return make


def lines(watched, steps) -> list[int]:
    return [watched.lines[watched.line[step]].number for step in steps]


@needs_nvrtc
def test_shuffles_barriers_and_reads(recorded):
    watched = recorded().watched
    of = watched.shuffles
    assert set(lines(watched, of.step)) == {4}
    np.testing.assert_array_equal(of.source, np.minimum(of.thread + 1, 31))
    np.testing.assert_array_equal(of.bits.view(np.float32), of.source)
    assert lines(watched, watched.barriers) == [6]
    values = next(n for n, v in enumerate(watched.values.variables) if v.name == "values")
    reads = watched.values.reads[values]
    assert set(reads) == {"[0]", "[1]"} and set(lines(watched, reads["[1]"].step)) == {5}
    assert sorted(set(reads["[0]"].thread.tolist())) == list(range(32))


@needs_nvrtc
def test_an_atomic_reads_the_old_value_and_writes_the_new_one(recorded):
    watched = recorded().watched
    of = watched.accesses
    mine = of.buffer == watched.buffers.index("arg2")
    np.testing.assert_array_equal(of.bits[mine & ~of.write], 2 * np.arange(32))
    np.testing.assert_array_equal(of.bits[mine & of.write], 2 * np.arange(1, 33))


@needs_nvrtc
def test_arrays_before_and_after_and_what_is_written(recorded):
    r = recorded()
    assert r.arguments == {"x": "arg0", "y": "arg1", "count": "arg2"} and r.given == {"arg0", "arg2"}
    assert not r.before["arg2"].any() and r.after["arg2"] == [64]
    assert r.written["arg1"].all()
    half = recorded(SOURCE.replace("  y[threadIdx", "  if (threadIdx.x < 9) y[threadIdx"))
    assert half.written["arg1"].sum() == 9


@needs_nvrtc
def test_what_was_done_before_a_fault_is_kept(recorded):
    r = recorded(args=("f32:30:arange", *ARGS[1:]))
    assert "out-of-bounds read" in r.fault and lines(r.watched, [r.watched.steps - 1]) == [3]
    with pytest.raises((RuleError, EmulatorError), match="takes 3 arguments"):
        recorded(args=ARGS[:2])


def test_both_builds_of_a_rung_give_the_same_bits():
    x = np.linspace(-2, 2, 40, dtype=np.float32)[None]
    program = find("softmax/online").build(SoftmaxShape(1, 40), {"BLOCK": 8})
    names = frozenset({"running"})
    found = record(program, {"x": x}, lambda _: (0,), lambda _: names)
    (launch,) = found.launches
    assert found.difference == 0 and launch.counters.total["bytes_ld"] == 2 * x.nbytes
    assert {v.name for v in launch.watched.values.variables} == {"running", "x", "y", "N"}
    np.testing.assert_array_equal(found.arrays["y"], launch.after["y"])
    assert list(launch.files) == ["03_online.cu", "softmax.cuh"]


@needs_nvrtc
@pytest.mark.parametrize(
    ("rung", "dtype"), [("gemm-8bit/wgmma-fp8", "float8_e4m3fn"), ("gemm-8bit/wgmma-int8", "int8")]
)
def test_bulk_copies_are_reads_and_writes_of_the_thread_that_begins_them(rung, dtype):
    ladder, found = ladder_of(rung), find(rung)
    shape = min(
        (p.shape for p in ladder.presets.values() if not any(found.rules(p.shape, found.default_tiles))),
        key=lambda s: s.bytes,
    )
    program = found.build(shape, found.default_tiles)
    (launch,) = record(program, inputs_of(ladder, shape, program), lambda _: (0,), lambda _: frozenset()).launches
    watched, of = launch.watched, launch.watched.accesses
    assert launch.arguments == {"A": "A", "B": "B", "C": "C"} and watched.parameters == ("A", "B", "C", "M", "N", "K")
    for name in ("A", "B"):
        n = watched.buffers.index(name)
        mine = (of.buffer == n) & ~of.write
        assert watched.dtypes[n] == dtype and len(set(of.thread[mine])) == 1
        values = np.zeros(launch.before[name].size, np.uint8)
        values[of.element[mine]] = of.bits[mine]
        assert values.tobytes() == launch.before[name].tobytes()
    written = (of.buffer == watched.buffers.index("C")) & of.write
    assert set(of.element[written]) == set(range(launch.after["C"].size))
