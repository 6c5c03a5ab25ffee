"""The emulator's barriers: of a block, named, counted, and of the lanes of a warp."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator.compiler.compile import compile_ptx
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, device_memory, launch
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.offenders import every

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
i32, u32 = np.int32, np.uint32
OUT = {"out": ((64,), i32)}
NAMED = """
__device__ void sync(int id, int n) { asm volatile("barrier.sync %0, %1;" :: "r"(id), "r"(n) : "memory"); }
__device__ void arrive(int id, int n) { asm volatile("barrier.arrive %0, %1;" :: "r"(id), "r"(n) : "memory"); }
"""


def _fails(source: str, message: str, outputs=OUT, **kwargs) -> None:
    with pytest.raises(EmulatorError) as caught:
        emulate(source, kwargs.pop("inputs", {}), outputs, **kwargs)
    assert re.search(message, str(caught.value)), str(caught.value)


def _warnings(source: str, block: int, grid: int = 1, **options) -> tuple[str, ...]:
    memory = device_memory({"out": np.zeros(grid * block, i32)}, [])
    return launch(
        compile_ptx(source, "kernel.cu"), "k", (grid, 1, 1), (block, 1, 1), ["out"], memory, 0, Options(**options)
    ).warnings


# -- named barriers -----------------------------------------------------------------------------------------------
def test_pairs_of_warps_use_separate_named_barriers():
    """The id is in a register. One pair continues while the other has not arrived."""
    source = f"""{NAMED}
    extern "C" __global__ void k(int* out) {{
      __shared__ volatile int s[128];
      int t = threadIdx.x, pair = t / 64, other = pair * 64 + (t + 32) % 64;
      for (int n = 0; n < 3 + pair; ++n) {{
        s[t] = n * 1000 + t;
        sync(pair + 1, 64);
        out[t] = s[other];
        sync(pair + 1, 64);
      }}
    }}"""
    for order in ("forward", "reversed", 1):
        run = emulate(source, {}, {"out": ((128,), i32)}, block=128, order=order)
        t = np.arange(128)
        np.testing.assert_array_equal(run["out"], (2 + t // 64) * 1000 + t // 64 * 64 + (t + 32) % 64)


@every("order", ["forward", "reversed", 3])
@every("asm", ["bar", "barrier.cta"])
def test_producers_arrive_and_do_not_wait(order, asm):
    """Two warps fill two buffers and two warps empty them: bar.arrive counts without waiting."""
    source = f"""
    extern "C" __global__ void k(int* out, const int* in) {{
      __shared__ int buffer[2][64];
      int t = threadIdx.x % 64;
      bool produce = threadIdx.x < 64;
      if (produce)
        for (int n = 0; n < 6; ++n) {{
          if (n >= 2) asm volatile("{asm}.sync %0, 128;" :: "r"(3 + n % 2) : "memory");
          buffer[n % 2][t] = in[n * 64 + t];
          asm volatile("{asm}.arrive %0, 128;" :: "r"(1 + n % 2) : "memory");
        }}
      else
        for (int n = 0; n < 6; ++n) {{
          asm volatile("{asm}.sync %0, 128;" :: "r"(1 + n % 2) : "memory");
          out[n * 64 + t] = buffer[n % 2][63 - t];
          if (n < 4) asm volatile("{asm}.arrive %0, 128;" :: "r"(3 + n % 2) : "memory");
        }}
    }}"""
    x = np.arange(6 * 64, dtype=i32)
    run = emulate(source, {"in": x}, {"out": ((6 * 64,), i32)}, grid=2, block=128, order=order)
    np.testing.assert_array_equal(run["out"].reshape(6, 64), x.reshape(6, 64)[:, ::-1])


def test_warps_reach_a_barrier_at_different_lines():
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int s[64];
  int t = threadIdx.x;
  if (t < 32) {
    s[t] = t;
    __syncthreads();
    out[t] = s[t + 32];
  } else {
    s[t] = 100 + t;
    __syncthreads();
    out[t] = s[t - 32];
  }
}"""
    for order in ("forward", "reversed"):
        out = emulate(source, {}, OUT, block=64, grid=3, order=order)["out"]
        np.testing.assert_array_equal(out, np.r_[np.arange(132, 164), np.arange(32)])


