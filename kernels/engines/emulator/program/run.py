"""Run a whole program: compile its file, run main(), and return what it printed and what its launches did."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
_BEFORE = "#define main host_main\n"
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
        launches = [
            {
                "kernel": l.kernel,
                "line": l.line,
                "grid": l.grid,
                "block": l.block,
                "shared": l.shared,
                "races": l.races,
                "warnings": l.warnings,
                "notes": l.notes,
            }
            | l.counters.to_json()
            for l in self.launches
        ]
        return {
            "status": self.status,
            "printed": self.printed.decode("utf-8", "replace"),
            "launches": launches,
            "notes": self.notes,
        }


def run(
    file: Path,
    arguments: Sequence[str] = (),
    *,
    defines: Sequence[str] = (),
    folders: Sequence[str] = (),
    arch: str = "sm_80",
    standard: str = "c++17",
    seconds: float = SECONDS,
    write=lambda text: None,
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
    runtime = Runtime(ptx, ENTRY, memory, Options(races=True, numbers=True, seconds=seconds), both)
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
