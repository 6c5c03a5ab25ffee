"""The emulator's counters against figures computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines.emulator.counters import FIELDS
from tests.helpers.emulated import Outcome, emulate, needs_nvrtc
from tests.helpers.offenders import every

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
f32, i32 = np.float32, np.int32


def _pick(run: Outcome, *names: str) -> tuple[int, ...]:
    return tuple(run.total[name] for name in names)


# -- global memory ---------------------------------------------------------------------------------------
@every(
    "index, sectors",
    [
        ("t", 4),  # 128 bytes in a row
        ("2 * t", 8),
        ("8 * t", 32),
        ("32 * t", 32),
        ("t + 1", 5),  # one float off: a fifth sector
        ("t + 8", 4),  # a whole sector off
        ("31 - t", 4),  # backwards is as good
        ("7", 1),  # all lanes at one address
        ("t / 8", 1),
        ("(t * 5) % 32", 4),
    ],
)
def test_sectors_of_one_request(index, sectors):
    source = f"""extern "C" __global__ void k(float* out, const float* in) {{
      int t = threadIdx.x;
      out[t] = in[{index}];
    }}"""
    run = emulate(source, {"in": np.zeros(1024, f32)}, {"out": ((32,), f32)})
    assert _pick(run, "requests_ld", "sectors_ld", "bytes_ld") == (1, sectors, 128)
    assert _pick(run, "requests_st", "sectors_st", "bytes_st") == (1, 4, 128)


@every("stride, sectors", [(1, 4), (2, 8), (33, 32)])
def test_sectors_of_stores(stride, sectors):
    source = f'extern "C" __global__ void k(float* out) {{ out[threadIdx.x * {stride}] = 1.0f; }}'
    run = emulate(source, {}, {"out": ((3 * 96 * 33,), f32)}, block=96)
    assert _pick(run, "requests_st", "sectors_st", "requests_ld") == (3, 3 * sectors, 0)


def test_vectors_and_narrow_types():
    source = """extern "C" __global__ void k(float4* out, const float4* in, const double* d, const char* c, const short* s) {
      int t = threadIdx.x;
      float4 v = in[t];
      v.x += d[t];
      v.y += c[t];
      v.z += s[t];
      out[t] = v;
    }"""
    run = emulate(
        source,
        {"in": np.zeros((32, 4), f32), "d": np.zeros(32), "c": np.zeros(32, np.int8), "s": np.zeros(32, np.int16)},
        {"out": ((32, 4), f32)},
    )
    lines = {3: (16, 512), 4: (8, 256), 5: (1, 32), 6: (2, 64)}
    for line, (sectors, n_bytes) in lines.items():
        assert (run.at(line)["sectors_ld"], run.at(line)["bytes_ld"]) == (sectors, n_bytes)
    assert _pick(run, "requests_ld", "sectors_ld", "requests_st", "sectors_st") == (4, 27, 1, 16)


def test_sectors_of_partial_warps_and_inactive_lanes():
    source = """extern "C" __global__ void k(float* out, const float* in, int n) {
      int t = blockIdx.x * blockDim.x + threadIdx.x;
      if (t < n) out[t] = in[t];
    }"""
    run = emulate(
        source, {"in": np.zeros(100, f32)}, {"out": ((100,), f32)}, args=["out", "in", i32(75)], grid=2, block=40
    )
    # Warps of 32 and 8 lanes (block 0), of 32 and 3 lanes (block 1: 75 - 72; 5 of its 8 lanes are beyond n).
    # Block 1 starts at element 40, a sector's start.
    assert _pick(run, "requests_ld", "sectors_ld", "bytes_ld") == (4, 4 + 1 + 4 + 1, 300)
    assert _pick(run, "requests_st", "sectors_st", "bytes_st") == (4, 10, 300)


SGEMM = """extern "C" __global__ void k(float* C, const float* A, const float* B, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n || column >= n) return;
  float sum = 0.0f;
  #pragma unroll 1
  for (int i = 0; i < n; ++i)
    sum += A[row * n + i] * B[i * n + column];
  C[row * n + column] = sum;
}"""


@pytest.mark.parametrize("n, requests, sectors", [(64, 16_384, 32_768), (61, 15_128, 35_902)])
def test_sectors_of_a_naive_matrix_product(n, requests, sectors):
    """n = 64: 16 blocks of 8 warps, 64 steps, 2 loads. A's two rows are 2 sectors, B's 16 floats 2. A profiler on an
    H200 reports the same figures for both n."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (n, n)).astype(f32) for _ in range(2))
    run = emulate(
        SGEMM, {"A": a, "B": b}, {"C": ((n, n), f32)}, args=["C", "A", "B", i32(n)], grid=(4, 4), block=(16, 16)
    )
    np.testing.assert_array_equal(run["C"], a @ b)
    assert _pick(run, "requests_ld", "sectors_ld") == (requests, sectors)
    assert run.at(7)["requests_ld"] == requests
    assert run.total["flops_fp"] == 2 * n**3 == run.at(7)["flops_fp"]
    assert run.total["bytes_ld"] == 2 * 4 * n**3