def test_lanes_reach_an_unaligned_barrier_at_different_lines():
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int s[64];
  int t = threadIdx.x;
  if (t % 2) { s[t] = t; __barrier_sync(0); out[t] = s[t - 1]; }
  else { s[t] = -t; __barrier_sync_count(0, 64); out[t] = s[t + 1]; }
}"""
    t = np.arange(64)
    out = emulate(source.replace("_count(0, 64)", "(0)"), {}, OUT, block=64)["out"]
    np.testing.assert_array_equal(out, np.where(t % 2, 1 - t, t + 1))
    np.testing.assert_array_equal(emulate(source, {}, OUT, block=64)["out"], out)


@settings(max_examples=8)
@given(st.integers(1, 100), st.integers(1, 3), st.integers(-1, 9), st.sampled_from(["forward", "reversed", 4]))
def test_barriers_that_count_and_combine(threads, grid, limit, order):
    source = """extern "C" __global__ void k(int* out, int limit) {
      int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
      bool p = t % 10 <= limit;
      out[3 * i] = __syncthreads_count(p);
      if (t < 32) out[3 * i + 1] = __syncthreads_and(p);
      else out[3 * i + 1] = __syncthreads_and(p) ? 1 : 0;
      out[3 * i + 2] = __syncthreads_or(p);
    }"""
    n = threads * grid
    run = emulate(source, {}, {"out": ((n, 3), i32)}, args=["out", i32(limit)], grid=grid, block=threads, order=order)
    p = np.arange(threads) % 10 <= limit
    assert (run["out"][:, 0] == p.sum()).all()
    assert ((run["out"][:, 1] != 0) == p.all()).all() and ((run["out"][:, 2] != 0) == p.any()).all()


@every(
    ("call", "message"),
    [
        ("sync(16, 64)", r"kernel\.cu:\d+.*: barrier 16 does not exist: a block has 0 to 15"),
        ("sync(1, 40)", r": a barrier counts whole warps: 40 threads are no multiple of 32, by thread \(0, 0, 0\)"),
        ("sync(1, 32)", r": barrier 1 is for 32 threads, 64 have come, by thread"),
        ("arrive(1, 32)", r": barrier 1 is for 32 threads, 64 have come, by thread"),
        ("sync(2, 96)", r": deadlock: barrier 2 waits for 96 threads, 64 have come, by thread \(0, 0, 0\)"),
        (
            "if (threadIdx.x < 32) sync(1, 64); else sync(2, 64)",
            r": deadlock: barrier 1 waits for 64 threads, 32 have come and no other can, such as thread \(32, 0, 0\)",
        ),
        ("if (threadIdx.x < 32) sync(1, 64); else __syncthreads()", r": deadlock: barrier [01] waits for "),
    ],
)
def test_invalid_or_incomplete_named_barrier_is_an_error(call, message):
    source = f'{NAMED}\nextern "C" __global__ void k(int* out) {{\n  {call};\n  out[threadIdx.x] = 1;\n}}'
    _fails(source, message, block=64, grid=2)


def test_an_arrival_is_one_of_a_whole_warp():
    """Lanes that diverged before it count once, also if some of them have ended."""
    source = """extern "C" __global__ void k(int* out) {
      int t = threadIdx.x;
      if (t < 32) {
        if (t == 5) return;
        for (int i = 0; i < t % 3; ++i) out[t] = i;
        asm volatile("bar.arrive 1, 64;" ::: "memory");
      } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
      }
      out[t] = t;
    }"""
    for order in ("forward", "reversed"):
        out = emulate(source, {}, {"out": ((64,), i32)}, block=64, order=order)["out"]
        np.testing.assert_array_equal(np.delete(out, 5), np.delete(np.arange(64), 5))


def test_an_arrival_that_some_lanes_miss_is_an_error():
    source = """extern "C" __global__ void k(int* out) {
      int t = threadIdx.x;
      if (t < 16) asm volatile("bar.arrive 1, 64;" ::: "memory");
      else asm volatile("bar.sync 2, 64;" ::: "memory");
      out[t] = t;
    }"""
    _fails(source, "deadlock: not all threads of the warp reach this arrival", block=64)


def test_guarded_barrier_is_for_threads_with_a_true_guard():
    source = """extern "C" __global__ void k(int* out) {
      int t = threadIdx.x;
      asm volatile("{ .reg .pred p; setp.lt.s32 p, %0, 64; @p bar.sync 1, 64; @!p bar.sync 2, 32; }" :: "r"(t));
      asm volatile("{ .reg .pred p; setp.lt.s32 p, %0, 0; @p bar.sync 3, 64; @p bar.warp.sync 1; }" :: "r"(t));
      out[t] = t;
    }"""
    out = emulate(source, {}, {"out": ((96,), i32)}, block=96)["out"]
    np.testing.assert_array_equal(out, np.arange(96))


# -- a barrier that some threads of the block miss ------------------------------------------------------------------
@every(("condition", "count"), [("t < 32", 32), ("t != 40", 1), ("t % 2", 32)])
def test_barrier_missed_by_threads_is_an_error(condition, count):
    source = f"""extern "C" __global__ void k(int* out) {{
  int t = threadIdx.x;
  out[t] = 1;
  if ({condition}) {{
    out[t] = 2;
    __syncthreads();
  }}
  out[t] += 1;
}}"""
    first = next(t for t in range(64) if not eval(condition.replace("!=", "!="), {"t": t}))
    _fails(
        source,
        rf"^k, kernel\.cu:6: not all threads of the block reach this barrier: {count} run past it while others wait, "
        rf"first thread \({first}, 0, 0\) of block \(0, 0, 0\)$",
        block=64,
    )


def test_barrier_in_a_loop_of_different_lengths_is_an_error():
    source = """extern "C" __global__ void k(int* out) {
  #pragma unroll 1
  for (int n = 0; n < 2 + threadIdx.x / 32; ++n)
    __syncthreads();
  out[threadIdx.x] = 1;
}"""
    _fails(source, r"kernel\.cu:4: .*reach this barrier: 32 run past it while others wait, first thread \(0", block=64)


def test_return_before_a_barrier_is_a_warning():
    source = """extern "C" __global__ void k(int* out) {
  __shared__ int s[64];
  int t = threadIdx.x;
  if (t >= 50 && blockIdx.x == 1) return;
  s[t] = t;
  __syncthreads();
  out[blockIdx.x * 64 + t] = s[t < 40 ? t + 1 : t];
  __syncthreads();
}"""
    for order in ("forward", "reversed"):
        first, second = _warnings(source, 64, grid=2, order=order)
        assert first.startswith(
            "k, kernel.cu:6: 14 threads of block (1, 0, 0), first thread (50, 0, 0), return before this barrier."
        )
        assert "kernel.cu:8: 14 threads" in second
    assert _warnings(source.replace("t >= 50", "t > 63"), 64, grid=2) == ()


# -- copies of one barrier that the compiler makes ------------------------------------------------------------------
TREES = {
    "barrier last": "for (int s = N / 2; s > 0; s >>= 1) { if (t < s) x[t] += x[t + s]; __syncthreads(); }",
    "barrier first": "for (int s = N / 2; s; s /= 2) { __syncthreads(); if (t < s) x[t] += x[t + s]; }",
    "continue": "for (int s = N / 2; s; s /= 2) { __syncthreads(); if (t >= s) continue; x[t] += x[t + s]; }",
    "interleaved": "for (int s = 1; s < N; s *= 2) { __syncthreads(); if (t % (2 * s) == 0) x[t] += x[t + s]; }",
    "two barriers": """for (int s = N / 2; s > 0; s >>= 1) {
      float other = 0;
      if (t < s) other = x[t + s];
      __syncthreads();
      if (t < s) x[t] += other;
      __syncthreads();
    }""",
}


@pytest.mark.parametrize("unroll", ["", "#pragma unroll 1", "#pragma unroll 2", "#pragma unroll 3"])
@pytest.mark.parametrize("tree", TREES)
def test_sums_by_a_tree(tree, unroll):
    source = f"""extern "C" __global__ void k(float* out, const float* in) {{
      __shared__ float x[512];
      int t = threadIdx.y * blockDim.x + threadIdx.x, N = blockDim.x * blockDim.y;
      x[t] = in[blockIdx.x * N + t];
      __syncthreads();
      {unroll}
      {TREES[tree]}
      __syncthreads();
      if (t == 0) out[blockIdx.x] = x[0];
    }}"""
    for block in ((1, 2), (32, 1), (16, 8), (1, 512)):
        n = block[0] * block[1]
        x = np.random.default_rng(n).integers(0, 9, (3, n)).astype(np.float32)
        for order in ("forward", "reversed"):
            run = emulate(source, {"in": x}, {"out": ((3,), np.float32)}, grid=3, block=block, order=order, races=True)
            np.testing.assert_array_equal(run["out"], x.sum(axis=1))
            assert run.races == ()


UNROLLED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{
	.reg .pred %p<4>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<6>;
	.shared .align 4 .b8 x[2048];
	ld.param.u64 %rd1, [out];
	ld.param.u64 %rd2, [in];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ntid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.u32 %r3, [%rd4];
	shl.b32 %r4, %r1, 2;
	mov.u32 %r5, x;
	add.s32 %r4, %r4, %r5;
	st.shared.u32 [%r4], %r3;
	shr.u32 %r2, %r2, 1;
	bra.uni FIRST;
NEXT:
	shr.u32 %r2, %r2, 1;
FIRST:
	bar.sync 0;
	setp.ge.u32 %p1, %r1, %r2;
	@%p1 bra HALF;
	shl.b32 %r6, %r2, 2;
	add.s32 %r6, %r4, %r6;
	ld.shared.u32 %r7, [%r6];
	ld.shared.u32 %r8, [%r4];
	add.s32 %r7, %r7, %r8;
	st.shared.u32 [%r4], %r7;
HALF:
	setp.eq.u32 %p2, %r2, 1;
	@%p2 bra END;
	shr.u32 %r2, %r2, 1;
	bar.sync 0;
	setp.ge.u32 %p3, %r1, %r2;
	@%p3 bra NEXT;
	shl.b32 %r6, %r2, 2;
	add.s32 %r6, %r4, %r6;
	ld.shared.u32 %r7, [%r6];
	ld.shared.u32 %r8, [%r4];
	add.s32 %r7, %r7, %r8;
	st.shared.u32 [%r4], %r7;
	bra.uni NEXT;
END:
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra OUT;
	ld.shared.u32 %r7, [x];
	st.global.u32 [%rd1], %r7;
OUT:
	ret;
}
"""


