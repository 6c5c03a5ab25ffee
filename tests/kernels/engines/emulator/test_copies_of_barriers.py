"""Barriers on one line of the source: copies that the compiler made of one are one, those on two ways of a branch are two."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.engines.emulator.compiler.compile import compile_ptx
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.ptx.flow import flow_of
from kernels.engines.emulator.ptx.parse import parse
from tests.helpers.emulated import emulate, needs_nvrtc
from tests.helpers.offenders import every

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
f32, i32 = np.float32, np.int32
KERNEL = """#define SYNC __syncthreads()
#define EITHER(c) if (c) { SYNC; } else { SYNC; }
__device__ __forceinline__ void sync() { __syncthreads(); }
__device__ __forceinline__ void either(bool c) { if (c) { __syncthreads(); } else { __syncthreads(); } }
template <int D> __device__ __forceinline__ void fold(int* s, int t) { if (t < D) s[t] += s[t + D]; SYNC; if (D > 1) fold<(D > 1 ? D / 2 : 1)>(s, t); }
__device__ __forceinline__ int sum(int* s, int v) { int t = threadIdx.x; s[t] = v; SYNC; for (int d = 32; d; d /= 2) { if (t < d) s[t] += s[t + d]; SYNC; } v = s[0]; SYNC; return v; }
extern "C" __global__ void k(int* out, int n) {
  __shared__ int s[64];
  int t = threadIdx.x, got = 0;
  s[t] = t;
  %s
  out[t] = got;
}"""


def _run(body: str, n: int = 5):
    return emulate(KERNEL % body, {}, {"out": ((64,), i32)}, args=["out", i32(n)], block=64, races=True, numbers=True)


@pytest.mark.parametrize(
    "body",
    [
        "if (t & 1) { __syncthreads(); got = 1; } else { __syncthreads(); got = 2; }",
        "if (t & 1) { got = s[t]; SYNC; } else SYNC;",
        "if (t < 40) { sync(); got = 1; } else { got = 2; sync(); }",
        "either(t & 1); got = s[t ^ 1];",
        "EITHER(t %% 3 == 0) got = s[t ^ 1];",
        "auto wait = [] { __syncthreads(); }; if (t & 1) { got = 1; wait(); } else { wait(); got = 2; }",
        "switch (t %% 4) { case 0: got = 4; SYNC; break; case 1: SYNC; got = 5; break; default: SYNC; }",
        "for (int i = 0; i < n; ++i) if ((t ^ i) & 1) { got += i; SYNC; } else { SYNC; }",
        "got = t & 1 ? sum(s, 1) : sum(s, 2);",
    ],
)
def test_barriers_on_two_ways_of_a_branch(body):
    with pytest.raises(
        EmulatorError, match=r"not all threads of the warp reach this barrier: others wait at kernel\.cu:11"
    ):
        _run(body.replace("%%", "%"))


@every(
    "body, right",
    [
        ("for (int i = 0; i < n; ++i) { SYNC; got += s[t ^ i]; }", lambda t: sum(t ^ i for i in range(5))),
        ("for (int i = 0; i < 4; ++i) { SYNC; got += s[t ^ i]; }", lambda t: sum(t ^ i for i in range(4))),
        ("for (int r = 0; r < 2; ++r) for (int i = 0; i < n; ++i) { SYNC; got += s[t ^ i] * r; SYNC; }", lambda t: sum(t ^ i for i in range(5))),
        ("SYNC; fold<32>(s, t); got = s[0];", lambda t: 2016 + 0 * t),
        ("got = sum(s, t) + sum(s, 1);", lambda t: 2016 + 64 + 0 * t),
        ("if (n == 5) got = sum(s, t); else got = sum(s, 1) + sum(s, 2);", lambda t: 2016 + 0 * t),
        ("if (n > 2) { SYNC; got = s[t ^ 1]; } else { SYNC; got = s[t ^ 2]; }", lambda t: t ^ 1),
        ("if (t < 32) { SYNC; got = s[t ^ 33]; } else { SYNC; got = s[t ^ 33]; }", lambda t: t ^ 33),
        ("int i = 0; while (true) { SYNC; got += s[t ^ 1]; if (++i >= n) break; SYNC; got += s[t ^ 2]; }", lambda t: 5 * (t ^ 1) + 4 * (t ^ 2)),
        ("for (int i = 0; i < n; ++i) { if (i == 0) { got = 7; } SYNC; if (t & 1) got += s[t ^ 1]; else got -= s[t ^ 1]; }",
         lambda t: 7 + 5 * np.where(t & 1, t ^ 1, -(t ^ 1))),
        ("for (int i = 0; i < n; ++i) { if (i + 1 < n) SYNC; got += s[t ^ i]; }", lambda t: sum(t ^ i for i in range(5))),
    ],
)  # fmt: skip
@every("order", ["forward", "reversed"])
def test_copies_of_one_barrier(body, right, order):
    source = KERNEL % body
    run = emulate(source, {}, {"out": ((64,), i32)}, args=["out", i32(5)], block=64, races=True, order=order)
    np.testing.assert_array_equal(run["out"], right(np.arange(64)))
    assert run.races == ()


def test_copies_are_those_of_an_unrolled_loop():
    loop = "for (int i = 0; i < n; ++i) { if (n & 1) { SYNC; got += s[t ^ i]; } else { SYNC; got -= s[i]; } }"
    kernel = parse(compile_ptx(KERNEL % loop, "kernel.cu"), "k")
    flow = flow_of(kernel)
    barriers = [pc for pc, i in enumerate(kernel.code) if re.match("bar|barrier", i.opcode)]
    assert all(pc in flow.copies(pc) for pc in barriers)
    assert all((a in flow.copies(b)) == (b in flow.copies(a)) for a in barriers for b in barriers)
    assert any(len(flow.copies(pc)) < len(barriers) for pc in barriers)
