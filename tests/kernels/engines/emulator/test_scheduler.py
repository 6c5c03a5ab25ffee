"""The emulator's scheduler: threads that wait for each other through memory continue; endless loops are errors."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator.errors import EmulatorError
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.offenders import every

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
f32, i32, u32, u64 = np.float32, np.int32, np.uint32, np.uint64
LAUNCHES = [(5, 1, "forward"), (1, 40, "reversed"), (2, 34, 1)]  # blocks alone, lanes and warps, both


def _zeros(*names: str, n: int = 1) -> dict[str, np.ndarray]:
    return {name: np.zeros(n, i32) for name in names}


# -- threads that wait for each other ---------------------------------------------------------------------------
SPIN = "while (atomicCAS(lock, 0, 1) != 0) ;"
LOCKS = {
    "cas": (SPIN, "atomicExch(lock, 0);"),
    "exchange": ("while (atomicExch(lock, 1) != 0) ;", "atomicExch(lock, 0);"),
    "backoff": (
        "int ns = 8; while (atomicCAS(lock, 0, 1)) { __nanosleep(ns); if (ns < 256) ns *= 2; }",
        "atomicExch(lock, 0);",
    ),
    "bounded": ("int tries = 0; while (atomicCAS(lock, 0, 1) != 0 && ++tries < 1000000) ;", "atomicExch(lock, 0);"),
    "ticket": ("int my = atomicAdd(lock, 1); while (*(volatile int*)(lock + 1) != my) ;", "atomicAdd(lock + 1, 1);"),
    "ticket, __ldcg": ("int my = atomicAdd(lock, 1); while (__ldcg(lock + 1) != my) ;", "atomicAdd(lock + 1, 1);"),
}


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize(("grid", "block", "order"), LAUNCHES)
def test_lock_admits_every_thread_once(lock, grid, block, order):
    enter, leave = LOCKS[lock]
    source = f"""extern "C" __global__ void k(int* lock, volatile int* sum) {{
  {enter}
  __threadfence();
  *sum = *sum + 1;
  __threadfence();
  {leave}
}}"""
    run = emulate(source, {"lock": np.zeros(2, i32), "sum": np.zeros(1, i32)}, grid=grid, block=block, order=order)
    assert run["sum"][0] == grid * block


@pytest.mark.parametrize("read", ["*(volatile int*)flag", "__ldcg(flag)", "acquire(flag)", "*flag"])
@pytest.mark.parametrize("order", ["forward", "reversed"])
@pytest.mark.parametrize("unit", ["blockIdx.x", "threadIdx.x / 32", "threadIdx.x"])
def test_producer_and_consumer_alternate(read, order, unit):
    """The consumer's code is first. Its flag is also polled by a plain load, which __threadfence repeats."""
    source = f"""
    __device__ int acquire(int* p) {{ int v; asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(v) : "l"(p)); return v; }}
    extern "C" __global__ void k(int* flag, int* box, int* got) {{
      if (threadIdx.x % 32 && {unit} != threadIdx.x) return;
      if ({unit} > 1) return;
      for (int n = 1; n <= 5; ++n) {{
        if ({unit} == 0) {{
          while ({read} != 2 * n - 1) __threadfence();
          got[n - 1] = *(volatile int*)box;
          __threadfence();
          atomicExch(flag, 2 * n);
        }} else {{
          while ({read} != 2 * n - 2) __threadfence();
          *(volatile int*)box = 100 * n;
          __threadfence();
          atomicExch(flag, 2 * n - 1);
        }}
      }}
    }}"""
    grid, block = (2, 1) if unit == "blockIdx.x" else (1, 64)
    run = emulate(source, _zeros("flag", "box") | _zeros("got", n=5), grid=grid, block=block, order=order)
    assert run["got"].tolist() == [100, 200, 300, 400, 500]


def test_last_block_sums_the_partial_results():
    source = """
    __device__ unsigned done = 0;
    extern "C" __global__ void k(int* part, int* total, const int* in) {
      __shared__ bool last;
      int v = in[blockIdx.x * blockDim.x + threadIdx.x];
      atomicAdd(part + blockIdx.x, v);
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) last = atomicInc(&done, gridDim.x) == gridDim.x - 1;
      __syncthreads();
      if (last && threadIdx.x == 0)
        for (int b = 0; b < gridDim.x; ++b) *total += ((volatile int*)part)[b];
    }"""
    x = np.arange(7 * 64, dtype=i32)
    inputs = {"part": np.zeros(7, i32), "total": np.zeros(1, i32), "in": x}
    assert emulate(source, inputs, grid=7, block=64)["total"][0] == x.sum()