@pytest.mark.parametrize("threads", [2, 32, 128, 512])  # 1, 5, 7, 9 steps
def test_tree_whose_loop_was_unrolled_by_two(threads):
    """Half of the threads are back at the first barrier while the others still add after the second."""
    values = np.random.default_rng(threads).integers(0, 99, threads).astype(i32)
    for order in ("forward", "reversed"):
        memory = device_memory({"out": np.zeros(1, i32), "in": values}, ["in"])
        launch(UNROLLED, "k", (1, 1, 1), (threads, 1, 1), ["out", "in"], memory, 0, Options(order=order))
        assert memory.array("out")[0] == values.sum()


BRANCHES = """.version 8.0
.target sm_80
.address_size 64
.file 1 "kernel.cu"
.visible .entry k(.param .u64 out)
{
	.reg .pred %p<2>;
	.reg .b32 %r<5>;
	.reg .b64 %rd<4>;
	.shared .align 4 .b8 s[256];
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	shl.b32 %r2, %r1, 2;
	mov.u32 %r3, s;
	add.s32 %r3, %r3, %r2;
	st.shared.u32 [%r3], %r1;
	setp.lt.u32 %p1, %r1, 40;
	@%p1 bra LOW;
	.loc 1 FIRST
	bar.sync 0;
	.loc 1 9 5
	bra.uni END;
LOW:
	.loc 1 SECOND
	bar.sync 0;
END:
	.loc 1 10 5
	xor.b32 %r3, %r3, 252;
	ld.shared.u32 %r4, [%r3];
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r4;
	ret;
}
"""


