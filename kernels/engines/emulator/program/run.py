"""Run a whole program: compile its file, run main() or solve(), and return what it printed and what its launches did."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels.engines.emulator import arguments as kernel_arguments
from kernels.engines.emulator import comparison, parameters, user_kernel
from kernels.engines.emulator.comparison import Compared
from kernels.engines.emulator.compiler import entries
from kernels.engines.emulator.compiler.compile import compile_unit
from kernels.engines.emulator.compiler.source import Source, options
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.launch import Options, launch
from kernels.engines.emulator.memory import GLOBAL_BASE, Global
from kernels.engines.emulator.program.libraries import RUNTIME
from kernels.engines.emulator.program.runtime import Exit, Launched, Runtime
from kernels.engines.emulator.ptx.parse import parse
from kernels.model.program import Arg

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
    compared: Compared | None = None

    def to_json(self) -> dict:
        return {
            "check": self.compared and {"right": self.compared.right, "text": self.compared.text},
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
        out += [self.compared.text] if self.compared else []
        return "\n".join(dict.fromkeys(out))


@dataclass(frozen=True)
class HostProgram:
    """A program's file, the options that it is compiled with, and what gets the bytes that it prints."""

    source: Source
    compiler: tuple[str, ...]
    seconds: float
    write: Callable[[bytes], object]

    @classmethod
    def read(
        cls, file: Path, defines: Sequence[str], folders: Sequence[str], arch: str, standard: str, seconds, write
    ) -> HostProgram:
        source = Source.read(Path(file))
        compiler = options(source.path, defines, folders, arch, standard)
        return cls(
            source, (*compiler, "--device-as-default-execution-space", f"--pre-include={RUNTIME}"), seconds, write
        )

    @property
    def path(self) -> str:
        return os.path.abspath(self.source.path)

    def between(self, before: str, after: str) -> str:
        """Returns the file's text between others. Its first line is line 1."""
        return f'{before}#line 1 "{self.path}"\n{self.source.text}\n{after}'

    def solution(self) -> tuple[str, str, Mapping[str, str]]:
        """Returns the PTX of the file with its function solve() as an entry, the entry's name, and variables' names in PTX."""
        return entries.compile_entry(
            self.between("#define solve __global__ solve\n", ""), self.path, self.compiler, "solve"
        )

    def execute(
        self, ptx: str, entry: str, name: str, args: Sequence[Arg], memory: Global
    ) -> tuple[int, Runtime, bytes]:
        """Runs host code. Returns the status of exit(), else 0; the runtime after the run; what was printed."""
        printed: list[bytes] = []

        def write(text: bytes) -> None:
            printed.append(text)
            self.write(text)

        runtime = Runtime(
            ptx, entry, self.source, memory, Options(races=True, numbers=True, seconds=self.seconds), write
        )
        one, status = (1, 1, 1), 0
        try:
            launch(ptx, entry, one, one, args, memory, 0, Options(count=False, seconds=self.seconds), name, runtime)
        except Exit as ended:
            status = ended.status
        except EmulatorError as error:
            raise EmulatorError(self.source.quoted(str(error))) from None
        return status, runtime, b"".join(printed)


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
    program = HostProgram.read(file, defines, folders, arch, standard, seconds, write)
    ptx = compile_unit(program.between(_BEFORE, _AFTER), program.path, program.compiler).ptx
    memory = Global({"status": np.zeros(1, np.int32)}, ["status"])
    words = [os.fsencode(word) + b"\0" for word in (file, *arguments)]
    places = [GLOBAL_BASE + memory.add(f"argument {n}", len(word), word) for n, word in enumerate(words)]
    table = np.array([*places, 0], np.uint64)
    values = GLOBAL_BASE + memory.add("arguments", table.nbytes, table.tobytes())
    args = ["status", np.int32(len(words)), np.uint64(values)]
    status, runtime, printed = program.execute(ptx, ENTRY, "main", args, memory)
    status = (status or int(memory.array("status")[0])) & 0xFF
    return Ended(status, printed, tuple(runtime.launches), tuple(runtime.notes))


def solve(
    file: Path,
    args: Sequence[str],
    *,
    check: str = "",
    tolerance: float | None = None,
    seed: int = 0,
    defines: Sequence[str] = (),
    folders: Sequence[str] = (),
    arch: str = "sm_80",
    standard: str = "c++17",
    seconds: float = SECONDS,
    write: Callable[[bytes], object] = lambda text: None,
) -> Ended:
    """Run the function `solve` of a file without main(), as judges call it: its arrays are in the device's memory.

    args, check, tolerance, seed: as of user_kernel.emulate. Raises the errors of run.
    """
    program = HostProgram.read(file, defines, folders, arch, standard, seconds, write)
    values = {f"arg{n}": kernel_arguments.parse(text) for n, text in enumerate(args)}
    checked = comparison.parse(check, values, tolerance) if check else None
    ptx, entry, lowered = program.solution()
    parameters.check_arguments(parse(ptx, entry), "solve", values)
    memory, locations = user_kernel.fill_memory(values, {}, lowered, np.random.default_rng(seed))
    memory.owners |= dict.fromkeys(locations, "device")
    before = {name: memory.array(name) if name in locations else value for name, value in values.items()}
    want = comparison.expected(checked, before) if checked else np.zeros(0)
    packed = [np.void(parameters.packed(name, value, memory.address)) for name, value in values.items()]
    status, runtime, printed = program.execute(ptx, entry, "solve", packed, memory)
    compared = None
    if checked:
        unwritten = runtime.unwritten(checked.name)
        got = memory.array(checked.name)
        compared = comparison.compare(checked, got, want, unwritten.reshape(got.shape))
    return Ended(status & 0xFF, printed, tuple(runtime.launches), tuple(runtime.notes), compared)