def test_running_sum_from_block_to_block():
    """Each block waits for the one before it, in any order of the warps."""
    source = """extern "C" __global__ void k(volatile int* sum, volatile int* ready, const int* in) {
      __shared__ int before;
      int b = blockIdx.x;
      if (threadIdx.x == 0) {
        while (b && !ready[b - 1]) ;
        before = b ? sum[b - 1] : 0;
        sum[b] = before + in[b];
        __threadfence();
        ready[b] = 1;
      }
      __syncthreads();
      if (threadIdx.x == 40) sum[b] += before * 0;
    }"""
    x = np.arange(1, 13, dtype=i32)
    for order in ("forward", "reversed", 5):
        run = emulate(source, _zeros("sum", "ready", n=12) | {"in": x}, grid=12, block=64, order=order)
        np.testing.assert_array_equal(run["sum"], np.cumsum(x))


GRID_SYNC = """
__device__ void grid_sync(unsigned* arrived) {
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned nb = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
    __threadfence();
    unsigned old = atomicAdd(arrived, nb);
    while ((((old ^ *(volatile unsigned*)arrived) & 0x80000000u) == 0)) ;
    __threadfence();
  }
  __syncthreads();
}"""


@settings(max_examples=6)
@given(blocks=st.integers(1, 9), threads=st.integers(1, 70), order=st.integers(0, 99))
def test_grid_barrier(blocks, threads, order):
    source = f"""{GRID_SYNC}
    extern "C" __global__ void k(unsigned* arrived, int* a, int* b, int n) {{
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      a[i] = i;
      grid_sync(arrived);
      b[i] = a[n - 1 - i];
      grid_sync(arrived);
      a[i] = b[(i + 1) % n];
    }}"""
    n = blocks * threads
    run = emulate(
        source,
        {"arrived": np.zeros(1, u32)},
        {"a": ((n,), i32), "b": ((n,), i32)},
        args=["arrived", "a", "b", i32(n)],
        grid=blocks,
        block=threads,
        order=order,
    )
    np.testing.assert_array_equal(run["a"], n - 1 - (np.arange(n) + 1) % n)


def test_grid_workspace_for_synchronisation():
    """%envreg1 and %envreg2 hold its address, as the header of cooperative groups reads it: its size, then a counter."""
    source = """extern "C" __global__ void k(int* out) {
      unsigned high, low;
      asm("mov.u32 %0, %%envreg1;" : "=r"(high));
      asm("mov.u32 %0, %%envreg2;" : "=r"(low));
      unsigned* workspace = (unsigned*)((unsigned long long)high << 32 | low);
      unsigned* arrived = workspace + 1;
      for (int n = 0; n < 3; ++n) {
        out[(gridDim.x * n + blockIdx.x) * 2 + threadIdx.x] = n ? out[(gridDim.x * n - 1 - blockIdx.x) * 2] + 1 : blockIdx.x;
        __barrier_sync(0);
        if (threadIdx.x == 0) {
          unsigned old, now, nb = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
          asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;" : "=r"(old) : "l"(arrived), "r"(nb) : "memory");
          do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
          while (((old ^ now) & 0x80000000u) == 0);
        }
        __barrier_sync(0);
      }
      if (workspace[0] != 8) __trap();
    }"""
    for order in ("forward", "reversed"):
        out = emulate(source, {}, {"out": ((3, 4, 2), i32)}, grid=4, block=2, order=order)["out"][:, :, 0]
        assert out.tolist() == [[0, 1, 2, 3], [4, 3, 2, 1], [2, 3, 4, 5]]


