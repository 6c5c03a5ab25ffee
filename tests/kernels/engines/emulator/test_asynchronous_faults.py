"""Deliberate faults around copies and products that run asynchronously: each is an error with line, block and warp."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines.emulator.errors import EmulatorError
from kernels.model.tensor_map import TensorMap
from tests.helpers.emulated import Outcome, needs_nvrtc
from tests.helpers.hopper import run_hopper

pytestmark = needs_nvrtc
f32 = np.float32
# One tile of A [64, 64] and of B [64, 64], loaded, multiplied and stored; each step on a line of its own.
KERNEL = """
  extern __shared__ __align__(1024) char shared[];
  auto a = (Half*)shared, b = a + 64 * 64; auto boxes = (float*)(b + 64 * 64); __shared__ Barrier full;
  if (threadIdx.x == 0) init_barrier(&full, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(&full, 16384);
    load_box(a, &A, 0, 0, &full);
    load_box(b, &B, 0, 0, &full);
  }
  wait(&full, 0);
  float sum[8][4];
  begin_products();
  for (int k = 0; k < 4; ++k)
    multiply(sum, descriptor(a + k * 16, 0), descriptor(b + k * 16 * 64, 0), k);
  close_products();
  wait_products<0>();
  int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
  for (int v = 0; v < 4; ++v)
    for (int j = 0; j < 8; ++j)
      boxes[(row + v / 2 * 8) * 64 + j * 8 + col + v % 2] = sum[j][v];
  publish_writes();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_box(&C, 0, 0, boxes);
    close_stores();
    wait_stores_read<0>();
  }
"""
RNG = np.random.default_rng(0)
A, B = (RNG.integers(-4, 5, (64, 64)).astype(np.float16) for _ in range(2))


def run(*changes: tuple[str, str]) -> Outcome:
    body = KERNEL
    for old, new in changes:
        assert old in body
        body = body.replace(old, new, 1)
    args = {
        "const __grid_constant__ TensorMap A": TensorMap("A", "float16", (64, 64), (128,), (64, 64), 128),
        "const __grid_constant__ TensorMap B": TensorMap("B", "float16", (64, 64), (128,), (64, 64), 128),
        "const __grid_constant__ TensorMap C": TensorMap("C", "float32", (64, 64), (256,), (64, 64)),
    }
    inputs = {"A": A.view(np.uint16), "B": B.view(np.uint16)}
    return run_hopper(body, args, inputs, {"C": ((64, 64), f32)}, block=128, shared=32 * 1024, grid=2)


def test_without_a_fault():
    np.testing.assert_array_equal(run()["C"], A.astype(f32) @ B.astype(f32))


BY = r"\(warp \d\), by thread \(\d+, 0, 0\) of block \(\d, 0, 0\)$"


@pytest.mark.parametrize(
    "changes, line, message",
    [
        (
            [("16384", "24576")],
            11,
            "deadlock: the mbarrier at full.0. in shared memory waits for 8,192 bytes of copies",
        ),
        ([("16384", "8192")], 9, "wrong number of bytes: the phase of full.0. in shared memory ended before this copy"),
        ([("arrive_expecting(&full, 16384);", "")], 11, "waits for 1 of 1 arrivals and an expectation of 16,384 bytes"),
        ([("wait(&full, 0);", "wait(&full, 0); wait(&full, 1);")], 11, "deadlock: .* waits for 1 of 1 arrivals,"),
        ([("  wait(&full, 0);", "")], 15, "at shared.* before the copy that writes it was waited for"),
        ([("load_box(b, &B, 0, 0", "load_box(a, &B, 0, 0")], 9, "overwrites shared memory that an earlier copy still"),
        ([("  begin_products();", "")], 15, "no wgmma.fence is between this product"),
        (
            [("begin_products();", "begin_products(); sum[0][0] = threadIdx.x;"), ("64, 0), k)", "64, 0), 1)")],
            15,
            "no wgmma.f",
        ),
        ([("wait_products<0>();", "")], 21, "touches a register of a wgmma product that may still run"),
        (
            [("wait_products<0>();", "wait_products<1>();")],
            21,
            "touches a register of a wgmma product that may still run",
        ),
        ([("  close_products();", "")], 21, "touches a register of a wgmma product that may still run"),
        ([("  publish_writes();", "")], 25, "reads shared memory .* that thread .* stored with no fence.proxy.async"),
        ([("wait_stores_read<0>();", "")], 25, "the block ends while this copy still reads its shared memory"),
        ([("  close_stores();", "")], 25, "the block ends while this copy still reads its shared memory"),
        (
            [("wait_products<0>();", "if (threadIdx.x == 0) load_box(a, &A, 0, 0, &full); wait_products<0>();")],
            17,
            "this copy overwrites shared memory that the product at kernel.cu:15 still reads",
        ),
        ([("load_box(a, &A", "load_box(a + 8, &A")], 8, "a box begins at a multiple of 128 bytes"),
        ([("load_box(b, &B, 0, 0, &full)", "load_box(b + 15 * 4096, &B, 0, 0, &full)")], 9, "the box extends beyond"),
    ],
)
def test_a_fault_is_an_error(changes, line, message):
    with pytest.raises(EmulatorError, match=message) as caught:
        run(*changes)
    assert f"kernel.cu:{line}" in str(caught.value), caught.value
    assert " of block (" in str(caught.value)


def test_messages_name_the_warp():
    with pytest.raises(EmulatorError, match=BY):
        run(("16384", "24576"))


def test_a_wait_that_another_thread_ends_is_no_deadlock():
    body = """
  __shared__ Barrier full;
  if (threadIdx.x == 0) init_barrier(&full, 32);
  __syncthreads();
  if (threadIdx.x < 32) wait(&full, 0); else arrive(&full);
  out[threadIdx.x] = threadIdx.x;"""
    out = run_hopper(body, {"int* out": "out"}, {}, {"out": (64, np.int32)}, block=64)["out"]
    np.testing.assert_array_equal(out, np.arange(64))


# A product whose left factor is in registers w. What follows it in the same asm has the same registers.
LEFT_IN_REGISTERS = """
  extern __shared__ __align__(1024) char shared[];
  for (int i = threadIdx.x; i < 512; i += 128) ((int*)shared)[i] = 0;
  publish_writes();
  __syncthreads();
  float d[4] = {}; unsigned w[4] = {1, 2, 3, 4};
  asm volatile("{.reg .pred add;\\nsetp.eq.b32 add, 0, 0;\\nwgmma.fence.sync.aligned;\\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, add, 1, 1, 1;\\n"
    "AFTER\\nwgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;\\n}"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])
    : "l"(descriptor((Half*)shared, 1024)));
  out[threadIdx.x] = d[0] + w[0];
