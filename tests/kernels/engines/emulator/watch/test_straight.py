"""Straight code in closures gives the recording that instructions give one by one: steps, accesses, values, outputs and faults."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from kernels.engines import emulator
from kernels.engines.emulator.compiler.compile import OPTIONS, compile_ptx
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, device_memory, launch
from kernels.engines.emulator.watch.statements import spread
from kernels.engines.emulator.watch.watch import Watch
from kernels.ladders import LADDERS
from kernels.model.program import Launch
from kernels.model.rung import Ladder, Rung
from kernels.runner import inputs_of
from tests.helpers.emulated import needs_nvrtc
from tests.kernels.engines.emulator.watch.test_same_bits import TILES, smallest

WATCHED = ("cross-entropy", "embedding-backward", "linear", "max-pool", "max-pool-backward", "layer-norm", "softmax")
BLOCKS = 2


def leaves(of: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yields the numbers and arrays that a recording consists of."""
    if is_dataclass(of):
        of = {field.name: getattr(of, field.name) for field in fields(of)}
    if isinstance(of, Mapping):
        for key, value in of.items():
            yield from leaves(value, f"{path}.{key}")
    elif isinstance(of, Sequence) and not isinstance(of, str | bytes):
        for n, value in enumerate(of):
            yield from leaves(value, f"{path}[{n}]")
    else:
        yield path, of