# -- shared memory -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "index, waves",
    [
        ("t", 1),
        ("2 * t", 2),
        ("4 * t", 4),
        ("32 * t", 32),
        ("33 * t", 1),
        ("31 * t", 1),
        ("5", 1),  # broadcast
        ("t / 4", 1),
        ("(t % 2) * 32", 2),  # two words of one bank
        ("(t % 16) * 2", 1),  # 16 words, each for two lanes
    ],
)
def test_wavefronts_of_one_shared_load(index, waves):
    source = f"""extern "C" __global__ void k(float* out) {{
      __shared__ float s[1056];
      int t = threadIdx.x;
      for (int i = t; i < 1056; i += 32) s[i] = i;
      __syncthreads();
      out[t] = s[{index}];
    }}"""
    run = emulate(source, {}, {"out": ((32,), f32)})
    t = np.arange(32)
    np.testing.assert_array_equal(run["out"], eval(index.replace("/", "//"), {"t": t}) + 0 * t)
    assert _pick(run, "shared_requests_ld", "wavefronts_ld", "bank_conflicts_ld") == (1, waves, waves - 1)
    assert _pick(run, "shared_requests_st", "wavefronts_st", "bank_conflicts_st") == (33, 33, 0)


@every(
    "type_, index, waves, ideal",
    [
        ("float2", "t", 2, 2),
        ("float4", "t", 4, 4),
        ("float2", "2 * t", 4, 2),
        ("short", "t", 1, 1),
        ("float2", "t / 2", 1, 1),  # each lane loads the same as its neighbour
        ("float2", "t % 2 + t / 4 * 2", 1, 1),  # as the lane two further
    ],
)
def test_wavefronts_of_wide_and_narrow_shared_loads(type_, index, waves, ideal):
    sum_text = {"short": "v", "float2": "v.x + v.y", "float4": "v.x + v.y + v.z + v.w"}[type_]
    source = f"""extern "C" __global__ void k(float* out) {{
      __shared__ {type_} s[64];
      int t = threadIdx.x;
      s[t] = {{}}; s[t + 32] = {{}};
      __syncthreads();
      {type_} v = s[{index}]; out[t] = {sum_text};
    }}"""
    run = emulate(source, {}, {"out": ((32,), f32)})
    assert run.at(6)["wavefronts_ld"] == waves
    assert run.at(6)["bank_conflicts_ld"] == waves - ideal


@pytest.mark.parametrize("pitch, waves", [(32, 32), (33, 1)])
def test_wavefronts_of_a_shared_memory_transpose(pitch, waves):
    source = f"""extern "C" __global__ void k(float* out, const float* in, int n) {{
  __shared__ float s[32][{pitch}];
  int x = threadIdx.x, y = threadIdx.y;
  s[y][x] = in[(blockIdx.y * 32 + y) * n + blockIdx.x * 32 + x];
  __syncthreads();
  out[(blockIdx.x * 32 + y) * n + blockIdx.y * 32 + x] = s[x][y];
}}"""
    a = np.arange(64 * 64, dtype=f32).reshape(64, 64)
    run = emulate(source, {"in": a}, {"out": (a.shape, f32)}, args=["out", "in", i32(64)], grid=(2, 2), block=(32, 32))
    np.testing.assert_array_equal(run["out"], a.T)
    warps = 4 * 32
    assert _pick(run, "wavefronts_ld", "bank_conflicts_ld") == (warps * waves, warps * (waves - 1))
    assert _pick(run, "wavefronts_st", "bank_conflicts_st") == (warps, 0)
    assert _pick(run, "sectors_ld", "sectors_st", "barriers") == (warps * 4, warps * 4, warps)


def test_bank_conflicts_count_only_active_lanes():
    source = """extern "C" __global__ void k(float* out) {
      __shared__ float s[1024];
      int t = threadIdx.x;
      for (int i = t; i < 1024; i += 32) s[i] = i;
      __syncthreads();
      if (t < 5) out[t] = s[32 * t];
    }"""
    run = emulate(source, {}, {"out": ((32,), f32)})
    assert _pick(run, "wavefronts_ld", "bank_conflicts_ld") == (5, 4)


