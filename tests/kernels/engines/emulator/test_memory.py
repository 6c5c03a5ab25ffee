"""The emulator's memory: every space, atomics, barriers."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines.emulator.ptx.names import variable
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.emulated_numbers import rng
from tests.helpers.offenders import every

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
f32, i32, u32, i64, u64 = np.float32, np.int32, np.uint32, np.int64, np.uint64
ORDERS = ["forward", "reversed", 1, 2, 3]


# -- spaces ----------------------------------------------------------------------------------------------
def test_vector_loads_and_stores():
    source = """
    extern "C" __global__ void k(float4* out, float2* half_, const float4* in, const float2* two, const int4* i, int4* j) {
      int t = threadIdx.x;
      float4 v = in[t]; float2 w = two[t];
      out[t] = make_float4(v.w, v.z * w.x, v.y + w.y, v.x);
      half_[t] = make_float2(v.x + v.y, w.y);
      int4 n = i[t]; j[t] = make_int4(n.y, n.x, n.w, n.z);
    }"""
    x, w = rng.standard_normal((40, 4)).astype(f32), rng.standard_normal((40, 2)).astype(f32)
    n = rng.integers(-99, 99, (40, 4)).astype(i32)
    run = emulate(
        source,
        {"in": x, "two": w, "i": n},
        {"out": ((40, 4), f32), "half": ((40, 2), f32), "j": ((40, 4), i32)},
        args=["out", "half", "in", "two", "i", "j"],
        block=40,
    )
    np.testing.assert_array_equal(run["out"], np.stack([x[:, 3], x[:, 2] * w[:, 0], x[:, 1] + w[:, 1], x[:, 0]], 1))
    np.testing.assert_array_equal(run["half"], np.stack([x[:, 0] + x[:, 1], w[:, 1]], 1))
    np.testing.assert_array_equal(run["j"], n[:, [1, 0, 3, 2]])


@pytest.mark.parametrize("order", ORDERS)
def test_arrays_indexed_at_run_time_are_local(order):
    source = """
    extern "C" __global__ void k(int* out, const int* in, int n) {
      int own[16], t = threadIdx.x;
      for (int i = 0; i < 16; ++i) own[i] = in[t * 16 + i];
      for (int i = 1; i < 16; ++i) {  // insertion sort
        int v = own[i], j = i;
        while (j && own[j - 1] > v) { own[j] = own[j - 1]; --j; }
        own[j] = v;
      }
      char bytes[8];
      for (int i = 0; i < 8; ++i) bytes[i] = own[i + n] * 3;
      for (int i = 0; i < 16; ++i) out[t * 16 + i] = own[i] + bytes[own[i] & 7];
    }"""
    x = rng.integers(-40, 40, (40, 16)).astype(i32)
    run = emulate(source, {"in": x}, {"out": ((40, 16), i32)}, args=["out", "in", i32(3)], block=40, order=order)
    ordered = np.sort(x, axis=1)
    tail = (ordered[:, 3:11] * 3).astype(np.int8)
    np.testing.assert_array_equal(run["out"], ordered + np.take_along_axis(tail, ordered & 7, axis=1))


@every("order", ORDERS)
def test_static_and_dynamic_shared_memory(order):
    source = """
    extern __shared__ float extra[];
    extern "C" __global__ void k(float* out, const float* in) {
      __shared__ float a[32][33];
      __shared__ short b[64];
      float* second = extra + 64;
      int t = threadIdx.x, block = blockIdx.x;
      for (int r = 0; r < 32; ++r) if (t < 32) a[r][t] = in[(block * 32 + r) * 32 + t];
      b[t] = t * 1000 - 32000;
      extra[t] = t; second[t] = block;
      __syncthreads();
      if (t < 32) for (int r = 0; r < 32; ++r) out[(block * 32 + r) * 32 + t] = a[t][r] + b[63 - t] + extra[t + 1] + second[r];
    }"""
    x = rng.integers(-99, 99, (3, 32, 32)).astype(f32)
    run = emulate(source, {"in": x}, {"out": (x.shape, f32)}, grid=3, block=64, shared=512, order=order)
    t = np.arange(32)
    expected = x.transpose(0, 2, 1) + ((63 - t) * 1000 - 32000) + t + 1 + np.arange(3)[:, None, None]
    np.testing.assert_array_equal(run["out"], expected.astype(f32))


def test_negative_offset_from_the_first_shared_element():
    """A halo: addresses below the base with positive offsets."""
    source = """
    extern "C" __global__ void k(int* out) {
      __shared__ int s[66];
      int t = threadIdx.x;
      s[t + 1] = t * t;
      if (t == 0) s[0] = s[65] = -1;
      __syncthreads();
      int* p = s + t - 2;
      out[t] = p[2] + 10 * p[3] + 100 * p[4];
    }"""
    run = emulate(source, {}, {"out": ((64,), i32)}, block=64)
    s = np.concatenate([[-1], np.arange(64) ** 2, [-1]])
    np.testing.assert_array_equal(run["out"], s[:-2] + 10 * s[1:-1] + 100 * s[2:])


def test_shared_addresses_wrap_at_32_bits():
    """A negative register plus an offset that makes the address valid, as a compiler may write s[i - 64 + 64]."""
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int s[32];
  int t = threadIdx.x, v;
  s[t] = t * t;
  __syncthreads();
  asm volatile("ld.shared.s32 %0, [%1+256];" : "=r"(v) : "r"((unsigned)__cvta_generic_to_shared(s + t) - 256));
  out[t] = v;
}"""
    run = emulate(source, {}, {"out": ((32,), i32)})
    np.testing.assert_array_equal(run["out"], np.arange(32) ** 2)


