"""Batches of blocks: what a launch computes, counts and reports does not depend on how many blocks run together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator import batches, ledger
from kernels.engines.emulator.compiler.compile import OPTIONS, compile_ptx
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, device_memory, launch
from kernels.engines.emulator.memory import WRITTEN
from kernels.engines.emulator.ptx.parse import parse
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.offenders import every

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
i32, f32 = np.int32, np.float32
WHOLE = 1 << 40  # bytes: all blocks are one batch

# Shared and local memory, barriers in a loop, threads that end before one, a tail, three axes of the grid.
WORK = """extern "C" __global__ void k(int* out, const int* x, int n) {
  __shared__ int part[96];
  int own[4], t = threadIdx.x, b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  for (int k = 0; k < 4; ++k) own[k] = x[(b * 7 + t * 3 + k) % n];
  part[t] = own[t % 4] + blockIdx.z;
  if (t + b >= 90) return;
  __syncthreads();
  int sum = 0;
  for (int d = 1; d < 40; d *= 3) {
    if (t >= d) sum += part[t - d];
    __syncthreads();
    part[t] = sum + own[(t + d) % 4];
    __syncthreads();
  }
  out[b * 96 + t] = sum;
}"""


def _run(source: str, arrays: dict[str, np.ndarray], written: list[str], args: list, grid, block, options: Options):
    memory = device_memory(arrays, written)
    return launch(compile_ptx(source, "kernel.cu"), "k", grid, block, args, memory, options=options), memory


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 2)),
    st.integers(1, 96),
    st.sampled_from(["forward", "reversed", 3]),
    st.integers(0, 20_000),
)
@settings(max_examples=25, deadline=None)
def test_results_counters_and_notes_are_those_of_one_batch(grid, block, order, size):
    blocks = math.prod(grid)
    arrays = {"out": np.zeros(blocks * 96, i32), "x": np.random.default_rng(0).integers(0, 99, 50).astype(i32)}
    found = []
    for limit in (WHOLE, size):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batches, "BYTES", limit)
            options = Options(order=order, races=True, numbers=True)
            run, memory = _run(WORK, arrays, ["x"], ["out", "x", i32(50)], grid, (block, 1, 1), options)
        assert not run.races
        values = np.where(memory.state == WRITTEN, memory.bytes, 0)
        found.append((memory.state.tolist(), values.tolist(), run.counted, len(run.warnings), ledger.notes(run.ended)))
    assert found[0] == found[1]


@pytest.fixture
def block_by_block(monkeypatch):
    monkeypatch.setattr(batches, "BYTES", 1)


def test_shared_and_local_memory_of_a_block_is_not_that_of_the_one_before(block_by_block):
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int part[32];
  if (blockIdx.x == 0) part[threadIdx.x] = 7;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = part[31 - threadIdx.x];
}"""
    with pytest.raises(EmulatorError, match=r"kernel.cu:5: read at part\[.*never written, by .* of block \(1, 0, 0\)"):
        emulate(source, {}, {"out": (64, i32)}, grid=2)
    local = source.replace("__shared__ int part[32]", "int part[32]").replace(
        "part[threadIdx.x] = 7", "part[out[0]] = 7"
    )
    with pytest.raises(EmulatorError, match=r"never written, by .* of block \(1, 0, 0\)"):
        emulate(local.replace("part[31 - threadIdx.x]", "part[out[32]]"), {"out": np.zeros(64, i32)}, grid=2)


@pytest.mark.parametrize("order", ["forward", "reversed", 5])
def test_a_race_of_two_batches_names_both_blocks(block_by_block, order):
    source = 'extern "C" __global__ void k(int* out) {\n  out[0] = blockIdx.x + 1;\n}'
    (race,) = emulate(source, {}, {"out": (1, i32)}, grid=40, block=1, races=True, order=order).races
    first, second = ("block (1, 0, 0)", "block (0, 0, 0)") if order == "forward" else (" of block", " of block")
    assert first in race and second in race and "barrier of the grid" in race
    assert race.count("(0, 0, 0)") in ((3,) if order == "forward" else (2, 3))


def test_a_read_of_what_an_earlier_block_wrote_is_a_race(block_by_block):
    source = """extern "C" __global__ void k(int* out, int* x) {
  if (blockIdx.x == 0) x[threadIdx.x] = 1;
  else out[threadIdx.x] = x[threadIdx.x];
}"""
    run = emulate(source, {"x": np.zeros(32, i32)}, {"out": (32, i32)}, grid=2, races=True)
    assert len(run.races) == 1 and "reads x[" in run.races[0]


