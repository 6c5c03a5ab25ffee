"""The emulator's messages about errors in kernels: faults and data races."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from tests.helpers.emulated import emulate, needs_nvrtc

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
f32, i32, u32, i64, u64 = np.float32, np.int32, np.uint32, np.int64, np.uint64
ORDERS = ["forward", "reversed", 1, 2, 3]


# -- faults --------------------------------------------------------------------------------------------------
def _fault(source: str, message: str, inputs, outputs=None, **kwargs) -> None:
    with pytest.raises(EmulatorError) as caught:
        emulate(source, inputs, outputs, **kwargs)
    assert re.search(message, str(caught.value)), str(caught.value)


X = {"x": np.arange(100, dtype=f32)}
OUT = {"out": ((100,), f32)}


def test_read_past_the_end():
    source = """extern "C" __global__ void k(float* out, const float* x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i + 1];
  if (i < 100) out[i] = v;
}"""
    _fault(
        source,
        r"^k, kernel\.cu:3: out-of-bounds read of 4 bytes just past the end of x \[100\], "
        r"by thread \(3, 0, 0\) of block \(3, 0, 0\)$",
        X,
        OUT,
        grid=4,
        block=32,
    )


def test_read_before_the_start():
    source = """extern "C" __global__ void k(float* out, const float* x) {
  int t = threadIdx.y * blockDim.x + threadIdx.x;
  out[t] = x[t - 2];
}"""
    _fault(
        source,
        r"^k, kernel\.cu:3: out-of-bounds read of 4 bytes 8 bytes before the start of x \[100\], "
        r"by thread \(0, 0, 0\) of block \(0, 0, 0\)$",
        X,
        OUT,
        block=(8, 8),
    )


def test_write_past_the_end():
    source = """extern "C" __global__ void k(float* out) {
  int t = threadIdx.z * blockDim.y + threadIdx.y;

  out[t * 3] = 1.0f;
}"""
    _fault(
        source,
        r"^k, kernel\.cu:4: out-of-bounds write of 4 bytes 8 bytes past the end of out \[100\], "
        r"by thread \(0, 2, 4\) of block \(0, 0, 0\)$",
        {},
        OUT,
        block=(1, 8, 8),
    )


def test_read_of_a_vector_whose_second_half_is_past_the_end():
    source = """extern "C" __global__ void k(float* out, const float2* x) {
  float2 v = x[threadIdx.x];
  out[threadIdx.x] = v.x + v.y;
}"""
    _fault(
        source,
        r"^k, kernel\.cu:2: out-of-bounds read of 8 bytes at x\[98\], by thread \(49, 0, 0\)",
        {"x": np.arange(99, dtype=f32)},
        OUT,
        block=50,
    )


def test_invalid_pointer():
    source = """extern "C" __global__ void k(float* out, const float* x) {
  out[threadIdx.x] = x[(long long)threadIdx.x << 40];
}"""
    _fault(source, r"^k, kernel\.cu:2: out-of-bounds read .*by thread \(1, 0, 0\)", X, OUT)
    null = 'extern "C" __global__ void k(float* out) {\n  float* p = 0;\n  out[0] = p[threadIdx.x];\n}'
    _fault(null, r"^k, kernel\.cu:3: the kernel stops itself", {}, OUT)


def test_misaligned_vector():
    source = """extern "C" __global__ void k(float* out, const float* x) {
  float4 v = *(const float4*)(x + 4 * threadIdx.x + (threadIdx.x == 5));
  out[threadIdx.x] = v.x + v.w;
}"""
    _fault(
        source,
        r"^k, kernel\.cu:2: misaligned read of 16 bytes at x\[21\], by thread \(5, 0, 0\) of block \(0, 0, 0\)$",
        X,
        OUT,
        block=20,
    )


def test_read_of_unwritten_global_memory():
    source = """extern "C" __global__ void k(float* out, const float* x) {
  int t = threadIdx.x;
  if (t != 9) out[t] = x[t];
  __syncthreads();
  out[t] = out[t ^ 1] + 1.0f;
}"""
    _fault(
        source,
        r"^k, kernel\.cu:5: .*out\[9\], which was never written, by thread \(8, 0, 0\) of block \(0, 0, 0\)$",
        X,
        OUT,
        block=64,
    )


def test_read_of_unwritten_shared_memory():
    source = """extern "C" __global__ void k(float* out) {
  __shared__ float s[32];
  if (threadIdx.x < 30) s[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}"""
    _fault(
        source,
        r"^k, kernel\.cu:5: .*s\[30\] in shared memory, which was never written, "
        r"by thread \(30, 0, 0\) of block \(1, 0, 0\)$|of block \(0, 0, 0\)$",
        {},
        OUT,
        grid=2,
    )


def test_access_beyond_shared_memory():
    source = """extern "C" __global__ void k(float* out) {
  __shared__ float s[24];
  s[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = s[0];
}"""
    _fault(
        source,
        r"^k, kernel\.cu:3: out-of-bounds .*4 bytes at byte 96 of the block's 96 bytes of shared memory, "
        r"by thread \(24, 0, 0\) of block \(0, 0, 0\)$",
        {},
        OUT,
        grid=2,
    )


def test_threads_of_a_warp_at_different_barriers():
    source = """extern "C" __global__ void k(float* out) {
  if (threadIdx.x < 40) {
    out[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] += 1.0f;
  } else {
    out[threadIdx.x] = 2.0f;
    __syncthreads();
  }
}"""
    _fault(
        source,
        r"^k, kernel\.cu:[48]: not all threads of the warp reach this barrier: others wait at kernel\.cu:[48], "
        r"by thread \(\d+, 0, 0\) of block \(0, 0, 0\)$",
        {},
        OUT,
        block=64,
        grid=2,
    )


def test_endless_kernel_is_stopped():
    source = """extern "C" __global__ void k(volatile int* x) {
  int n = 0;
  while (x[0] == 0)
    n += x[1];
  x[2] = n;
}"""
    _fault(
        source,
        r"^k, kernel\.cu:[34]: this loop never ends: what its condition depends on repeats, and no thread is left "
        r"to change it, by thread \(0, 0, 0\) of block",
        {"x": np.zeros(3, i32)},
    )


def test_invalid_argument_is_refused():
    source = 'extern "C" __global__ void k(float* out, int n) { out[0] = n; }'
    with pytest.raises(EmulatorError, match="argument 1 is 4 bytes wide, got 8"):
        emulate(source, {}, OUT, args=["out", np.int64(1)])
    with pytest.raises(EmulatorError, match="takes 2 arguments, got 1"):
        emulate(source, {}, OUT, args=["out"])


# -- races ---------------------------------------------------------------------------------------------------
def _reduction(barrier: str, type_: str = "float") -> str:
    return f"""extern "C" __global__ void k({type_}* out, const {type_}* in) {{
  __shared__ {type_} s[128];
  int t = threadIdx.x;
  s[t] = in[t];
  __syncthreads();
  for (int d = 64; d; d >>= 1) {{
    if (t < d) s[t] = s[t] + s[t + d];
    {barrier}
  }}
  if (t == 0) out[0] = s[0];
}}"""


def _races(source: str, outputs=None, **kwargs) -> tuple[str, ...]:
    inputs = kwargs.pop("inputs", {"in": np.arange(128, dtype=f32)})
    return emulate(
        source, inputs, outputs or {"out": ((1,), f32)}, block=kwargs.pop("block", 128), races=True, **kwargs
    ).races


def test_reduction_races_only_without_its_barrier():
    found = _races(_reduction(""))
    assert found
    pattern = r"^k, kernel\.cu:7: data race on shared memory: thread \(\d+, 0, 0\) of block .* (reads|writes) s\[\d+\], which thread"
    assert all(re.match(pattern, text) for text in found), found
    assert _races(_reduction("__syncthreads();")) == ()


def test_races_of_narrow_elements():
    """Neighbours in one word are no race; a missing barrier still causes one."""
    x = np.arange(128, dtype=np.int16)
    out = {"out": ((1,), np.int16)}
    assert _races(_reduction("__syncthreads();", "short"), out, inputs={"in": x}) == ()
    assert _races(_reduction("", "short"), out, inputs={"in": x})


def test_warp_barrier_orders_only_its_lanes():
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = t;
  %s
  int v = s[t ^ 1] + s[t ^ 2] + s[t ^ 1];
  %s
  s[t] = v;
  %s
  out[t] = s[t ^ %d];
}"""
    out = {"out": ((64,), i32)}
    sync = "__syncwarp();"
    assert _races(source % (sync, sync, sync, 4), out, inputs={}, block=64) == ()
    assert _races(source % ("", sync, sync, 4), out, inputs={}, block=64)
    assert _races(source % (sync, "", sync, 4), out, inputs={}, block=64)
    assert _races(source % (sync, sync, sync, 32), out, inputs={}, block=64)
    assert _races(source % (sync, sync, "__syncthreads();", 32), out, inputs={}, block=64) == ()


def test_warp_barrier_does_not_order_another_warp():
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int s[64];
  s[threadIdx.x] = 0;
  __syncthreads();
  int v = s[0];
  __syncwarp();
  if (threadIdx.x == 33) s[0] = 1;
  out[threadIdx.x] = v;
}"""
    assert _races(source, {"out": ((64,), i32)}, inputs={}, block=64)
    one_warp = source.replace("== 33", "== 3")
    assert _races(one_warp, {"out": ((32,), i32)}, inputs={}, block=32) == ()


def test_two_writers_of_one_word_race():
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int s[64];
  s[threadIdx.x / 2] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x / 2];
}"""
    found = _races(source, {"out": ((64,), i32)}, inputs={}, block=64)
    assert len(found) == 1 and "kernel.cu:3" in found[0] and "writes" in found[0]


# Each thread of a block of 64 runs this between two barriers; `other` is a thread of the other warp.
_BETWEEN_BARRIERS = """extern "C" __global__ void k(int* out, const int* in) {
  __shared__ int s[64];
  int t = threadIdx.x, other = t ^ 32, got = 0;
  s[t] = 0;
  __syncthreads();
  %s
  __syncthreads();
  out[t] = s[t] + got;
}"""


@pytest.mark.parametrize(
    "statement",
    [
        "s[0] = 5;",  # all threads, one value
        "s[t / 2] = t / 2;",
        "s[t % 32] = in[0]; if (t >= 32) s[t % 32] = in[0];",
        "s[t] = t; s[t] = t + 1;",  # a thread's own word
        "s[t] = t; __syncwarp(); s[t ^ 1] = 7;",
        "atomicAdd(&s[0], t); atomicMax(&s[0], 3);",
        "got = atomicAdd(&s[0], t); if (got < 0) atomicExch(&s[0], t);",
        "atomicAdd(&s[t], 1); got = s[t];",
        "got = s[0] + s[1];",
        "got = s[t ^ 1]; __syncwarp(); got += s[t]; s[t] = 1;",  # the warp's barrier orders the earlier reads
    ],
)
def test_no_race(statement):
    inputs = {"in": np.ones(64, i32)}
    assert _races(_BETWEEN_BARRIERS % statement, {"out": ((64,), i32)}, inputs=inputs, block=64) == ()


@pytest.mark.parametrize(
    "statement, verb, other",
    [
        ("s[0] = t;", "writes", "writes"),  # one instruction
        ("s[t / 2] = t & 1;", "writes", "writes"),
        ("s[t & 31] = 5; if (t == 40) s[8] = 6;", "writes", "writes"),  # equal values, then another
        ("if (t < 40) s[0] = 5; else got = s[0];", "reads", "writes"),
        ("if (t == 3) got = s[9]; if (t == 33) s[9] = 0;", "writes", "reads"),  # the value that is there
        ("atomicAdd(&s[0], 1); if (t == 33) got = s[0];", "reads", "updates"),
        ("if (t == 33) got = s[0]; atomicAdd(&s[0], 1);", "updates", "reads"),
        ("if (t == 33) s[0] = 1; atomicAdd(&s[0], 1);", "updates", "writes"),
        ("atomicAdd(&s[0], 0); if (t == 33) s[0] = 0;", "writes", "updates"),
        ("s[t] = t; __syncwarp(); s[other] = 7;", "writes", "writes"),
    ],
)
def test_race(statement, verb, other):
    found = _races(_BETWEEN_BARRIERS % statement, {"out": ((64,), i32)}, inputs={"in": np.ones(64, i32)}, block=64)
    assert len(found) == 1, found
    assert re.search(
        rf"kernel\.cu:6: data race on shared memory: thread .* {verb} s\[\d+\], which .* {other} at", found[0]
    ), found


@pytest.mark.parametrize("size, filled", [(16, 16), (16, 6), (4, 4)])
def test_copies_of_one_value_to_a_word_are_no_race(size, filled):
    source = """extern "C" __global__ void k(int* out, const int* in) {
  __shared__ __align__(16) int s[128];
  int t = threadIdx.x;
  unsigned to = (unsigned)__cvta_generic_to_shared(&s[t / %d * 4]);
  asm volatile("cp.async.ca.shared.global [%%0], [%%1], %d, %d;" :: "r"(to), "l"(in + t / %d * 4));
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  out[t] = s[t / 2 * 4];
}"""
    inputs, out = {"in": np.arange(256, dtype=i32)}, {"out": ((64,), i32)}
    assert _races(source % (2, size, filled, 2), out, inputs=inputs, block=64) == ()
    assert _races(source % (2, size, filled, 1), out, inputs=inputs, block=64)