def _branches(first: str, second: str) -> np.ndarray:
    memory = device_memory({"out": np.zeros(64, i32)}, [])
    ptx = BRANCHES.replace("FIRST", first).replace("SECOND", second)
    launch(ptx, "k", (1, 1, 1), (64, 1, 1), ["out"], memory)
    return memory.array("out")


@every(
    ("first", "second"),
    [
        ("7 3", "7 3"),  # the compiler makes no copies on two ways of a branch
        ("2 3, function_name $L__info_string0, inlined_at 1 7 3",) * 2,
        ("7 3", "8 3"),
        ("7 3", "7 30"),
        (
            "2 3, function_name $L__info_string0, inlined_at 1 7 3",
            "2 3, function_name $L__info_string0, inlined_at 1 8 3",
        ),
        ("2 3, function_name $L__info_string0, inlined_at 1 7 3", "7 3"),
    ],
)
def test_lanes_of_a_warp_at_different_barriers_are_an_error(first, second):
    with pytest.raises(EmulatorError, match=r"not all threads of the warp reach this barrier: others wait at "):
        _branches(first, second)


def test_lanes_at_a_barrier_of_a_function_inlined_twice_are_an_error():
    source = """__device__ __forceinline__ void inner(int* x) { *x += 1; __syncthreads(); }
__device__ __forceinline__ void outer(int* x) { inner(x); x[1] += 2; }
extern "C" __global__ void k(int* out) {
  __shared__ int s[99];
  int t = threadIdx.x;
  s[t] = s[t + 32] = 0;
  if (t < 16) outer(s + t);
  else outer(s + t + 16);
  out[t] = s[t];
}"""
    _fails(source, r"^k, kernel\.cu:.*: not all threads of the warp reach this barrier: others wait at kernel\.cu:")