FENCED = """__device__ unsigned count;
extern "C" __global__ void k(int* out, volatile int* part) {
  __shared__ bool last;
  part[blockIdx.x * 64 + threadIdx.x] = threadIdx.x;
  %s
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(&count, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (last) {
    int sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += part[b * 64 + threadIdx.x];
    out[threadIdx.x] = sum;
  }
}"""


def test_a_fence_and_an_atomic_order_blocks_of_different_batches(block_by_block):
    arrays = {"part": np.zeros(6 * 64, i32)}
    run = emulate(FENCED % "__threadfence();", arrays, {"out": (64, i32)}, grid=6, block=64, races=True)
    assert not run.races and (run["out"] == 6 * np.arange(64)).all()
    plain = (FENCED % "").replace("volatile ", "")
    assert emulate(plain, arrays, {"out": (64, i32)}, grid=6, block=64, races=True).races


def test_unread_shared_words_are_those_of_all_blocks(block_by_block):
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int part[32];
  part[threadIdx.x] = blockIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = part[blockIdx.x + 1];
}"""
    run, _ = _run(source, {"out": np.zeros(3, i32)}, [], ["out"], (3, 1, 1), (32, 1, 1), Options(races=True))
    (note,) = ledger.notes_on_shared(run.ended)
    assert note.startswith(
        "93 of 96 written words of part are never read, the first is part[0], written at kernel.cu:3"
    )
    assert note.endswith("by block (0, 0, 0)")


def test_lines_that_threads_of_different_batches_begin_do_not_mix(block_by_block):
    source = """extern "C" __global__ void k() {
  printf("block %d", blockIdx.x);
  if (blockIdx.x != 1) printf(" ends\\n");
}"""
    printed = emulate(source, {}, grid=3, block=1).printed
    assert [(line.block[0], line.text) for line in printed] == [
        (0, "block 0 ends"),
        (2, "block 2 ends"),
        (1, "block 1"),
    ]


@pytest.mark.parametrize("sync", ["", "__syncthreads();"])
def test_an_endless_loop_ends_in_time(block_by_block, sync):
    source = f"""extern "C" __global__ void k(unsigned* out, unsigned n) {{
  unsigned v = 1;
  while (v != n) {{ v = v * 1664525u + 1013904223u | 1u; {sync} }}
  out[0] = v;
}}"""
    with pytest.raises(EmulatorError, match=r"stopped after 0\.3 seconds"):
        emulate(source, {}, {"out": (1, np.uint32)}, args=["out", np.uint32(2)], grid=4, block=64, seconds=0.3)


ALONE = {
    "a flag": 'extern "C" __global__ void k(volatile int* f) { if (blockIdx.x) while (!*f) ; else *f = 1; }',
    "a clock": 'extern "C" __global__ void k(long long* f) { *f = clock64(); }',
    "a cluster": 'extern "C" __global__ void __cluster_dims__(2) k(int* f) { asm volatile("barrier.cluster.arrive;"); }',
    "an asynchronous copy": 'extern "C" __global__ void k(int* f) { __shared__ int s[32]; asm volatile("cp.async.ca.shared.global '
    '[%0], [%1], 4;" :: "r"((int)__cvta_generic_to_shared(s)), "l"(f)); }',
}


@every("kernel", ALONE)
def test_blocks_that_may_wait_for_each_other_are_one_batch(kernel):
    options = [option.replace("compute_80", "compute_90") for option in OPTIONS]
    parsed = parse(compile_ptx(ALONE[kernel], "kernel.cu", options), "k")
    assert batches.at_once(parsed, (1 << 20, 1, 1), (1024, 1, 1), 0) == 1 << 20


def test_a_batch_is_as_large_as_its_memory_allows():
    kernel = parse(compile_ptx(WORK, "kernel.cu"), "k")
    each = batches.bytes_of_block(kernel, (96, 1, 1), 0)
    assert each > 96 * 4 * 4 * 2 + 96 * 4 * 2
    most = batches.BYTES // each
    assert batches.at_once(kernel, (most, 1, 1), (96, 1, 1), 0) == most
    assert batches.at_once(kernel, (most, 2, 1), (96, 1, 1), 0) == most
    assert batches.at_once(kernel, (most + 1, 1, 1), (96, 1, 1), 0) == -(-(most + 1) // 2)
    assert batches.at_once(kernel, (9, 1, 1), (96, 1, 1), batches.BYTES) == 1