def test_structs_by_value_and_other_arguments():
    source = """
    struct Inner { short a; double b; };
    struct Shape { int n; float scale[3]; Inner inner; const int* p; };
    extern "C" __global__ void k(double* out, Shape s, char c, long long big, bool flag) {
      int t = threadIdx.x;
      if (t < s.n) out[t] = s.scale[t % 3] * s.p[t] + s.inner.a + s.inner.b + c + (flag ? (double)big : 0.0);
    }"""
    inner = np.dtype([("a", np.int16), ("b", np.float64)], align=True)
    struct = np.dtype([("n", i32), ("scale", f32, 3), ("inner", inner), ("p", u64)], align=True)
    from kernels.engines.emulator.compiler.compile import compile_ptx
    from kernels.engines.emulator.launch import device_memory, launch

    p = np.arange(10, dtype=i32)
    memory = device_memory({"out": np.zeros(10), "p": p}, ["p"])
    value = np.zeros((), struct)
    value["n"], value["scale"], value["inner"]["a"], value["inner"]["b"] = 10, (0.5, 2, -4), -7, 0.25
    value["p"] = memory.address("p")
    args = ["out", value[()], np.int8(-3), np.int64(1 << 40), np.bool_(True)]
    launch(compile_ptx(source, "kernel.cu"), "k", (1, 1, 1), (32, 1, 1), args, memory)
    expected = np.resize([0.5, 2, -4], 10) * p - 7 + 0.25 - 3 + float(1 << 40)
    np.testing.assert_array_equal(memory.array("out"), expected)


def test_constants_and_device_variables():
    source = """
    __constant__ float table[4] = {0.5f, -1.0f, 2.0f, 8.0f};
    __constant__ int same = 41;
    __device__ int counter = 7;
    __device__ short list[3] = {-1, 2, -3};
    __device__ float scratch[64];
    extern "C" __global__ void k(float* out, int* seen) {
      int t = threadIdx.x;
      scratch[t] = table[t % 4] * (same + 1);
      seen[t] = atomicAdd(&counter, 2) + list[t % 3];
      __syncthreads();
      out[t] = scratch[63 - t];
    }"""
    run = emulate(source, {}, {"out": ((64,), f32), "seen": ((64,), i32)}, block=64)
    t = np.arange(64)
    np.testing.assert_array_equal(run["out"], (np.array([0.5, -1, 2, 8], f32) * 42)[(63 - t) % 4])
    np.testing.assert_array_equal(run["seen"], 7 + 2 * t + np.array([-1, 2, -3])[t % 3])
    assert run["counter"].view(i32)[0] == 7 + 128