@every("size, apart, waves, fewest", [(4, 1, 1, 1), (4, 2, 2, 1), (8, 1, 2, 2), (16, 1, 4, 4)])
def test_async_copies_are_counted_as_stores_and_separately(size, apart, waves, fewest):
    """One warp copies `size` bytes a lane, `apart` times as far apart in shared memory, and stores once."""
    floats = size // 4
    source = f"""extern "C" __global__ void k(float* out, const float* in) {{
      __shared__ __align__(16) float s[1024];
      int t = threadIdx.x;
      unsigned to = (unsigned)__cvta_generic_to_shared(s + {floats * apart} * t);
      asm volatile("cp.async.ca.shared.global [%0], [%1], {size};" :: "r"(to), "l"(in + {floats} * t));
      asm volatile("cp.async.wait_all;" ::);
      __syncwarp();
      float sum = s[{floats * apart} * t];
      s[512 + t] = sum;
      __syncwarp();
      out[t] = s[512 + (t ^ 1)];
    }}"""
    a = np.arange(32 * floats, dtype=f32)
    run = emulate(source, {"in": a}, {"out": ((32,), f32)}, args=["out", "in"])
    np.testing.assert_array_equal(run["out"], a[::floats].reshape(-1, 2)[:, ::-1].ravel())
    assert _pick(run, "wavefronts_copied", "bank_conflicts_copied") == (waves, waves - fewest)
    assert _pick(run, "wavefronts_st", "bank_conflicts_st") == (waves + 1, waves - fewest)
    assert _pick(run, "requests_ld", "sectors_ld") == (1, size)


@every(
    "type_, update, loads, waves",
    [
        ("int", "atomicAdd(&s[t / 8], t)", 0, 0),
        ("int", "atomicExch(&s[0], t)", 0, 0),
        ("unsigned long long", "atomicExch(&s[0], 1ull)", 0, 0),
        ("float", "atomicAdd(&s[t], 1.0f)", 1, 1),
        ("float", "atomicAdd(&s[0], 1.0f)", 32, 32),
        ("float", "atomicAdd(&s[t / 8], 1.0f)", 8, 8),
        ("float", "if (t < 20) atomicAdd(&s[t / 8], 1.0f)", 8, 8),
        ("float", "atomicAdd(&s[t % 2 * 32], 1.0f)", 32, 63),  # two words in one bank: one lane of both
        ("float", "atomicAdd(&s[t * 2], 1.0f)", 2, 3),
        ("double", "atomicAdd(&s[t / 4 * 8], 1.0)", 8, 24),  # two words in a bank, one lane of 16 at a time
        ("float", "atomicAdd(&s[t < 4 ? 0 : t], 1.0f)", 4, 4),  # a lane alone at its word succeeds at once
        ("double", "atomicAdd(&s[t / 2], 1.0)", 2, 2),
        ("unsigned long long", "atomicAdd(&s[0], 1ull)", 32, 32),
    ],
)
def test_loads_of_atomics_that_are_loops(type_, update, loads, waves):
    """Two blocks of two warps."""
    source = f"""extern "C" __global__ void k({type_}* out) {{
      __shared__ {type_} all[2][64];
      int t = threadIdx.x % 32;
      {type_}* s = all[threadIdx.x / 32];
      s[t] = s[t + 32] = 0;
      __syncthreads();
      {update};
      __syncthreads();
      out[threadIdx.x] = s[t] + s[t + 32];
    }}"""
    dtype = {"int": i32, "float": f32, "double": np.float64}.get(type_, np.uint64)
    run = emulate(source, {}, {"out": ((64,), dtype)}, grid=2, block=64)
    at = run.at(7)
    assert (at["shared_requests_ld"], at["wavefronts_ld"]) == (4 * loads, 4 * waves)
    assert at["atomics"] == 4 * (20 if "< 20" in update else 32)