def differences(a: object, b: object) -> list[str]:
    """Returns where two recordings differ."""
    first, second = (
        {path: (v.dtype, v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v for path, v in leaves(of)}
        for of in (a, b)
    )
    assert first.keys() == second.keys()
    return [path for path, value in first.items() if value != second[path]]


def recorded(rung: Rung, ladder: Ladder, machine_code: bool) -> list[object]:
    """Returns the launches of a rung, watched in every variable, and the program's buffers after them."""
    shape = smallest(ladder, rung)
    program = rung.build(shape, rung.check(shape, TILES.get(rung.name)))
    session = emulator.Session(program, inputs_of(ladder, shape, program), Options())
    found: list[object] = []
    for step in program.steps:
        assert isinstance(step, Launch)
        blocks = tuple(range(min(BLOCKS, math.prod(step.grid))))
        watch = Watch(blocks, lambda _: True)
        session.options = Options(count=False, seconds=math.inf, watch=watch, machine_code=machine_code)
        found.append(session.launch(step).watched)
    return [*found, *(session.fetch(b.name) for b in program.buffers)]


@pytest.mark.parametrize("name", WATCHED)
def test_rungs(name):
    ladder = LADDERS[name]
    for rung in ladder.rungs:
        shape = smallest(ladder, rung)
        if shape is not None and all(isinstance(s, Launch) for s in rung.build(shape, rung.default_tiles).steps):
            with np.errstate(all="ignore"):
                assert not differences(recorded(rung, ladder, False), recorded(rung, ladder, True)), rung.name


def kernel(body: str, before: str = "") -> str:
    return f'{before}extern "C" __global__ void k(float* x, float* y, int* n) {{\n  int t = threadIdx.x;\n{body}\n}}'


RIGHT = {
    "divergence": kernel("float sum = 0; for (int i = 0; i < t % 5; ++i) { if (i & 1) sum += x[i]; else sum -= x[t]; } y[t] = sum;"),
    "pointers into several spaces": kernel(
        "__shared__ float s[64]; float own[3] = {1, 2, 3}; s[t] = t; __syncthreads();\n"
        "float* from = t % 3 == 0 ? &s[t] : t % 3 == 1 ? &own[t % 3] : &x[t]; y[t] = *from; *from = 7; y[t] += own[1] + s[t];"
    ),
    "arrays of a thread": kernel("float own[8]; for (int i = 0; i < 8; ++i) own[(i + t) % 8] = x[i]; y[t] = own[t % 8] + own[3];"),
    "vectors": kernel("float4 v = ((float4*)x)[t / 4]; ((float2*)y)[t / 2] = make_float2(v.x, v.w); y[t] += ((char*)x)[t];"),
    "functions": kernel(
        "Pair p = pair(x[t], t); if (t < 9) p = pair(p.a, p.n + 1); y[t] = p.a * p.n;",
        "struct Pair { float a; short n; }; __device__ Pair pair(float a, int n) { if (n > 40) return {a, 1}; return {2 * a, (short)n}; }\n",
    ),
    "other lanes and atomics": kernel(
        "float a = x[t]; if (t & 1) a += __shfl_xor_sync(__activemask(), a, 2); else a = __shfl_down_sync(__activemask(), a, 4);\n"
        "atomicAdd(n, t); atomicMax(&n[1], t); y[t] = a;"
    ),
    "a wait for another block": kernel(
        "volatile int* flag = n; if (blockIdx.x == 1) { y[t + 64] = x[t]; __threadfence(); if (t == 0) *flag = 1; }\n"
        "else { while (*flag == 0) {} y[t] = x[t]; }"
    ),
}  # fmt: skip
WRONG = {
    "outside": kernel("y[t] = x[t + 32];"),
    "outside for some threads": kernel("if (t % 2) y[t] = x[2 * t];"),
    "write outside": kernel("y[t * 3] = x[t];"),
    "write outside at one address": kernel("y[200] = x[t];"),
    "unwritten": kernel("__shared__ float s[64]; if (t != 5) s[t] = x[t]; __syncthreads(); y[t] = s[63 - t];"),
    "beside an array": kernel("__shared__ float s[64], r[64]; s[t] = r[t] = x[t]; __syncthreads(); y[t] = s[t + 2];"),
    "in the next array": kernel(
        "__shared__ float s[64], r[64]; s[t] = r[t] = x[t]; __syncthreads(); y[t] = s[t + 64] + r[t + 64];"
    ),
    "misaligned": kernel("y[t] = *(float*)((char*)x + t);"),
    "misaligned at one address": kernel("y[t] = *(float*)((char*)x + 2);"),
    "misaligned by a word": kernel("*(double*)(y + 1 + 2 * t % 4) = x[t];"),
    "null": kernel("float* p = t == 3 ? nullptr : x; y[t] = *p;"),
    "a loop that never ends": kernel("int i = 0; while (i < 2) { i = i * (t > 70); } y[t] = i;"),
    "lanes that never come": kernel("if (t != 3) __syncwarp(); while (t == 3 && x[0] < 9) {} y[t] = 1;"),
}


def outcome(source: str, machine_code: bool, name: str = "", **options) -> list[object]:
    """Returns what two blocks of 64 threads do: the message if a fault ends them, the recording, and the buffers. `name`: of the variable
    that is watched, "" for all."""
    ptx = compile_ptx(spread(source), "k.cu", [option.replace("-lineinfo", "-G") for option in OPTIONS])
    arrays = {"x": np.linspace(0, 3, 64, dtype=np.float32), "y": np.zeros(128, np.float32), "n": np.zeros(2, np.int32)}
    memory, text = device_memory(arrays, list(arrays)), ""
    settings = Options(False, watch=Watch((1, 0), lambda v: name in ("", v.name)), machine_code=machine_code, **options)
    try:
        watched = launch(ptx, "k", (2, 1, 1), (64, 1, 1), list(arrays), memory, 0, settings).watched
    except EmulatorError as error:
        watched, text = error.watched, str(error)
    return [text, watched, *map(memory.array, arrays)]


@needs_nvrtc
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("settings", [{}, {"name": "t"}, {"races": True}], ids=str)
def test_kernels(name, settings):
    plain = outcome(RIGHT[name], False, **settings)
    assert not plain[0] and not differences(plain, outcome(RIGHT[name], True, **settings))


@needs_nvrtc
@pytest.mark.parametrize("name", WRONG)
def test_faults(name):
    plain = outcome(WRONG[name], False)
    assert plain[0] and not differences(plain, outcome(WRONG[name], True))