def test_compare_and_swap_loop_reconverges():
    """A loop in which some lane always succeeds does not wait: its lanes do not continue one by one."""
    source = """extern "C" __global__ void k(unsigned* most, int* out, const float* x) {
      unsigned old = *most, seen;
      do {
        seen = old;
        old = atomicCAS(most, seen, seen + (unsigned)x[threadIdx.x]);
      } while (old != seen);
      out[threadIdx.x] = 1;
    }"""
    x = np.arange(64, dtype=f32)
    run = emulate(
        source, {"most": np.zeros(1, u32), "x": x}, {"out": ((64,), i32)}, args=["most", "out", "x"], block=64
    )
    assert run["most"][0] == x.sum()
    assert run.at(7)["warp_instructions"] <= 2 * 4


def test_work_queue_returns_each_item_once():
    source = """extern "C" __global__ void k(int* next, int* out, int n) {
      while (true) {
        int i = atomicAdd(next, 1);
        if (i >= n) break;
        for (int j = 0; j < i % 5; ++j) out[i] += 1;
        out[i] += 1;
      }
    }"""
    n = 300
    run = emulate(
        source, {"next": np.zeros(1, i32), "out": np.zeros(n, i32)}, args=["next", "out", i32(n)], grid=2, block=40
    )
    np.testing.assert_array_equal(run["out"], np.arange(n) % 5 + 1)


# -- loops that never end -----------------------------------------------------------------------------------------
def _fails(source: str, message: str, **kwargs) -> str:
    start = time.thread_time()
    inputs = kwargs.pop("inputs", {"x": np.zeros(4, i32)})
    with pytest.raises(EmulatorError, match=message) as caught:
        emulate(source, inputs, **kwargs)
    assert time.thread_time() - start < 10
    return str(caught.value)


REPEATS = r": this loop never ends: what its condition depends on repeats, and no thread is left to change it, by"


def test_a_barrier_of_the_grid_that_a_block_skips_ends_at_once():
    """The loop in which the others wait is inside a loop with barriers."""
    source = """#include <cooperative_groups.h>
extern "C" __global__ void k(int* out) {
  for (int r = 0; r <= blockIdx.x; ++r) cooperative_groups::this_grid().sync();
  out[blockIdx.x] = 1;
}"""
    with pytest.raises(EmulatorError, match="this loop never ends") as caught:
        emulate(source, {}, {"out": ((3,), i32)}, grid=3, block=32, seconds=2)
    assert "of block (1, 0, 0)" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message", "grid"),
    [
        ("for (;;) x[1] = 1;", ": this loop never ends: no path leads out of it, by thread", 2000),
        ("for (int i = 0;; ++i) atomicAdd(x, i);", ": this loop never ends: no path leads out of it, by thread", 2),
        ("while (*(volatile int*)x == 0) ;", REPEATS, 2000),
        ("while (atomicCAS(x + 1, 0, 1) == atomicCAS(x + 1, 0, 1)) ;", REPEATS, 2),
        ("int n = x[3]; while (__ldcg(x) == 0) { n += 3; } x[2] = n;", REPEATS, 2000),
        ("volatile int* v = x; for (int i = 0; i < 3; ++i) while (v[i] == 0) ;", REPEATS, 2),
        ("int p = x[0]; while (p != -1) p = ((volatile int*)x)[p]; x[1] = p;", REPEATS, 2),
        ("int p = x[0], q = 1; while (p != q) { int t = x[p]; p = t; q = 1 - t; } x[1] = p;", REPEATS, 2),
    ],
)
def test_endless_loop_is_an_error(body, message, grid):
    source = f'extern "C" __global__ void k(int* x) {{\n\n  {body}\n}}'
    assert _fails(source, message, grid=grid, block=64).startswith("k, kernel.cu:3: ")


def test_unreleased_spin_lock_is_a_deadlock():
    source = 'extern "C" __global__ void k(int* x) {\n  while (atomicCAS(x, 0, 1)) ;\n  x[1] += 1;\n}'
    assert _fails(source, REPEATS, grid=3, block=1).startswith("k, kernel.cu:2")


def test_flag_set_after_a_barrier_is_a_deadlock():
    source = """extern "C" __global__ void k(volatile int* x) {
  if (threadIdx.x < 32)
    while (x[0] == 0) ;
  __syncthreads();
  x[0] = 1;
}"""
    assert _fails(source, REPEATS, block=64).startswith("k, kernel.cu:3")


