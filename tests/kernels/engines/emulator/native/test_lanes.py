"""Shuffles, votes and barriers between lanes: machine code and NumPy give equal bits and equal counters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator.compiler.compile import compile_ptx
from kernels.engines.emulator.launch import Options, device_memory, launch
from kernels.engines.emulator.native.plan import Setting, plan_of
from kernels.engines.emulator.native.record import KIND, STOP
from kernels.engines.emulator.ptx.parse import parse
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every

pytest.importorskip("llvmlite")
pytestmark = needs_nvrtc
SHUFFLES = {
    "up": "__shfl_up_sync({mask}, v, by, {width})",
    "down": "__shfl_down_sync({mask}, v, by, {width})",
    "xor": "__shfl_xor_sync({mask}, v, by, {width})",
    "from": "__shfl_sync({mask}, v, by, {width})",
}
VOTES = ("__ballot_sync({mask}, p)", "__any_sync({mask}, p)", "__all_sync({mask}, p)")
CALLS = [*SHUFFLES.values(), *VOTES]
KERNEL = """extern "C" __global__ void k(int* out, const int* x, const int* n) {{
  int t = threadIdx.x, v = x[t], by = n[t], p = v % 3 == 0;
  {condition} {{
    out[t] = {call};
    __syncwarp({mask});
  }}
}}"""
# How many threads come, and the lanes that they name.
CASES = {
    "": "~0u",
    "if (t < 96)": "t % 32 < 16 ? 0xffffu : 0xffff0000u",
    "if (t < 40)": "__activemask()",
    "if (t % 2)": "0xaaaaaaaau",
    "if (t >= 32)": "~0u",
}


def _run(source: str, block: int, *, machine_code: bool) -> tuple:
    rng = np.random.default_rng(block)
    x, n = rng.integers(-(2**31), 2**31, 96).astype(np.int32), rng.integers(-2, 34, 96).astype(np.int32)
    memory = device_memory({"out": np.zeros(96, np.int32), "x": x, "n": n}, ["out", "x", "n"])
    options = Options(machine_code=machine_code)
    ptx = compile_ptx(source, "kernel.cu")
    run = launch(ptx, "k", (2, 1, 1), (block, 1, 1), ["out", "x", "n"], memory, options=options)
    return memory.array("out").tolist(), run.counted


@pytest.mark.parametrize("call", CALLS)
@given(st.sampled_from(list(CASES)), st.sampled_from([1, 2, 8, 16, 32]), st.sampled_from([20, 32, 50, 96]))
@settings(max_examples=12, deadline=None)
def test_what_lanes_exchange_is_what_numpy_gives(call, condition, width, block):
    if condition == "" and block % 32:
        condition = "if (t < 40)"  # the lanes of the last warp are not all there
    mask = CASES[condition]
    source = KERNEL.format(call=call.format(mask=mask, width=width), condition=condition, mask=mask)
    assert _run(source, block, machine_code=True) == _run(source, block, machine_code=False)


@every("call", CALLS)
def test_they_are_handled(call):
    """Without this the comparison above compares NumPy with itself."""
    source = KERNEL.format(call=call.format(mask="~0u", width=16), condition="", mask="~0u")
    kernel = parse(compile_ptx(source, "kernel.cu"), "k")
    plan = plan_of(kernel, Setting(False, frozenset(), frozenset(), ()))
    between = [pc for pc, i in enumerate(kernel.code) if i.parts[0] in ("shfl", "vote", "bar")]
    assert len(between) == 2 and plan.handled.issuperset(between)


def test_a_sum_by_shuffles_runs_without_numpy():
    source = """extern "C" __global__ void k(int* out, const int* x, const int* n) {
  __shared__ int part[3];
  int t = threadIdx.x, sum = x[t] >> 8;
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  if (t % 32 == 0) part[t / 32] = sum;
  __syncthreads();
  if (t == 0) out[blockIdx.x] = part[0] + part[1] + part[2];
}"""
    (found, counted), (other, expected) = (_run(source, 96, machine_code=on) for on in (True, False))
    assert (found, counted) == (other, expected)
    kernel = parse(compile_ptx(source, "kernel.cu"), "k")
    plan = plan_of(kernel, Setting(True, frozenset(), frozenset(), (("part", 0),)))
    assert not {i.opcode for pc, i in enumerate(kernel.code) if plan.records[pc, KIND] == STOP}
