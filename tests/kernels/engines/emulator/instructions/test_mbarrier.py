"""Barriers in shared memory (mbarrier), which cuda::barrier and cuda::pipeline use."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from tests.helpers.emulated import emulate, needs_nvrtc

pytestmark = needs_nvrtc
f32, i32 = np.float32, np.int32
X = np.arange(256, dtype=f32)
PRIMITIVES = "#include <cuda_awbarrier_primitives.h>\n"
WAIT = """__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void wait(unsigned long long* bar, unsigned parity) {
  asm volatile("{.reg .pred p;\\nAGAIN:\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n@p bra DONE;\\nbra AGAIN;\\nDONE:\\n}"
      :: "r"(address(bar)), "r"(parity) : "memory");
}
"""
PRODUCER = (
    PRIMITIVES
    + """__device__ void wait(__mbarrier_t* b, __mbarrier_token_t t) { while (!__mbarrier_test_wait(b, t)) {} }
extern "C" __global__ void k(float* y, const float* x, int n) {
  __shared__ float buffer[2][32]; __shared__ __mbarrier_t full[2], free[2];
  int lane = threadIdx.x % 32;
  if (threadIdx.x < 2) { __mbarrier_init(full + threadIdx.x, 64); __mbarrier_init(free + threadIdx.x, 64); }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int i = 0; i < n; i++) {
      int s = i % 2; wait(free + s, __mbarrier_arrive(free + s));
      buffer[s][lane] = x[i * 32 + lane];
      __mbarrier_arrive(full + s);
    }
  } else {
    __mbarrier_arrive(free); __mbarrier_arrive(free + 1);
    for (int i = 0; i < n; i++) {
      int s = i % 2; wait(full + s, __mbarrier_arrive(full + s));
      y[i * 32 + lane] = 2 * buffer[s][31 - lane];
      __mbarrier_arrive(free + s);
    }
  }
}
"""
)


@pytest.mark.parametrize("order", ["forward", "reversed", 3])
def test_producer_and_consumer_alternate(order):
    run = emulate(PRODUCER, {"x": X}, {"y": (256, f32)}, args=["y", "x", i32(8)], block=64, order=order, races=True)
    np.testing.assert_array_equal(run["y"].reshape(8, 32), 2 * X.reshape(8, 32)[:, ::-1])
    assert run.races == ()


def test_reads_without_a_phase_are_a_race():
    early = PRODUCER.replace("wait(full + s, __mbarrier_arrive(full + s));", "__mbarrier_arrive(full + s);")
    early = early.replace("__syncthreads();", "buffer[threadIdx.x / 32][lane] = 0; __syncthreads();")
    run = emulate(early, {"x": X}, {"y": (256, f32)}, args=["y", "x", i32(1)], block=64, races=True)
    assert len(run.races) == 1 and "buffer[" in run.races[0]


@pytest.mark.parametrize("form, expected", [("noinc.", 64), ("", 1)])
def test_phase_ends_after_async_copies(form, expected):
    source = (
        WAIT
        + f"""extern "C" __global__ void k(float* y, const float* x) {{
  __shared__ unsigned long long bar; __shared__ float s[64]; int t = threadIdx.x;
  if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address(&bar)), "r"({expected}));
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(address(s + t)), "l"(x + t));
  asm volatile("cp.async.mbarrier.arrive.{form}shared.b64 [%0];" :: "r"(address(&bar)));
  if ({expected} == 1 && t == 63) asm volatile("mbarrier.arrive.release.cta.b64 _, [%0];" :: "l"(&bar));
  wait(&bar, 0);
  y[t] = s[63 - t];
  __syncthreads();
  if (t == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(address(&bar)));
}}
"""
    )
    run = emulate(source, {"x": X[:64]}, {"y": (64, f32)}, block=64)
    np.testing.assert_array_equal(run["y"], X[63::-1])


def test_dropped_threads_are_not_waited_for():
    source = (
        PRIMITIVES
        + """extern "C" __global__ void k(int* out) {
  __shared__ __mbarrier_t bar; int t = threadIdx.x;
  if (t == 0) __mbarrier_init(&bar, 64);
  __syncthreads();
  __mbarrier_token_t token = t < 48 ? __mbarrier_arrive_and_drop(&bar) : __mbarrier_arrive(&bar);
  out[t] = __mbarrier_token_pending_count(token);
  if (t < 48) return;
  while (!__mbarrier_test_wait(&bar, token)) {}
  token = __mbarrier_arrive(&bar);
  while (!__mbarrier_test_wait(&bar, token)) {}
  out[t] += 100 * __mbarrier_token_pending_count(token);
}
"""
    )
    got = emulate(source, {}, {"out": (64, i32)}, block=64)["out"]
    later = np.where(np.arange(64) < 48, 0, 100 * (64 - np.arange(64)))
    np.testing.assert_array_equal(got, 64 - np.arange(64) + later)


@pytest.mark.parametrize(
    "count, arrive, message",
    [
        (0, "__mbarrier_arrive(&bar)", r"an mbarrier expects 1 to 1,048,575 arrivals, got 0, by thread \(0, 0, 0\)"),
        (
            8,
            "__mbarrier_arrive_and_drop(&bar)",
            r"1 arrivals at an mbarrier that waits for 0 of 0, by thread \(8, 0, 0\)",
        ),
        (33, "__mbarrier_arrive(&bar)", r"this loop never ends"),
    ],
)
def test_invalid_mbarrier_use_is_an_error(count, arrive, message):
    source = (
        PRIMITIVES
        + f"""extern "C" __global__ void k(int* out) {{
  __shared__ __mbarrier_t bar;
  if (threadIdx.x == 0) __mbarrier_init(&bar, {count});
  __syncthreads();
  __mbarrier_token_t token = {arrive};
  while (!__mbarrier_test_wait(&bar, token)) {{}}
}}
"""
    )
    with pytest.raises(EmulatorError, match=message):
        emulate(source, {}, {"out": (1, i32)}, block=32)


def test_uninitialised_mbarrier_is_an_error():
    source = (
        PRIMITIVES
        + """extern "C" __global__ void k(int* out) {
  __shared__ __mbarrier_t bar; __mbarrier_arrive(&bar);
}
"""
    )
    with pytest.raises(EmulatorError, match=r"bar\[0\] in shared memory, which was never written"):
        emulate(source, {}, {"out": (1, i32)})


def test_release_and_acquire_are_no_race():
    """A flag in shared memory, released by one warp and acquired by the other."""
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int flag, data; unsigned at = (unsigned)__cvta_generic_to_shared(&flag); int seen;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    data = 6 + gridDim.x;
    asm volatile("st.release.cta.shared.u32 [%0], 1;" :: "r"(at) : "memory");
  }
  if (threadIdx.x == 32) {
    do asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(at) : "memory"); while (!seen);
    out[0] = data;
  }
}
"""
    run = emulate(source, {}, {"out": (1, i32)}, block=64, races=True, order="reversed")
    assert run["out"].tolist() == [7] and run.races == ()
    relaxed = source.replace("ld.acquire.cta", "ld.relaxed.cta")
    run = emulate(relaxed, {}, {"out": (1, i32)}, block=64, races=True)
    assert run["out"].tolist() == [7] and len(run.races) == 1 and "reads data[0]" in run.races[0]


def test_reserved_shared_memory_is_zero_and_separate():
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int own[4]; extern __shared__ int more[]; unsigned at; int value;
  own[threadIdx.x] = 1; more[threadIdx.x] = 2;
  asm volatile("mov.u32 %0, %%reserved_smem_offset_1;" : "=r"(at));
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(at + 4 * threadIdx.x));
  asm volatile("st.shared.u32 [%0], %1;" :: "r"(at + 4 * threadIdx.x), "r"(9));
  out[threadIdx.x] = value * 100 + own[threadIdx.x] * 10 + more[threadIdx.x];
}
"""
    got = emulate(source, {}, {"out": (4, i32)}, block=4, grid=1, shared=16)["out"]
    assert got.tolist() == [12] * 4