def test_two_locks_in_opposite_order_are_a_deadlock():
    source = """extern "C" __global__ void k(int* x) {
  int mine = blockIdx.x, other = 1 - mine;
  while (atomicCAS(x + mine, 0, 1)) ;
  atomicAdd(x + 2, 1);
  while (*(volatile int*)(x + 2) < 2) ;
  while (atomicCAS(x + other, 0, 1)) ;
  x[3] = 1;
}"""
    assert _fails(source, REPEATS, grid=2, block=1).startswith("k, kernel.cu:6")


def test_loop_ended_by_a_barrier_is_not_endless():
    """The first warp's state repeats while the second computes for a long time between its barriers."""
    source = """extern "C" __global__ void k(int* x) {
  int n = threadIdx.x;
  if (n < 32)
    while (!__syncthreads_or(0)) ;
  else
    for (int turn = 0; ; ++turn) {
      #pragma unroll 1
      for (int i = 0; i < 300; ++i) n = n * 7 + i;
      if (__syncthreads_or(turn == 20 || n == 12345)) break;
    }
  x[threadIdx.x] = n;
}"""
    run = emulate(source, {}, {"x": ((64,), i32)}, block=64)
    assert run["x"][:32].tolist() == list(range(32))


def test_long_loop_is_stopped_by_time():
    source = """extern "C" __global__ void k(int* x, unsigned n) {
  unsigned v = 1;
  #pragma unroll 1
  while (v != n) v = v * 1664525u + 1013904223u | 1u;
  x[0] = v;
}"""
    message = _fails(
        source,
        r"kernel\.cu:4: stopped after 0\.2 seconds and [\d,]+ warp instructions, in this loop: "
        r"it may be long or endless \(--seconds or Options\(seconds=\.\.\.\) gives it longer\), by thread \(0, 0, 0\)",
        args=["x", u32(2)],
        seconds=0.2,
    )
    assert "never ends" not in message


def test_long_finite_loops_are_not_endless():
    source = """extern "C" __global__ void k(float* out, int n) {
  float acc = 0.0f;
  #pragma unroll 1
  for (int i = 0; i < n; ++i) {
    #pragma unroll 1
    for (int j = 0; j < 4; ++j) acc += 1.0f;
  }
  out[threadIdx.x] = acc;
}"""
    run = emulate(source, {}, {"out": ((2,), f32)}, args=["out", i32(3000)], block=2)
    assert (run["out"] == 12000).all()


