"""Copies by cp.async land when their thread waits for them: what is used before is an error with the copy's line."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from tests.helpers.emulated import emulate, needs_nvrtc

pytestmark = needs_nvrtc
X = np.arange(8 * 64, dtype=np.float32)
PRELUDE = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void copy(float* to, const float* from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(to)), "l"(from) : "memory"); }
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#define WAIT(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
#define WAIT_ALL() asm volatile("cp.async.wait_all;" ::: "memory")
"""
# Sums eight rows with a ring of STAGES rows: a copy is STAGES - 1 rows ahead.
RING = """
#define STAGES 3
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float ring[STAGES][64];
  int t = threadIdx.x, other = 63 - t;
  float total = 0;
  for (int r = 0; r < STAGES - 1; ++r) { copy(&ring[r][t], in + 64 * r + t); commit(); }
  for (int r = 0; r < 8; ++r) {
    WAIT(STAGES - 2);
    __syncthreads();
    total += ring[r % STAGES][other];
    if (r + STAGES - 1 < 8) copy(&ring[(r + STAGES - 1) % STAGES][t], in + 64 * (r + STAGES - 1) + t);
    commit();
  }
  out[t] = total;
}"""
ONE = """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[64];
  int t = threadIdx.x, other = (t + 32) % 64;
  copy(&s[t], in + t);
  BODY
}"""
GROUPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[64];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, s, in, sizeof(float) * 64);
  cg::wait(block);
  out[threadIdx.x] = s[63 - threadIdx.x];
}"""
PIPELINE = """
#include <cuda/pipeline>
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[2][64];
  int t = threadIdx.x;
  auto pipe = cuda::make_pipeline();
  float total = 0;
  for (int r = 0; r < 8; ++r) {
    pipe.producer_acquire();
    cuda::memcpy_async(&s[r % 2][t], in + 64 * r + t, sizeof(float), pipe);
    pipe.producer_commit();
    pipe.consumer_wait();
    total += s[r % 2][t];
    pipe.consumer_release();
  }
  out[t] = total;
}"""


# Each thread's copy arrives at an mbarrier.
ARRIVING = """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[64]; __shared__ unsigned long long bar;
  int t = threadIdx.x;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" :: "r"(at(&bar)));
  __syncthreads();
  copy(&s[t], in + t);
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at(&bar)) : "memory");
  WAIT_FOR_IT
  out[t] = s[63 - t];
}"""
FOR_THE_PHASE = (
    'asm volatile("{.reg .pred p;\\nAGAIN:\\nmbarrier.test_wait.parity.shared.b64 p, [%0], 0;\\n@!p bra AGAIN;\\n}" '
    ':: "r"(at(&bar)) : "memory");'
)


def _run(source: str, **options):
    return emulate(PRELUDE + source, {"in": X}, {"out": ((64,), np.float32)}, block=64, races=True, **options)


def _one(body: str):
    return _run(ONE.replace("BODY", body))


@pytest.mark.parametrize("order", ["forward", "reversed", 3])
@pytest.mark.parametrize(
    "source, expected",
    [
        (RING, X.reshape(8, 64)[:, ::-1].sum(0)),
        (ONE.replace("BODY", "WAIT_ALL(); __syncthreads(); out[t] = s[other];"), np.roll(X[:64], 32)),
        (ONE.replace("BODY", "commit(); WAIT(0); out[t] = s[t];"), X[:64]),
        (GROUPS, X[63::-1]),
        (ARRIVING.replace("WAIT_FOR_IT", FOR_THE_PHASE), X[63::-1]),
        (ARRIVING.replace("WAIT_FOR_IT", "WAIT_ALL(); __syncthreads();"), X[63::-1]),
        (PIPELINE, X.reshape(8, 64).sum(0)),
    ],
    ids=["ring", "wait_all", "own element", "groups", "mbarrier", "mbarrier and wait_all", "pipeline"],
)
def test_copies_that_are_waited_for(source, expected, order):
    run = _run(source, order=order)
    assert run.races == ()
    np.testing.assert_array_equal(run["out"], expected)


@pytest.mark.parametrize(
    "source",
    [
        RING.replace("WAIT(STAGES - 2)", "WAIT(STAGES - 1)"),
        RING.replace("    commit();\n", "    if (r + STAGES - 1 < 8) commit();\n"),  # the last rows are in fewer groups
        ONE.replace("BODY", "commit(); out[t] = s[t];"),
        ONE.replace("BODY", "WAIT(0); commit(); out[t] = s[t];"),
        ONE.replace("BODY", "__syncthreads(); out[t] = s[other]; WAIT_ALL();"),
        ONE.replace("BODY", "if (t < 32) WAIT_ALL(); __syncthreads(); out[t] = s[other];"),
        GROUPS.replace("cg::wait(block);", "block.sync();"),
        ARRIVING.replace("WAIT_FOR_IT", "__syncthreads();"),
        PIPELINE.replace("pipe.consumer_wait();", ""),
    ],
    ids=[
        "too few",
        "no empty groups",
        "no wait",
        "before commit",
        "before wait",
        "half waits",
        "groups",
        "mbarrier",
        "pipeline",
    ],
)
def test_a_read_before_the_wait_names_the_copy(source):
    with pytest.raises(
        EmulatorError,
        match=r"read at \w+\[\d+\] in shared memory before the copy that writes it was waited for, begun at \S+:\d+",
    ):
        _run(source)


def test_the_wait_of_a_thread_is_no_barrier():
    (found,) = _one("WAIT_ALL(); out[t] = s[other];").races
    assert re.search(r"reads s\[\d+\], .* writes at ", found), found


@pytest.mark.parametrize("late", ["s[t] = 1;", "copy(&s[t], in + 64 + t);", "copy(&s[other], in + t);"])
def test_a_write_over_a_copy_under_way(late):
    with pytest.raises(
        EmulatorError,
        match=r"write at s\[\d+\] in shared memory before the copy that writes it was waited for, begun at \S+:\d+",
    ):
        _one(f"{late} WAIT_ALL(); __syncthreads(); out[t] = s[other];")


def test_a_copy_over_a_word_that_others_read():
    source = RING.replace("    __syncthreads();\n", "").replace("other = 63 - t", "other = t ^ 32")
    assert any("data race" in race for race in _run(source).races)