"""


@pytest.mark.parametrize(
    "after, message",
    [
        ("", ""),
        ("mov.b32 %4, 0;", "touches a register of a wgmma product that may still run"),
        ("add.u32 %5, %4, 1;", "touches a register of a wgmma product that may still run"),
    ],
)
def test_a_left_factor_in_registers_must_not_change(after, message):
    def launched() -> Outcome:
        body = LEFT_IN_REGISTERS.replace("AFTER", after)
        return run_hopper(body, {"float* out": "out"}, {}, {"out": (128, f32)}, block=128, shared=2048)

    if message:
        with pytest.raises(EmulatorError, match=message):
            launched()
    else:
        np.testing.assert_array_equal(launched()["out"], np.ones(128, f32))


def test_a_left_factor_may_be_read_while_it_is_multiplied():
    body = LEFT_IN_REGISTERS.replace("AFTER", "{.reg .b32 copy; mov.b32 copy, %4;}")
    run_hopper(body, {"float* out": "out"}, {}, {"out": (128, f32)}, block=128, shared=2048)


def test_turns_by_named_barriers():
    """Two warpgroups take turns: one waits at its barrier for the other, which only arrives."""
    body = """
  int warpgroup = threadIdx.x / 128;
  __shared__ int order[8], count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (warpgroup == 1) asm volatile("bar.arrive 4, 256;" ::: "memory");
  for (int i = 0; i < 3; ++i) {
    asm volatile("bar.sync %0, 256;" :: "r"(4 + warpgroup) : "memory");
    if (threadIdx.x % 128 == 0) order[count++] = warpgroup;
    asm volatile("bar.arrive %0, 256;" :: "r"(5 - warpgroup) : "memory");
  }
  if (warpgroup == 0) asm volatile("bar.sync 4, 256;" ::: "memory");
  __syncthreads();
  if (threadIdx.x < 6) out[threadIdx.x] = order[threadIdx.x];"""
    for order in ("forward", "reversed"):
        run = run_hopper(body, {"int* out": "out"}, {}, {"out": (6, np.int32)}, block=256, order=order, races=True)
        np.testing.assert_array_equal(run["out"], [0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize("barrier, races", [("__syncthreads();", 0), ("", 1)])
def test_a_store_reads_what_a_barrier_has_ordered(barrier, races):
    body = f"""
  extern __shared__ __align__(128) char shared[]; auto s = (float*)shared;
  if (threadIdx.x >= 32) {{ s[threadIdx.x] = threadIdx.x; publish_writes(); }}
  {barrier}
  if (threadIdx.x == 0) {{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" :: "l"(y), "r"(shared_address(s + 32)) : "memory");
    close_stores();
    wait_stores_read<0>();
  }}
