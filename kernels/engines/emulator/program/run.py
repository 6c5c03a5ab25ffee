"""Run a whole program: compile its file, run main(), and return what it printed and what its launches did."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels.engines.emulator.compiler.compile import compile_unit
from kernels.engines.emulator.compiler.source import Source, options
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, launch
from kernels.engines.emulator.memory import GLOBAL_BASE, Global
from kernels.engines.emulator.program.libraries import RUNTIME
from kernels.engines.emulator.program.runtime import Exit, Launched, Runtime

ENTRY = "host_program"
SECONDS = 120.0  # of processor time that a loop of the host or a launch may take
_BEFORE = "#define main __noinline__ host_main\n"
_AFTER = """
#undef main
template <class F> __device__ auto host_call(F* f, int n, char** values) -> decltype(f(n, values)) { return f(n, values); }
template <class F> __device__ auto host_call(F* f, int n, char** values) -> decltype(f()) { return f(); }
extern "C" __global__ void host_program(int* status, int n, char** values) { *status = host_call(host_main, n, values); }
"""


@dataclass(frozen=True)
class Ended:
    """The outcome of a program: what it printed, its exit status, its launches, and notes about its calls of the runtime."""

    status: int
    printed: bytes
    launches: tuple[Launched, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict:
        return {
            "status": self.status,
            "printed": self.printed.decode("utf-8", "replace"),
            "launches": [each.to_json() for each in self.launches],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Returns a line for each launch, then what is wrong. What the program printed is not repeated."""
        out = (
            [f"{'launch':32} {'grid':>14} {'block':>14} {'warp instr.':>12} {'sectors ld / st':>20}"]
            if self.launches
            else []
        )
        for each in self.launches:
            total = each.counters.total
            sizes = (" x ".join(str(n) for n in extents if n > 1) or "1" for extents in (each.grid, each.block))
            grid, block = sizes
            sectors = f"{total['sectors_ld']:,} / {total['sectors_st']:,}"
            out.append(
                f"{each.kernel:32} {grid:>14} {block:>14} {total['warp_instructions']:12,} {sectors:>20}  {each.line}"
            )
        for each in self.launches:
            out += [f"warning: {message}" for message in (*each.races, *each.warnings)]
            out += [f"note: {message}" for message in each.notes]
        out += [f"note: {message}" for message in self.notes]
        return "\n".join(dict.fromkeys(out))


def run(
    file: Path,
    arguments: Sequence[str] = (),
    *,
    defines: Sequence[str] = (),
    folders: Sequence[str] = (),
    arch: str = "sm_80",
    standard: str = "c++17",
    seconds: float = SECONDS,
    write: Callable[[bytes], object] = lambda text: None,
) -> Ended:
    """Run the program in `file` with these arguments. `write` gets the bytes that it prints as it prints them.

    RuleError: CompileError with the compiler's message, EmulatorError with line, thread and block. OSError.
    """
    source = Source.read(Path(file))
    path = os.path.abspath(file)
    text = f'{_BEFORE}#line 1 "{path}"\n{source.text}\n{_AFTER}'
    compiler = (
        *options(source.path, defines, folders, arch, standard),
        "--device-as-default-execution-space",
        f"--pre-include={RUNTIME}",
    )
    ptx = compile_unit(text, path, compiler).ptx
    printed: list[bytes] = []

    def both(text: bytes) -> None:
        printed.append(text)
        write(text)

    memory = Global({"status": np.zeros(1, np.int32)}, [])
    words = [
        memory.add(f"argument {n}", len(word) + 1, word + b"\0")
        for n, word in enumerate(map(os.fsencode, [file, *arguments]))
    ]
    vector = np.array([GLOBAL_BASE + at for at in words] + [0], np.uint64)
    table = memory.add("arguments", vector.nbytes, vector.tobytes())
    runtime = Runtime(ptx, ENTRY, source, memory, Options(races=True, numbers=True, seconds=seconds), both)
    args = ["status", np.int32(len(words)), np.uint64(GLOBAL_BASE + table)]
    try:
        launch(
            ptx,
            ENTRY,
            (1, 1, 1),
            (1, 1, 1),
            args,
            memory,
            0,
            Options(count=False, seconds=seconds),
            name="main",
            host=runtime,
        )
        status = int(memory.array("status")[0]) & 0xFF
    except Exit as ended:
        status = ended.status & 0xFF
    except EmulatorError as error:
        raise EmulatorError(source.quoted(str(error))) from None
    return Ended(status, b"".join(printed), tuple(runtime.launches), tuple(runtime.notes))
