"""The emulator's control flow, warp instructions and order of execution."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.emulated_numbers import assert_same, f32, i32, rng, u32
from tests.helpers.offenders import every

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]


# -- control flow --------------------------------------------------------------------------------------------
def test_divergent_branches_and_loops():
    source = """
    extern "C" __global__ void k(int* out, const int* in, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      int v = in[i], r = 0;
      if (v % 2) { if (v % 3) r += 1; else { r += 2; if (v > 50) r += 100; } }
      else if (v < 20) r -= 5; else r -= 7;
      #pragma unroll 1
      for (int j = 0; j < v; ++j) {
        if (j % 5 == 4) continue;
        if (r > 500) break;
        r += j;
        int k = j;
        while (k > 3) { k -= 2; if (k == 7) break; r ^= k; }
      }
      do { r += 3; } while (r % 7);
      out[i] = r;
    }"""

    def one(v: int) -> int:
        r = 0
        if v % 2:
            if v % 3:
                r += 1
            else:
                r += 102 if v > 50 else 2
        else:
            r -= 5 if v < 20 else 7
        for j in range(v):
            if j % 5 == 4:
                continue
            if r > 500:
                break
            r += j
            k = j
            while k > 3:
                k -= 2
                if k == 7:
                    break
                r ^= k
        while True:
            r += 3
            if math.fmod(r, 7) == 0:
                return r

    values = rng.integers(0, 100, 150).astype(i32)
    run = emulate(source, {"x": values}, {"out": ((150,), i32)}, args=["out", "x", i32(150)], grid=3, block=64)
    assert_same(run["out"], np.array([one(int(v)) for v in values], i32))


def test_switch_with_many_cases():
    cases = "\n".join(f"case {n}: r = f{n % 4}(v, {n}); break;" for n in range(12))
    source = f"""
    __device__ int f0(int a, int b) {{ return a * b; }}
    __device__ int f1(int a, int b) {{ int s = 0; for (int i = 0; i < b; ++i) s += a ^ i; return s; }}
    __device__ int f2(int a, int b) {{ return a << b; }}
    __device__ int f3(int a, int b) {{ return a / (b + 1); }}
    extern "C" __global__ void k(int* out, const int* in) {{
      int v = in[threadIdx.x], r = -1;
      switch (v) {{ {cases} default: r = 1000; }}
      out[threadIdx.x] = r;
    }}"""
    values = rng.integers(-2, 15, 96).astype(i32)
    run = emulate(source, {"in": values}, {"out": ((96,), i32)}, block=96)
    f = [lambda a, b: a * b, lambda a, b: sum(a ^ i for i in range(b)), lambda a, b: a << b, lambda a, b: a // (b + 1)]
    assert_same(run["out"], np.array([f[v % 4](v, v) if 0 <= v < 12 else 1000 for v in values.tolist()], i32))


def test_noinline_functions():
    source = """
    struct Pair { int a; float b; };
    __noinline__ __device__ int gcd(int a, int b) { while (b) { int t = a % b; a = b; b = t; if (a == 1) return 1; } return a; }
    __noinline__ __device__ Pair both(int a, Pair p) { Pair r; r.a = gcd(a, p.a); r.b = p.b * a; return r; }
    __noinline__ __device__ void put(int* out, int i, int v) { out[i] = v; }
    extern "C" __global__ void k(int* out, float* b, const int* in) {
      int i = threadIdx.x;
      Pair p = {in[i], 0.5f};
      if (i % 3 == 0) p = both(in[(i + 1) % 64], p);
      else p.a = gcd(p.a, 12) + gcd(p.a, 9);
      put(out, i, p.a);
      b[i] = p.b;
    }"""
    values = rng.integers(1, 1000, 64).astype(i32)
    run = emulate(source, {"in": values}, {"out": ((64,), i32), "b": ((64,), f32)}, block=64)
    v = values.tolist()
    expected = [
        math.gcd(v[(i + 1) % 64], v[i]) if i % 3 == 0 else math.gcd(v[i], 12) + math.gcd(v[i], 9) for i in range(64)
    ]
    assert_same(run["out"], np.array(expected, i32))
    assert_same(run["b"], np.array([0.5 * v[(i + 1) % 64] if i % 3 == 0 else 0.5 for i in range(64)], f32))


def test_inline_assembly_has_separate_scopes():
    """Registers of the same name in two blocks, and names of the kernel's own predicates."""
    source = """
    extern "C" __global__ void k(int* out, const int* in) {
      int v = in[threadIdx.x], a, b;
      asm volatile("{ .reg .pred p; .reg .b32 t; setp.gt.s32 p, %1, 10; add.s32 t, %1, 5; @p add.s32 t, t, 100; mov.b32 %0, t; }" : "=r"(a) : "r"(v));
      asm volatile("{ .reg .pred %%p1; .reg .b16 t; setp.lt.s32 %%p1, %1, 0; selp.b32 %0, 1, 2, %%p1; }" : "=r"(b) : "r"(v));
      asm volatile("{ .reg .pred q; setp.eq.s32 q, %1, 0; @q bra DONE; add.s32 %0, %0, 1000; DONE: }" : "+r"(b) : "r"(v));
      out[threadIdx.x] = a * (v > 3 ? 1 : -1) + b;
    }"""
    v = np.arange(-16, 16, dtype=i32)
    run = emulate(source, {"in": v}, {"out": ((32,), i32)})
    a = v + 5 + 100 * (v > 10)
    assert_same(run["out"], (a * np.where(v > 3, 1, -1) + np.where(v < 0, 1, 2) + 1000 * (v != 0)).astype(i32))