# -- instructions --------------------------------------------------------------------------------------------
def test_branches_and_divergent_branches():
    source = """extern "C" __global__ void k(int* out, const int* in) {
      int t = blockIdx.x * blockDim.x + threadIdx.x;
      int n = in[t], sum = 0;
      #pragma unroll 1
      while (n > 0) { sum += n; n -= 1; out[t] = sum; }
    }"""
    trips = np.concatenate([np.full(32, 3), np.arange(32) % 4, np.full(32, 5)]).astype(i32)
    run = emulate(source, {"in": trips, "out": np.zeros(96, i32)}, args=["out", "in"], block=96)
    np.testing.assert_array_equal(run["out"], trips * (trips + 1) // 2)
    # Each warp branches once before the loop; the second diverges there. At the end of each iteration it branches
    # again: 3, 3 and 5 times. The second diverges at the first two; at the third all remaining lanes leave.
    assert _pick(run, "branches", "divergent_branches") == (3 + 3 + 3 + 5, 1 + 2)


def test_thread_instructions_are_warp_instructions_times_lanes():
    source = 'extern "C" __global__ void k(int* out) { out[threadIdx.x] = threadIdx.x * 3; }'
    one = emulate(source, {}, {"out": ((64,), i32)}, block=32).total
    two = emulate(source, {}, {"out": ((64,), i32)}, block=64).total
    partial = emulate(source, {}, {"out": ((64,), i32)}, block=40).total
    assert one["thread_instructions"] == 32 * one["warp_instructions"]
    assert two["warp_instructions"] == 2 * one["warp_instructions"] == partial["warp_instructions"]
    assert partial["thread_instructions"] == 40 * one["warp_instructions"]


def test_flops_by_kind():
    source = """extern "C" __global__ void k(float* out, const float* in, const int* i, double* d) {
  int t = threadIdx.x;
  float v = in[t];
  v = v * v + 1.0f;
  v = v - 3.0f;
  v = fabsf(v);
  out[t] = __dp4a(i[t], 7, (int)v);
  d[t] = (double)v * 2.0 + 1.0;
}"""
    run = emulate(
        source,
        {"in": np.ones(64, f32), "i": np.ones(64, i32)},
        {"out": ((64,), f32), "d": ((64,), np.float64)},
        args=["out", "in", "i", "d"],
        block=50,
    )
    assert {n: run.at(n)["flops_fp"] for n in (4, 5, 6, 8)} == {4: 100, 5: 50, 6: 0, 8: 100}
    assert run.total["flops_fp"] == 250 and run.total["flops_dp4a"] == 400


def test_flops_of_halves():
    source = """#include <cuda_fp16.h>
extern "C" __global__ void k(__half2* out, const __half2* in, __half* h) {
  __half2 v = in[threadIdx.x];
  v = __hfma2(v, v, v);
  v = __hadd2(v, v);
  out[threadIdx.x] = v;
  h[threadIdx.x] = __hmul(h[threadIdx.x], h[threadIdx.x]);
}"""
    pairs, halves = np.ones((32, 2), np.float16), np.ones(32, np.float16)
    run = emulate(source, {"in": pairs, "h": halves}, {"out": ((32, 2), np.float16)}, args=["out", "in", "h"])
    assert {n: run.at(n)["flops_fp"] for n in (4, 5, 7)} == {4: 128, 5: 64, 7: 32}


def test_barriers_are_counted_once_a_warp():
    source = """extern "C" __global__ void k(int* out) {
      for (int i = 0; i < 3; ++i) __syncthreads();
      out[threadIdx.x] = __syncthreads_count(threadIdx.x);
    }"""
    run = emulate(source, {}, {"out": ((80,), i32)}, grid=2, block=80)
    assert run.total["barriers"] == 2 * 3 * 4


def test_line_counts_sum_to_the_total():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((20, 20)).astype(f32) for _ in range(2))
    run = emulate(
        SGEMM, {"A": a, "B": b}, {"C": ((20, 20), f32)}, args=["C", "A", "B", i32(20)], grid=(2, 2), block=(16, 16)
    )
    for field in FIELDS:
        assert sum(counts[field] for counts in run.counters.lines.values()) == run.total[field], field
    assert run.total["warp_instructions"] > 0 and len(run.counters.lines) >= 5


@pytest.mark.parametrize("order", ["reversed", 1])
def test_counts_do_not_depend_on_the_warp_order(order):
    a = np.ones((33, 33), f32)
    runs = [
        emulate(
            SGEMM,
            {"A": a, "B": a},
            {"C": ((33, 33), f32)},
            args=["C", "A", "B", i32(33)],
            grid=(3, 3),
            block=(16, 16),
            order=o,
        )
        for o in ("forward", order)
    ]
    assert runs[0].counters == runs[1].counters


def test_counters_are_none_without_counting():
    source = 'extern "C" __global__ void k(int* out) { out[threadIdx.x] = 1; }'
    assert emulate(source, {}, {"out": ((32,), i32)}, count=False).counters is None