def test_threads_that_skip_a_barrier_of_which_a_warning_is_known_are_an_error():
    """Threads have returned before it: it waits for the others, each time."""
    source = """extern "C" __global__ void k(int* out) {
  if (threadIdx.x >= 64) return;
  #pragma unroll 1
  for (int n = 0; n < 3 - threadIdx.x / 32; ++n)
    __syncthreads();
  out[threadIdx.x] = 1;
}"""
    message = r"kernel\.cu:5: .*reach this barrier: 32 run past it while others wait, first thread \(32"
    _fails(source, message, block=96)
    blocks = source.replace("3 -", "3 - blockIdx.x *")  # the warning is of block 0
    _fails(blocks, message + ".*of block \\(1", {"out": ((192,), i32)}, block=96, grid=2)


def test_threads_that_leave_an_unrolled_loop_early_are_an_error():
    source = """extern "C" __global__ void k(int* out) {
  int t = threadIdx.x;
  #pragma unroll 2
  for (int n = 0; n < 5 + t / 32; ++n) {
    out[t] = n;
    __syncthreads();
  }
  out[t] += 1;
}"""
    _fails(
        source, r"^k, kernel\.cu:6: not all threads of the block reach this barrier: 32 run past it while ", block=64
    )


# -- lanes of a warp ------------------------------------------------------------------------------------------------
def test_syncwarp_at_different_lines():
    """The first half reads after its __syncwarp the values that the second half writes before its __syncwarp."""
    source = """extern "C" __global__ void k(int* out) {
  __shared__ volatile int s[64];
  int t = threadIdx.x;
  if (t % 32 < 16) {
    s[t] = t;
    __syncwarp();
    out[t] = s[t + 16];
  } else {
    s[t] = 100 + t;
    __syncwarp();
    out[t] = s[t - 16];
  }
}"""
    t = np.arange(64)
    out = emulate(source, {}, OUT, block=64)["out"]
    np.testing.assert_array_equal(out, np.where(t % 32 < 16, 116 + t, t - 16))