def test_asynchronous_copies():
    source = """
    extern "C" __global__ void k(float* out, const float* in, int n) {
      __shared__ __align__(16) float s[128];
      int t = threadIdx.x;
      unsigned to = (unsigned)__cvta_generic_to_shared(s + 4 * t);
      int left = max(0, min(16, 4 * (n - 4 * t)));
      const float* from = in + (left ? 4 * t : 0);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\\n" :: "r"(to), "l"(from), "r"(left));
      asm volatile("cp.async.commit_group;\\n" ::);
      asm volatile("cp.async.wait_group %0;\\n" :: "n"(0));
      __syncthreads();
      for (int i = 0; i < 4; ++i) out[32 * i + t] = s[32 * i + t];
      __syncthreads();
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\\n" :: "r"((unsigned)__cvta_generic_to_shared(s + t)), "l"(in + t));
      asm volatile("cp.async.wait_all;\\n" ::);
      out[128 + t] = s[t];
    }"""
    x = rng.standard_normal(110).astype(f32)
    run = emulate(source, {"in": x}, {"out": ((160,), f32)}, args=["out", "in", i32(110)])
    np.testing.assert_array_equal(run["out"], np.concatenate([x, np.zeros(18, f32), x[:32]]))


# -- atomics ------------------------------------------------------------------------------------------------
def test_global_atomics_and_their_results():
    source = """
    extern "C" __global__ void k(int* i, unsigned* u, float* f, unsigned long long* l, int* old) {
      int t = blockIdx.x * blockDim.x + threadIdx.x, v = (t * 37) % 101 - 50;
      old[t] = atomicAdd(i, 1);
      atomicAdd(i + 1, v); atomicMin(i + 2, v); atomicMax(i + 3, v);
      atomicSub(i + 4, 2); atomicXor(i + 5, v); atomicAnd(i + 6, ~(1 << (t % 7))); atomicOr(i + 7, 1 << (t % 20));
      atomicExch(i + 8, v);
      atomicInc(u, 9); atomicDec(u + 1, 9); atomicMin(u + 2, (unsigned)v); atomicMax(u + 3, (unsigned)v);
      atomicAdd(f + t % 3, 0.5f);
      atomicAdd(l, (unsigned long long)t << 32);
    }"""
    n = 192
    run = emulate(
        source,
        {
            "i": np.array([0, 0, 99, -99, 0, 0, -1, 0, 5], i32),
            "u": np.array([0, 0, 2**32 - 1, 0], u32),
            "f": np.zeros(3, f32),
            "l": np.zeros(1, u64),
        },
        {"old": ((n,), i32)},
        args=["i", "u", "f", "l", "old"],
        grid=2,
        block=96,
    )
    t = np.arange(n)
    v = (t * 37) % 101 - 50
    i = run["i"]
    assert sorted(run["old"]) == list(range(n)) and i[0] == n
    assert list(i[1:8]) == [v.sum(), v.min(), v.max(), -2 * n, np.bitwise_xor.reduce(v), ~0x7F, (1 << 20) - 1]
    assert i[8] in v
    up = down = 0
    for _ in range(n):
        up = 0 if up >= 9 else up + 1
        down = 9 if down == 0 or down > 9 else down - 1
    assert list(run["u"]) == [up, down, v.astype(u32).min(), v.astype(u32).max()]
    assert list(run["f"]) == [n / 6] * 3
    assert int(run["l"][0]) == int(t.sum()) << 32


def test_compare_and_swap_loop():
    source = """
    __device__ float multiply(float* at, float by) {
      int* p = (int*)at; int seen = *p, was;
      do { was = seen; seen = atomicCAS(p, was, __float_as_int(__int_as_float(was) * by)); } while (seen != was);
      return __int_as_float(was);
    }
    extern "C" __global__ void k(float* out, float* before) {
      __shared__ float s;
      if (threadIdx.x == 0) s = 1.0f;
      __syncthreads();
      before[threadIdx.x] = multiply(&s, 2.0f);
      multiply(out + threadIdx.x % 2, 0.5f);
      __syncthreads();
      if (threadIdx.x == 0) out[2] = s;
    }"""
    run = emulate(source, {"out": np.array([1, 8, 0], f32)}, {"before": ((40,), f32)}, args=["out", "before"], block=40)
    np.testing.assert_array_equal(run["out"], np.array([2.0**-20, 8 * 2.0**-20, 2.0**40], f32))
    np.testing.assert_array_equal(np.sort(run["before"]), 2.0 ** np.arange(40, dtype=f32))