def test_unknown_opcode_error_names_its_line():
    source = (
        'extern "C" __global__ void k(int* p) {\n  p[0] = 1;\n  asm volatile("tcgen05.dealloc.sync.b32 96, 32;");\n}'
    )
    with pytest.raises(EmulatorError, match=r"k, kernel\.cu:3: unknown opcode tcgen05\.dealloc"):
        emulate(source, {}, {"p": ((1,), i32)})


# -- warps --------------------------------------------------------------------------------------------------
LANE = np.arange(32)


def _shuffled(v: np.ndarray, source: np.ndarray, inside: np.ndarray) -> np.ndarray:
    return np.where(inside, v[np.where(inside, source, 0)], v)


@pytest.mark.parametrize("width", [32, 16, 8])
def test_shuffles(width):
    source = f"""
    extern "C" __global__ void k(int* up, int* down, int* across, int* from, float* f, const int* in) {{
      int i = threadIdx.x, v = in[i];
      up[i] = __shfl_up_sync(~0u, v, 3, {width});
      down[i] = __shfl_down_sync(~0u, v, 5, {width});
      across[i] = __shfl_xor_sync(~0u, v, 5, {width});
      from[i] = __shfl_sync(~0u, v, i * 7, {width});
      f[i] = __shfl_sync(~0u, (float)v * 0.5f, 2, {width});
    }}"""
    v = rng.integers(-1000, 1000, 64).astype(i32)
    names = ("up", "down", "across", "from")
    outputs = dict.fromkeys(names, ((64,), i32)) | {"f": ((64,), f32)}
    run = emulate(source, {"in": v}, outputs, block=64)
    segment_lane, start = LANE % width, LANE // width * width
    for warp in range(2):
        w = v[32 * warp : 32 * warp + 32]
        got = {n: run[n][32 * warp : 32 * warp + 32] for n in (*names, "f")}
        assert_same(got["up"], _shuffled(w, LANE - 3, segment_lane >= 3))
        assert_same(got["down"], _shuffled(w, LANE + 5, segment_lane + 5 < width))
        assert_same(got["across"], w[LANE ^ 5])
        assert_same(got["from"], w[start + (32 * warp + LANE) * 7 % width])
        assert_same(got["f"], w[start + 2].astype(f32) * f32(0.5))


def test_warp_and_block_reductions_of_partial_warps():
    source = """
    extern "C" __global__ void k(float* sums, float* total, const float* in, int n) {
      __shared__ float part[32];
      int i = threadIdx.x, lane = i & 31, warp = i >> 5;
      float v = i < n ? in[i] : 0.0f;
      for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
      if (lane == 0) { part[warp] = v; sums[warp] = v; }
      __syncthreads();
      if (warp == 0) {
        v = lane < (blockDim.x + 31) / 32 ? part[lane] : 0.0f;
        for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
        total[lane] = v;
      }
    }"""
    x = rng.integers(-50, 50, 150).astype(f32)
    run = emulate(
        source,
        {"in": x},
        {"sums": ((5,), f32), "total": ((32,), f32)},
        args=["sums", "total", "in", i32(150)],
        block=160,
    )
    assert_same(run["sums"], np.array([x[n : n + 32].sum() for n in range(0, 150, 32)], f32))
    assert_same(run["total"], np.full(32, x.sum(), f32))