def test_halves_of_a_warp_synchronize_separately():
    source = """extern "C" __global__ void k(int* out) {
      __shared__ volatile int s[64];
      int t = threadIdx.x, half = t / 16 % 2;
      unsigned mask = half ? 0xffff0000u : 0xffffu;
      for (int n = 0; n < 2 + half; ++n) {
        s[t] = t * 10 + n;
        __syncwarp(mask);
        out[t] = s[t ^ 1];
        __syncwarp(mask);
      }
    }"""
    t = np.arange(64)
    np.testing.assert_array_equal(emulate(source, {}, OUT, block=64)["out"], (t ^ 1) * 10 + 1 + t // 16 % 2)


def test_parts_of_a_warp_vote_match_and_add_separately():
    source = """extern "C" __global__ void k(unsigned* out, const int* in) {
      int t = threadIdx.x, v = in[t];
      unsigned mask = 0xffu << (t % 32 / 8 * 8);
      out[4 * t] = __ballot_sync(mask, v > 4);
      out[4 * t + 1] = __any_sync(mask, v == 9);
      out[4 * t + 2] = __reduce_add_sync(mask, v);
      out[4 * t + 3] = __match_any_sync(mask, v);
    }"""
    v = np.random.default_rng(2).integers(0, 10, 40).astype(i32)
    run = emulate(source, {"in": v}, {"out": ((40, 4), u32)}, block=40)
    for t in range(40):
        tile = range(t // 8 * 8, t // 8 * 8 + 8)
        bits = lambda lanes: sum(1 << n % 32 for n in lanes)  # noqa: E731
        expected = [
            bits(n for n in tile if v[n] > 4),
            9 in v[tile],
            v[tile].sum(),
            bits(n for n in tile if v[n] == v[t]),
        ]
        assert run["out"][t].tolist() == expected


def test_lanes_shuffle_together_after_a_lock():
    source = """extern "C" __global__ void k(int* out, int* lock) {
      int t = threadIdx.x, mine;
      while (atomicCAS(lock, 0, 1)) ;
      mine = ((volatile int*)lock)[1]++;
      __threadfence();
      atomicExch(lock, 0);
      int sum = mine;
      for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
      out[t] = sum * 1000 + __popc(__ballot_sync(~0u, mine >= 8)) + __reduce_add_sync(~0u, 0);
    }"""
    run = emulate(source, {"lock": np.zeros(2, i32)}, {"out": ((32,), i32)}, args=["out", "lock"])
    assert (run["out"] == sum(range(32)) * 1000 + 24).all()


def test_ended_lanes_are_not_waited_for():
    source = """extern "C" __global__ void k(int* out) {
      int t = threadIdx.x;
      if (t >= 50) return;
      __syncwarp();
      out[t] = __popc(__ballot_sync(~0u, true));
    }"""
    run = emulate(source, {}, {"out": ((50,), i32)}, block=64)
    np.testing.assert_array_equal(run["out"], [32] * 32 + [18] * 18)


@every(
    ("call", "what"),
    [("__syncwarp()", "__syncwarp"), ("out[t] = __shfl_sync(~0u, t, 3)", ""), ("out[t] = __any_sync(~0u, t)", "")],
)
def test_missing_lanes_of_a_mask_are_an_error(call, what):
    source = f"""extern "C" __global__ void k(int* out) {{
  int t = threadIdx.x;
  out[t] = 0;
  if (t < 40 && t != 3)
    {call};
  out[t] += 1;
}}"""
    _fails(
        source,
        r"^k, kernel\.cu:5.*: not all lanes that the mask names reach this instruction: lanes 3 run past it "
        r"while others wait, first thread \(3, 0, 0\) of block \(0, 0, 0\)$",
        block=64,
    )


def test_lanes_waiting_at_two_barriers_are_a_deadlock():
    source = """extern "C" __global__ void k(int* out) {
  int t = threadIdx.x;
  if (t < 16) { __syncwarp(); out[t] = 1; }
  else { __syncthreads(); out[t] = 2; }
}"""
    _fails(source, r"kernel\.cu:3: .*the mask names reach this instruction: lanes 16 to 31 cannot come: deadlock")