@every("order", ORDERS)
def test_histogram_in_shared_memory(order):
    source = """
    extern "C" __global__ void k(int* total, const unsigned char* in, int n) {
      __shared__ int bins[32];
      if (threadIdx.x < 32) bins[threadIdx.x] = 0;
      __syncthreads();
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(bins + in[i] / 8, 1);
      __syncthreads();
      if (threadIdx.x < 32) atomicAdd(total + threadIdx.x, bins[threadIdx.x]);
    }"""
    x = rng.integers(0, 256, 5000).astype(np.uint8)
    run = emulate(
        source, {"total": np.zeros(32, i32), "in": x}, args=["total", "in", i32(5000)], grid=3, block=128, order=order
    )
    np.testing.assert_array_equal(run["total"], np.bincount(x // 8, minlength=32))
    assert run.total["atomics"] == 5000 + 3 * 32


# -- barriers ------------------------------------------------------------------------------------------------
@every("order", ORDERS)
def test_barriers_in_uniform_code(order):
    source = """
    extern "C" __global__ void k(int* out, int* counts) {
      __shared__ int s[64];
      int t = threadIdx.x, sum = 0;
      if (blockIdx.x % 2) {  // the same for all threads of a block
        s[t] = t; __syncthreads(); sum = s[63 - t];
      } else {
        for (int r = 0; r < blockIdx.x + 2; ++r) { s[t] = t + r; __syncthreads(); sum += s[(t + 1) % 64]; __syncthreads(); }
      }
      if (t % 4 == 3) sum += 1000;  // diverged, then together again
      out[blockIdx.x * 64 + t] = sum;
      int* c = counts + 3 * (blockIdx.x * 64 + t);
      c[0] = __syncthreads_count(t * (blockIdx.x + 1) > 80);
      c[1] = __syncthreads_and(t < 60 + 10 * blockIdx.x);
      c[2] = __syncthreads_or(t == 100 + blockIdx.x);
    }"""
    run = emulate(source, {}, {"out": ((3, 64), i32), "c": ((3, 64, 3), i32)}, grid=3, block=64, order=order)
    t = np.arange(64)
    for block in range(3):
        sum_ = 63 - t if block % 2 else sum((t + 1) % 64 + r for r in range(block + 2))
        np.testing.assert_array_equal(run["out"][block], sum_ + 1000 * (t % 4 == 3))
        counts = [(t * (block + 1) > 80).sum(), int(block > 0), 0]
        np.testing.assert_array_equal(run["c"][block], np.tile(counts, (64, 1)))


def test_barrier_does_not_wait_for_returned_threads():
    source = """
    extern "C" __global__ void k(int* out) {
      __shared__ int s[64];
      int t = threadIdx.x;
      if (t >= 50) return;
      s[t] = t;
      __syncthreads();
      out[t] = s[49 - t];
    }"""
    run = emulate(source, {"out": np.full(64, -1, i32)}, block=64)
    np.testing.assert_array_equal(run["out"], [*range(49, -1, -1), *[-1] * 14])


def test_atomics_on_vectors_update_each_element():
    source = """extern "C" __global__ void k(float* x, float* old) {
  float a, b;
  asm volatile("red.global.add.v4.f32 [%0+16], {%1, %2, %3, %1};" :: "l"(x), "f"(1.f), "f"(2.f), "f"(3.f));
  asm volatile("atom.global.add.v2.f32 {%0, %1}, [%2], {%3, %4};" : "=f"(a), "=f"(b) : "l"(x), "f"(1.f), "f"(10.f));
  old[threadIdx.x] = b - 10 * a;
}
"""
    run = emulate(source, {"x": np.zeros(8, f32)}, {"old": (32, f32)}, args=["x", "old"])
    assert run["x"].tolist() == [32, 320, 0, 0, 32, 64, 96, 32]
    assert run["old"].tolist() == [0] * 32


@every(
    "mangled, name",
    [
        ("_ZZ4gemmE2As", "As"),
        ("_ZZ9bank_freeE6tile_a", "tile_a"),
        ("_ZZ1kE4TILE_0", "TILE"),
        ("_ZZ5sgemmILi16EfEvPKT0_S2_PS0_E6tile_b", "tile_b"),
        ("shared", "shared"),
    ],
)
def test_name_of_a_shared_array(mangled, name):
    assert variable(mangled) == name