"""
    run = run_hopper(body, {"float* y": "y"}, {}, {"y": ((32,), f32)}, block=64, shared=256, races=True)
    assert len(run.races) == races and all("reads s" in race or "shared" in race for race in run.races)
    np.testing.assert_array_equal(run["y"], np.arange(32, 64))


@pytest.mark.parametrize("barrier, races", [("__syncthreads();", 0), ("", 1)])
@pytest.mark.parametrize(
    ("before", "copy", "after", "verbs"),
    [
        ("", "STORE", "z[t] = y[t ^ 32];", ("reads y", "writes")),
        ("", "STORE", "y[t] = 5 + t;", ("writes y", "writes")),
        ("z[t] = y[t];", "STORE", "", ("writes y", "reads")),
        ("y[t] = 5 + t;", "LOAD", "", ("reads y", "writes")),
    ],
)
def test_copies_of_global_memory_are_ordered_like_other_accesses(before, copy, after, verbs, barrier, races):
    store = """asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" :: "l"(y), "r"(shared_address(s)) : "memory");
    close_stores(); asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");"""
    load = """arrive_expecting(&full, 256);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                 :: "r"(shared_address(s)), "l"(y), "r"(shared_address(&full)) : "memory");"""
    body = f"""
  __shared__ __align__(128) float s[64]; __shared__ Barrier full; int t = threadIdx.x;
  if (t == 0) init_barrier(&full, 1);
  s[t] = t; publish_writes(); __syncthreads();
  {before} {barrier if before else ""}
  if (t == 0) {{ {store if copy == "STORE" else load} }}
  {barrier if after else ""}
  {after} {"wait(&full, 0);" if copy == "LOAD" else ""}
"""
    args = {"float* y": "y", "float* z": "z"}
    found = run_hopper(body, args, {"y": np.zeros(64, f32)}, {"z": ((64,), f32)}, block=64, races=True).races
    assert len(found) == races and all(verb in race for race in found for verb in verbs)


@pytest.mark.parametrize(("read", "error"), [("", False), (".read", True)])
def test_a_store_has_written_only_after_a_full_wait(read, error):
    body = f"""
  __shared__ __align__(128) float s[64]; int t = threadIdx.x;
  s[t] = t; publish_writes(); __syncthreads();
  if (t == 0) {{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" :: "l"(y), "r"(shared_address(s)) : "memory");
    close_stores(); asm volatile("cp.async.bulk.wait_group{read} 0;" ::: "memory");
  }}
  __syncthreads();
  s[t] = -1;
  z[t] = LATER ? 0 : y[t ^ 32];
"""

    def launched(later: str) -> Outcome:
        args, outputs = {"float* y": "y", "float* z": "z"}, {"y": ((64,), f32), "z": ((64,), f32)}
        return run_hopper(body.replace("LATER", later), args, {}, outputs, block=64, races=True)

    np.testing.assert_array_equal(launched("true")["y"], np.arange(64))
    if error:
        with pytest.raises(EmulatorError, match=r"read at y\[\d+\], which was never written"):
            launched("false")
    else:
        np.testing.assert_array_equal(launched("false")["z"], np.arange(64) ^ 32)
