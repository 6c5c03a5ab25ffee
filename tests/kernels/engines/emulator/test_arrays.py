"""Accesses beyond one array in shared memory that reach the next."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.engines.emulator.compiler.compile import compile_ptx
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.ptx.arrays import arrays_of
from kernels.engines.emulator.ptx.parse import parse
from tests.helpers.emulated import emulate, needs_nvrtc

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
f32, i32 = np.float32, np.int32
# Arrays of 64 elements next to each other; each thread of 64 has written its elements.
KERNEL = """#include <mma.h>
__device__ __noinline__ float at(const float* p, int i) { return p[i]; }
extern "C" __global__ void k(float* out, const int* n, int m) {
  __shared__ __align__(256) float a[64], b[64], c[64];
  __shared__ __align__(32) half h[256], g[256];
  extern __shared__ float d[];
  int t = threadIdx.x;
  unsigned s = (unsigned)__cvta_generic_to_shared(a);
  a[t] = t; b[t] = 100 + t; c[t] = 200 + t; d[t] = 300 + t;
  for (int i = t; i < 256; i += 64) h[i] = g[i] = i;
  __syncthreads();
  float got = b[63 - t] + c[63 - t] + d[63 - t] + (float)h[t] + (float)g[t];
%s
  out[t] = got;
}"""
FRAGMENT = "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, half> f;"


def _run(body: str, n: int = 0, m: int = 0):
    inputs = {"n": np.full(64, n, i32)}
    args = ["out", "n", i32(m)]
    return emulate(
        KERNEL % body, inputs, {"out": ((64,), f32)}, args=args, block=64, shared=256, races=True, numbers=True
    )


@pytest.mark.parametrize(
    "body, n, where",
    [
        ("got += a[t + n[0]];", 1, r"access of 4 bytes just past the end of a \(256 bytes of shared memory\), at b\[0\]"),
        ("got += a[t] + b[t - n[0]];", 2, r"access of 4 bytes 8 bytes before the start of b \(256 bytes .*\), at a\[62\]"),
        ("got += a[n[t] + m];", 68, r"16 bytes past the end of a \(256"),
        ("a[t + n[0]] = 1; __syncthreads(); got += a[t] + b[t];", 1, "just past the end of a "),
        ("atomicAdd(&a[t + n[0]], 1.0f);", 1, "just past the end of a "),
        ("got += d[t - n[0]];", 1, r"4 bytes before the start of d \(dynamic shared memory\)"),
        ("for (float* p = a; p <= a + n[0]; ++p) got += *p;", 64, "just past the end of a "),
        ("const float* p = n[1] ? a : d; got += p[t - n[0]];", 1, "4 bytes before the start of (a|d) "),
        ("const float* p = n[1] == 2 ? a : c; got += p[t - n[0]];", 2, "8 bytes before the start of (a|c) "),
        ("got += ((const float4*)a)[n[0]].w;", 16, "access of 4 bytes 12 bytes past the end of a "),
        ("got += *(volatile float*)(a + n[0]);", 64, "just past the end of a "),
        ("float v; asm(\"ld.shared.f32 %%0, [%%1];\" : \"=f\"(v) : \"r\"(s + 4 * n[0])); got += v;", 64, "just past the end of a "),
        ("asm volatile(\"cp.async.ca.shared.global [%%0], [%%1], 4;\" :: \"r\"(s + 4 * n[0]), \"l\"(n));", 64, "just past the end of a "),
        ("unsigned v; asm(\"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%%0}, [%%1];\" : \"=r\"(v) : \"r\"(s + 16 * (t %% 8) + n[0])); got += v;",
         144, "access of 16 bytes just past the end of a "),
        (f"{FRAGMENT} nvcuda::wmma::load_matrix_sync(f, h + n[0], 16, nvcuda::wmma::mem_row_major); got += (float)f.x[0];",
         16, r"end of h \(512 bytes"),
    ],
)  # fmt: skip
def test_an_index_past_an_array_into_the_next(body, n, where):
    with pytest.raises(EmulatorError) as caught:
        _run(body.replace("%%", "%"), n, 0)
    assert re.search(rf"^k, kernel\.cu:13.*: out-of-bounds .*{where}", str(caught.value)), str(caught.value)


def test_a_gap_between_the_arrays_that_an_address_may_be_in():
    """Either a or c: b, between them, is neither."""
    source = """extern "C" __global__ void k(float* out, int n, int which) {
  __shared__ __align__(256) float a[64], b[64], c[64];
  int t = threadIdx.x;
  a[t] = b[t] = c[t] = t;
  __syncthreads();
  float* p = which ? a : c;
  p[t ^ 1] += b[t];
  __syncthreads();
  out[t] = p[t + n] + a[t] + c[t];
}"""
    for which, n, end in ((1, 1, "past the end of a "), (0, -1, "4 bytes before the start of c ")):
        with pytest.raises(EmulatorError, match=f"^k, kernel.cu:9: out-of-bounds access of 4 bytes .*{end}"):
            emulate(source, {}, {"out": ((64,), f32)}, args=["out", i32(n), i32(which)], block=64)
        emulate(source, {}, {"out": ((64,), f32)}, args=["out", i32(0), i32(which)], block=64)


T = np.arange(64)
BASE = (100 + 63 - T) + (200 + 63 - T) + (300 + 63 - T) + 2 * T


@pytest.mark.parametrize(
    "body, n, added",
    [
        ("got += a[t] + b[t];", 0, 100 + 2 * T),
        ("got += (t < 63 ? a[t + n[0]] : 0);", 1, np.where(T < 63, T + 1, 0)),
        ("float* p = a; float* q = b; for (int i = 0; i < n[0]; ++i) { float* h = p; p = q; q = h; } got += p[t];", 3, 100 + T),
        ("float* p[3] = {a, b, c}; got += p[n[0]][t];", 2, 200 + T),  # from memory
        ("__shared__ float* kept; if (t == 0) kept = c; __syncthreads(); float* q = *(float* volatile*)&kept;"
         " const float* p = n[1] == 2 ? q : a; got += p[t];", 2, 200 + T),
        ("got += at(n[1] ? a : c, t);", 2, T),  # by a call
        ("got += a[n[t] & 63] + a[(t * 8) %% 64 ^ t / 8];", 5, 5 + (T * 8 % 64 ^ T // 8)),
        ("float* e = a + 64; got += e[-1 - t];", 0, 63 - T),
        ("const float* p = n[0] ? a : nullptr; if (p) got += p[t];", 1, T),
        ("unsigned long long p = (unsigned long long)(a + t); p += (char*)b - (char*)a; got += *(float*)p;", 0, 100 + T),
        ("int away = (int)(c - a); got += a[t + away - n[0]];", 128, T),
        ("unsigned p = s + 4 * t; p ^= (p >> 3) & 0x10; float v; asm(\"ld.shared.f32 %%0, [%%1];\" : \"=f\"(v) : \"r\"(p)); got += v;",
         0, (4 * T ^ (4 * T >> 3 & 16)) // 4),
        ("got += d[t + n[0] - 1];", 1, 300 + T),
        (f"{FRAGMENT} nvcuda::wmma::load_matrix_sync(f, h, 16, nvcuda::wmma::mem_row_major); got += (float)f.x[0] * 0;", 0, 0 * T),
        ("unsigned v; asm(\"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%%0}, [%%1];\" : \"=r\"(v) : \"r\"(s + 16 * t)); got += v * 0;", 0, 0 * T),
    ],
)  # fmt: skip
def test_right_addresses(body, n, added):
    run = _run(body.replace("%%", "%"), n)
    np.testing.assert_array_equal(run["out"], BASE + added)
    assert run.races == ()


def test_arrays_next_to_each_other_are_one_range():
    ptx = compile_ptx(KERNEL % "float* p = n[1] ? a : b; got += p[t];", "kernel.cu")
    kernel = parse(ptx, "k")
    names = [v.name for v in kernel.variables if v.space == "shared" and v.size == 256]
    arrays = arrays_of(kernel, tuple((name, 256 * n) for n, name in enumerate(sorted(names))))
    ranges = [arrays.ranges(o) for i in kernel.code for o in i.operands if "shared" in i.parts and o.kind == "mem"]
    assert [(0, 512)] in ranges


def test_all_dynamic_arrays_start_at_one_place():
    source = """extern "C" __global__ void k(float* out, int n) {
  extern __shared__ float a[];
  extern __shared__ __align__(16) int b[];
  __shared__ float c[33];
  int t = threadIdx.x;
  c[t] = t; a[t] = 0.5f + t;
  __syncthreads();
  out[t] = __int_as_float(b[t ^ 1]) + c[t] + (n ? a : (float*)b)[t - n];
}"""
    for n in (0, -1):
        args = {"args": ["out", i32(n)], "block": 32, "shared": 132}
        if n:
            with pytest.raises(EmulatorError, match=r"never written|out-of-bounds"):
                emulate(source, {}, {"out": ((32,), f32)}, **args)
        else:
            run = emulate(source, {}, {"out": ((32,), f32)}, races=True, **args)
            np.testing.assert_array_equal(run["out"], (T[:32] ^ 1) + 2 * T[:32] + 1.0)
            assert run.races == ()