@settings(max_examples=15)
@given(st.lists(st.integers(1, 12), min_size=3, max_size=3), st.integers(1, 40), st.integers(0, 5))
def test_nested_finite_loops_are_not_endless(extents, threads, stop):
    """The limits are read again in each iteration, counters return to the same values, lanes leave at different
    times."""
    source = """extern "C" __global__ void k(int* out, volatile int* n, int stop) {
      int sum = 0;
      #pragma unroll 1
      for (int a = 0; a < n[0]; ++a)
        #pragma unroll 1
        for (int b = 0; b < n[1]; ++b) {
          if (b == stop && threadIdx.x % 2) break;
          #pragma unroll 1
          for (int c = 0; c < n[2]; c += 1 + (threadIdx.x & 1)) sum++;
        }
      out[threadIdx.x] = sum;
    }"""
    run = emulate(
        source, {"n": np.array(extents, i32)}, {"out": ((threads,), i32)}, args=["out", "n", i32(stop)], block=threads
    )
    a, b, c = extents
    even, odd = a * b * c, a * min(b, stop) * -(-c // 2)
    assert run["out"].tolist() == [odd if t % 2 else even for t in range(threads)]


def test_counter_in_local_memory_or_by_carry_is_not_a_repeated_state():
    source = """extern "C" __global__ void k(unsigned* out, unsigned n) {
  unsigned low = 0, high = 0;
  volatile unsigned own[2] = {0, 0};
  #pragma unroll 1
  do asm volatile("add.cc.u32 %0, %0, %2; addc.u32 %1, %1, 0;" : "+r"(low), "+r"(high) : "r"(n)); while (high == 0);
  #pragma unroll 1
  while (own[threadIdx.x & 1] < 300) own[threadIdx.x & 1] += 1;
  out[0] = low; out[1] = high; out[2] = own[0];
}"""
    run = emulate(source, {}, {"out": ((3,), u32)}, args=["out", u32(1 << 24)], block=1)
    assert run["out"].tolist() == [0, 1, 300]


# -- clocks and special registers ---------------------------------------------------------------------------------
def test_clocks_count_the_warps_instructions():
    source = """extern "C" __global__ void k(long long* out, int* x) {
      int t = threadIdx.x;
      long long a = clock64();
      unsigned b = clock();
      if (t >= 32) for (int i = 0; i < 50; ++i) atomicAdd(x, 1);
      long long c = clock64();
      unsigned long long d;
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(d));
      out[4 * t] = a; out[4 * t + 1] = b; out[4 * t + 2] = c; out[4 * t + 3] = d;
    }"""
    run = emulate(source, {"x": np.zeros(1, i32)}, {"out": ((64, 4), np.int64)}, block=64)
    a, b, c, d = run["out"].T
    assert (a < b).all() and (b < c).all() and (c < d).all()
    assert (c - a)[:32].max() < 20 and (c - a)[32:].min() > 50
    assert all(len(set(v[n : n + 32])) == 1 for v in (a, b, c, d) for n in (0, 32))


def test_wait_by_the_clock_ends():
    source = """extern "C" __global__ void k(int* out) {
      long long start = clock64();
      while (clock64() - start < 1000) __nanosleep(10);
      out[threadIdx.x] = 1;
    }"""
    assert emulate(source, {}, {"out": ((40,), i32)}, block=40)["out"].all()


def _special(name: str, type_: str = "u32") -> str:
    letter = {"u32": "r", "u64": "l"}[type_]
    return f'asm volatile("mov.{type_} %0, %%{name};" : "={letter}"(v));'


def test_special_registers_have_values():
    names = [
        "smid",
        "nsmid",
        "warpid",
        "nwarpid",
        "lanemask_le",
        "lanemask_ge",
        "lanemask_gt",
        "lanemask_lt",
        "lanemask_eq",
        "dynamic_smem_size",
        "total_smem_size",
        "envreg3",
        "clock_hi",
    ]
    emulated = [n for n in names if n != "envreg3"]
    body = "\n".join(f"{_special(name)} out[{n} * 64 + threadIdx.x] = v;" for n, name in enumerate(emulated))
    source = f"""extern "C" __global__ void k(unsigned* out) {{
      __shared__ volatile unsigned s[16]; extern __shared__ volatile unsigned d[];
      s[0] = 0; d[0] = 0;
      unsigned v; {body}
      out[0] += s[0] + d[0];
    }}"""
    run = emulate(source, {}, {"out": ((len(emulated), 64), u32)}, block=64, shared=128)
    got = dict(zip(emulated, run["out"], strict=True))
    lane = np.arange(64) % 32
    assert (got["smid"] == 0).all() and (got["nsmid"] == 1).all() and (got["nwarpid"] == 2).all()
    np.testing.assert_array_equal(got["warpid"], np.arange(64) // 32)
    np.testing.assert_array_equal(got["lanemask_le"], (2 << lane) - 1)
    np.testing.assert_array_equal(got["lanemask_ge"], 0xFFFFFFFF - ((1 << lane) - 1))
    np.testing.assert_array_equal(got["lanemask_gt"], 0xFFFFFFFF - ((2 << lane) - 1))
    assert (got["dynamic_smem_size"] == 128).all() and (got["total_smem_size"] == 192).all()


def test_unknown_special_register_is_an_error():
    source = f'extern "C" __global__ void k(unsigned* out) {{ unsigned v; {_special("pm0")} out[0] = v; }}'
    with pytest.raises(EmulatorError, match="the special register %pm0 is not emulated"):
        emulate(source, {}, {"out": ((1,), u32)})


@every("block", [64, 128, 256, 384])
def test_turns_of_warpgroups_that_a_kernel_has_or_has_not(block):
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int s[384];
  int t = threadIdx.x, half = blockDim.x / 2;
  if (t < half) { s[t] = t; asm volatile("bar.arrive 1, %0;" :: "r"(blockDim.x) : "memory"); }
  else { asm volatile("bar.sync 1, %0;" :: "r"(blockDim.x) : "memory"); out[t - half] = s[t - half]; }
}"""
    for order in ("forward", "turns"):
        run = emulate(source, {}, {"out": ((block // 2,), np.int32)}, block=block, grid=2, order=order)
        np.testing.assert_array_equal(run["out"], np.arange(block // 2))
