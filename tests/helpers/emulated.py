"""Runs small CUDA kernels in the emulator, for the emulator's tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zipfile import ZipFile

import numpy as np
import pytest

from kernels import sources
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler.compile import OPTIONS, compile_ptx, ptxas_log, version
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Options, device_memory, launch
from kernels.engines.emulator.memory import Global
from kernels.engines.emulator.printer import Printed
from kernels.engines.emulator.trace import BlockTrace
from kernels.model.program import Arg
from kernels.precompile import ptxas_resources

needs_nvrtc = pytest.mark.skipif(
    version() is None, reason="NVRTC is not installed here (its wheel is for Linux and Windows)"
)
NAME = "kernel.cu"


@dataclass(frozen=True)
class Outcome:
    memory: Global
    counters: Counters | None
    races: tuple[str, ...]
    trace: BlockTrace | None
    printed: tuple[Printed, ...]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.memory.array(name)

    @property
    def total(self) -> dict[str, int]:
        return self.counters.total

    def at(self, line: int) -> dict[str, int]:
        """Returns the counts of one line of the CUDA source."""
        return next(c for place, c in self.counters.lines.items() if (place.file, place.number) == (NAME, line))


def _dim3(n: int | Sequence[int]) -> tuple[int, int, int]:
    return (n, 1, 1) if isinstance(n, int) else (*n, *(1,) * (3 - len(n)))


def emulate(
    source: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, tuple] | None = None,
    *,
    args: Sequence[Arg] | None = None,
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] = 32,
    shared: int = 0,
    entry: str = "",
    compiler: Sequence[str] = OPTIONS,
    **options,
) -> Outcome:
    """Runs the first kernel of `source` and returns its results.

    `outputs` are (shape, dtype) and uninitialised. The kernel's arguments are `args`; without them the outputs and then
    the inputs, in their order. `compiler`: the compiler's options.
    """
    outputs = outputs or {}
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    arrays |= {name: np.zeros(shape, dtype) for name, (shape, dtype) in outputs.items()}
    memory = device_memory(arrays, list(inputs))
    entry = entry or re.search(r"__global__\s+void\s+(\w+)", source)[1]
    arguments = [*outputs, *inputs] if args is None else args
    run = launch(
        compile_ptx(source, NAME, compiler),
        entry,
        _dim3(grid),
        _dim3(block),
        arguments,
        memory,
        shared,
        Options(**options),
    )
    return Outcome(memory, run.counters, run.races, run.trace, run.printed)


def elementwise(
    expressions: Mapping[str, tuple[str, type]],
    inputs: Mapping[str, tuple[str, np.ndarray]],
    prelude: str = "",
    statement: str = "",
) -> dict[str, np.ndarray]:
    """Returns the values of C++ expressions of the inputs, element by element.

    `expressions` are {name: (C++ expression, dtype of the result)}, `inputs` {name: (C++ type, values)}. The number of
    threads need not equal that of elements: every test includes a partial last warp.
    """
    n = len(next(iter(inputs.values()))[1])
    c_type = {
        np.int8: "signed char",
        np.uint8: "unsigned char",
        np.int16: "short",
        np.uint16: "unsigned short",
        np.int32: "int",
        np.uint32: "unsigned",
        np.int64: "long long",
        np.uint64: "unsigned long long",
        np.float32: "float",
        np.float64: "double",
        np.float16: "__half",
    }
    params = [f"{c_type[dtype]}* {name}_" for name, (_, dtype) in expressions.items()]
    params += [f"const {type_}* {name}_in" for name, (type_, _) in inputs.items()]
    body = [f"{type_} {name} = {name}_in[i];" for name, (type_, _) in inputs.items()]
    body += [statement]
    body += [f"{name}_[i] = {text};" for name, (text, _) in expressions.items()]
    source = (
        f'{prelude}\nextern "C" __global__ void each({", ".join(params)}, int elements) {{\n'
        "int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i >= elements) return;\n" + "\n".join(body) + "\n}\n"
    )
    run = emulate(
        source,
        {f"{name} in": values for name, (_, values) in inputs.items()},
        {name: ((n,), dtype) for name, (_, dtype) in expressions.items()},
        args=[*expressions, *(f"{name} in" for name in inputs), np.int32(n)],
        grid=-(-n // 96),
        block=96,
    )
    return {name: run[name] for name in expressions}


def archived(topic: str) -> dict[str, int]:
    """Returns the compressed bytes of each kernel in the PTX archive of a topic, by name."""
    with ZipFile(precompiled.FOLDER / topic / "ptx.zip") as file:
        return {info.filename.removesuffix(".ptx"): info.compress_size for info in file.infolist()}


def resources(source: str, defines: precompiled.Defines) -> dict[str, int]:
    """Returns registers, shared_bytes and spill_bytes of a kernel on sm_90 or sm_90a, from ptxas.

    A precompiled kernel is not compiled again: a test compares the digests of its list with today's sources.
    """
    listed = precompiled.resources(source, defines)
    if listed:
        return listed
    text, only_hopper = sources.translation_unit(source), sources.needs_hopper(source)
    return ptxas_resources(ptxas_log(text, source, defines, only_hopper))