def test_votes_matches_and_warp_reductions_in_divergent_code():
    source = """
    extern "C" __global__ void k(unsigned* out, const int* in) {
      int i = threadIdx.x, v = in[i];
      unsigned* o = out + 13 * i;
      for (int n = 0; n < 13; ++n) o[n] = 0;
      o[0] = __ballot_sync(~0u, v > 3);
      o[1] = __all_sync(~0u, v > -1);
      o[2] = __any_sync(~0u, v == 9);
      o[3] = __match_any_sync(~0u, v);
      o[4] = __reduce_add_sync(~0u, v);
      o[5] = __reduce_max_sync(~0u, v - 5);
      o[6] = __reduce_or_sync(~0u, 1u << v);
      int same; o[7] = __match_all_sync(~0u, v / 100, &same); o[8] = same;
      if (i % 3 == 0) {
        unsigned active = __activemask();
        o[9] = active;
        o[10] = __ballot_sync(active, v > 3);
        o[11] = __reduce_min_sync(active, v);
        o[12] = __match_any_sync(active, v);
      }
    }"""
    v = np.concatenate([rng.integers(0, 9, 32), rng.integers(0, 12, 32)]).astype(i32)
    run = emulate(source, {"in": v}, {"out": ((64, 13), u32)}, block=64)
    for warp in range(2):
        out, w = run["out"][32 * warp : 32 * warp + 32], v[32 * warp : 32 * warp + 32]
        bits = lambda lanes: sum(1 << int(n) for n in np.flatnonzero(lanes))  # noqa: E731
        assert (out[:, 0] == bits(w > 3)).all()
        assert (out[:, 1] == 1).all() and (out[:, 2] == (w == 9).any()).all()
        assert [int(x) for x in out[:, 3]] == [bits(w == x) for x in w]
        assert (out[:, 4] == w.sum()).all()
        assert (out[:, 5].view(i32) == w.max() - 5).all()
        assert (out[:, 6] == np.bitwise_or.reduce(1 << w)).all()
        assert (out[:, 7] == 0xFFFFFFFF).all() and (out[:, 8] == 1).all()
        third = (32 * warp + LANE) % 3 == 0
        assert (out[third, 9] == bits(third)).all() and (out[~third, 9] == 0).all()
        assert (out[third, 10] == bits(third & (w > 3))).all()
        assert (out[third, 11] == w[third].min()).all()
        assert [int(x) for x in out[third, 12]] == [bits(third & (w == x)) for x in w[third]]


def test_lanes_that_take_no_part_have_no_vote():
    source = """
    extern "C" __global__ void k(unsigned* out, const int* in) {
      int i = threadIdx.x;
      out[i] = 2;
      if (i % 3 == 0) out[i] = __all_sync(__activemask(), in[i]);
    }"""
    third = LANE % 3 == 0
    for votes in (third, third & (LANE > 0)):
        run = emulate(source, {"in": votes.astype(i32)}, {"out": ((32,), u32)}, block=32)
        assert_same(run["out"], np.where(third, votes[0], 2).astype(u32))


def test_votes_in_a_partial_warp():
    source = """
    extern "C" __global__ void k(unsigned* out) {
      out[threadIdx.x] = __ballot_sync(__activemask(), threadIdx.x % 2) + 0 * __activemask();
    }"""
    run = emulate(source, {}, {"out": ((40,), u32)}, block=40)
    assert_same(run["out"], np.array([0xAAAAAAAA] * 32 + [0xAA] * 8, u32))


# -- order ---------------------------------------------------------------------------------------------------
ORDERS = ["forward", "reversed", 1, 2, 3]


@every("order", ORDERS)
def test_results_do_not_depend_on_the_warp_order(order):
    source = """
    extern "C" __global__ void k(int* sum, int* out, const int* in, int n) {
      __shared__ int s[96];
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      s[threadIdx.x] = i < n ? in[i] : 0;
      __syncthreads();
      int v = 0;
      for (int j = 0; j <= threadIdx.x; ++j) v += s[j];
      if (i < n) out[i] = v;
      __syncthreads();
      if (threadIdx.x < 48) s[threadIdx.x] += s[threadIdx.x + 48];
      __syncthreads();
      if (threadIdx.x < 48) atomicAdd(sum + blockIdx.y, s[threadIdx.x]);
    }"""
    x = rng.integers(-9, 9, 250).astype(i32)
    run = emulate(
        source,
        {"sum": np.zeros(2, i32), "in": x},
        {"out": ((250,), i32)},
        args=["sum", "out", "in", i32(250)],
        grid=(3, 2),
        block=96,
        order=order,
    )
    assert (run["sum"] == x.sum()).all()
    padded = np.pad(x, (0, 38)).reshape(3, 96)
    assert_same(run["out"], np.cumsum(padded, axis=1).reshape(-1)[:250].astype(i32))


def test_warp_order_selects_the_last_writer():
    """Otherwise the test above would show nothing."""
    source = 'extern "C" __global__ void k(int* out) { out[0] = blockIdx.x; }'
    last = {order: int(emulate(source, {}, {"out": ((1,), i32)}, grid=8, order=order)["out"][0]) for order in ORDERS}
    assert last["forward"] == 7 and last["reversed"] == 0 and len({last[1], last[2], last[3]}) > 1
