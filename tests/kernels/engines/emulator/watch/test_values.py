"""A trace of a build for watching has the values of variables by name, at each step."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.engines import emulator
from kernels.engines.emulator.compiler.compile import OPTIONS, compile_ptx
from kernels.engines.emulator.launch import Options, device_memory, launch
from kernels.engines.emulator.watch.statements import spread
from kernels.engines.emulator.watch.trace import Watched
from kernels.engines.emulator.watch.watch import Variable, Watch
from kernels.ladders import find, ladder_of
from tests.helpers.emulated import needs_nvrtc

pytestmark = needs_nvrtc
f32, i32 = np.float32, np.int32


def everything(variable: Variable) -> bool:
    return True


def watched(source: str, arrays: dict[str, np.ndarray], block: int = 4, grid: int = 1, **watch) -> Watched:
    """Returns what the blocks of a kernel `k` do, compiled for watching."""
    options = [option.replace("-lineinfo", "-G") for option in OPTIONS]
    ptx = compile_ptx(spread(source), "k.cu", options)
    run = launch(
        ptx, "k", (grid, 1, 1), (block, 1, 1), list(arrays), device_memory(arrays, list(arrays)), 0,
        Options(watch=Watch(**watch)),
    )  # fmt: skip
    assert run.watched is not None
    return run.watched


def of_thread(trace: Watched, path: str, thread: int) -> list[float]:
    history = trace.values(path)
    return history.values[history.thread == thread].tolist()


def test_the_running_maximum_of_a_softmax():
    rung, x = find("softmax/online"), np.arange(1, 13, dtype=f32).reshape(1, 12)
    program = rung.build(ladder_of("softmax/online").parse("M=1,N=12"), {"BLOCK": 4})
    session = emulator.Session(program, {"x": x}, Options(watch=Watch()))
    trace = session.launch(program.launch(0)).watched
    assert of_thread(trace, "running.m", 3) == [-np.inf, 4, 8, 12]
    assert of_thread(trace, "running.m", 0) == [-np.inf, 1, 5, 9, 11, 12]  # the tree goes on
    assert of_thread(trace, "col", 3)[:3] == [3, 7, 11] and of_thread(trace, "stride", 0) == [2, 1, 0]
    assert {name: type_.shape for name, type_ in trace.shared.items()} == {"partial_m": (4,), "partial_l": (4,)}


LEFT_OUT = """extern "C" __global__ void k(float* y) {
  int t = threadIdx.x;
#if MASK
  if (t) y[t] = 1;
#endif
  y[t] = t;
}"""


def test_lines_after_a_group_that_the_preprocessor_leaves_out_keep_their_numbers():
    trace = watched(LEFT_OUT, {"y": np.zeros(4, f32)})
    step = trace.accesses.step[trace.accesses.write][0]
    assert trace.lines[trace.line[step]].number == 6


LOOPS = """extern "C" __global__ void k(float* y) {
  float sum = 0, tile[2][3];
  int t = threadIdx.x;
  for (int i = 0; i < 3; ++i) sum += i * t;
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 3; ++c) tile[r][c] = 10 * r + c + t;
  y[t] = sum + tile[1][2];
}"""


def test_registers_loops_and_arrays():
    trace = watched(LOOPS, {"y": np.zeros(4, f32)})
    assert of_thread(trace, "sum", 2) == [0, 0, 2, 6] and of_thread(trace, "i", 1) == [0, 1, 2, 3]
    assert [of_thread(trace, f"tile[{r}][{c}]", 3) for r in range(2) for c in range(3)] == [
        [3],
        [4],
        [5],
        [13],
        [14],
        [15],
    ]
    assert trace.values.variables[0].name == "y" and not of_thread(trace, "t", 0)[1:]


def test_a_step_is_a_statement_by_some_lanes_up_to_a_jump_back():
    trace = watched(LOOPS, {"y": np.zeros(4, f32)})
    body = [n for n in range(trace.steps) if trace.lines[trace.line[n]].number == 4 and trace.statement[n] == 1]
    assert len(body) == 3 and {line.number for line in trace.lines} <= set(range(1, 9))
    steps = trace.values("sum").step
    assert set(body) <= set(steps.tolist())
    values, known = trace.values("sum").after(body[1], 4)
    assert known.all() and values.tolist() == [0, 1, 2, 3]


def test_lanes_that_skip_a_statement_have_no_value_of_it():
    source = """extern "C" __global__ void k(int* y) {
  int t = threadIdx.x, v = 1;
  if (t % 2) { int w = 5 * t; v = w; }
  y[t] = v;
}"""
    trace = watched(source, {"y": np.zeros(4, i32)})
    w = trace.values("w")
    assert dict(zip(w.thread.tolist(), w.values.tolist(), strict=True)) == {1: 5, 3: 15}
    (step,) = set(w.step.tolist())
    assert trace.masks[step].tolist() == [0b1010]


def test_of_two_variables_with_one_name_the_innermost_that_is_seen():
    source = """extern "C" __global__ void k(int* y) {
  int v = 1;
  y[0] = v;
  { int v = 7; y[1] = v; }
  y[2] = v;
}"""
    trace = watched(source, {"y": np.zeros(4, i32)}, block=1)
    at = {trace.lines[line].number: int(pc) for line, pc in zip(trace.line, trace.pc, strict=True)}
    assert trace.values("v", at[3]).values.tolist() == [1] and trace.values("v", at[5]).values.tolist() == [1]
    inner = [int(pc) for pc, line in zip(trace.pc, trace.line, strict=True) if trace.lines[line].number == 4][-1]
    assert trace.values("v", inner).values.tolist() == [7]
    with pytest.raises(KeyError, match="no variable missing"):
        trace.values("missing")


FUNCTIONS = """struct Pair { float a; int b; };
__device__ Pair scaled(Pair p, float by) { float product = p.a * by; p.a = product; p.b += 1; return p; }
extern "C" __global__ void k(float* y) {
  __shared__ Pair all[4];
  Pair p = {2.5f, 1};
  p = scaled(p, 2);
  p = scaled(p, 3);
  all[threadIdx.x] = p;
  float* place = &y[threadIdx.x];
  *place = all[threadIdx.x].a;
}"""


@pytest.mark.parametrize("is_watched, seen", [(everything, True), (lambda v: v.name == "p" and not v.calls, False)])
def test_structures_functions_and_what_is_watched(is_watched, seen):
    trace = watched(FUNCTIONS, {"y": np.zeros(4, f32)}, is_watched=is_watched)
    assert of_thread(trace, "p.a", 1) == [2.5, 5, 15] and of_thread(trace, "p.b", 1) == [1, 2, 3]
    products = [v for v in trace.values.variables if v.name == "product"]
    assert [tuple(line.number for line in v.calls) for v in products] == ([(6,), (7,)] if seen else [])
    assert trace.shared["all"].shape == (4,) and [leaf.path for leaf in trace.shared["all"].leaves[:2]] == [
        "[0].a",
        "[0].b",
    ]


def test_accesses_keep_their_bits_also_of_nan():
    source = 'extern "C" __global__ void k(float* x, float* y) { y[threadIdx.x] = x[3 - threadIdx.x]; }'
    x = np.array([1, np.nan, -0.0, np.inf], f32)
    trace = watched(source, {"x": x, "y": np.zeros(4, f32)})
    of = trace.accesses
    for write, name, order in ((False, "x", [3, 2, 1, 0]), (True, "y", [0, 1, 2, 3])):
        mine = (of.write == write) & (of.buffer == trace.buffers.index(name))
        assert of.element[mine].tolist() == order and trace.dtypes[trace.buffers.index(name)] == "float32"
        np.testing.assert_array_equal(of.bits[mine], x[::-1].view(np.uint32))


def test_threads_of_two_blocks_follow_each_other():
    source = """extern "C" __global__ void k(int* y) {
  __shared__ int s[4];
  int v = 10 * blockIdx.x + threadIdx.x;
  s[threadIdx.x] = v;
  y[4 * blockIdx.x + threadIdx.x] = s[threadIdx.x];
}"""
    trace = watched(source, {"y": np.zeros(12, i32)}, grid=3, blocks=(2, 0))
    v = trace.values("v")
    assert sorted(zip(v.thread.tolist(), v.values.tolist(), strict=True)) == list(
        enumerate([20, 21, 22, 23, 0, 1, 2, 3])
    )
    shared = trace.accesses.write & (trace.accesses.buffer == trace.buffers.index("s"))
    assert sorted(trace.accesses.element[shared].tolist()) == list(range(8))
