"""Bring your own kernel: compile and run any CUDA C++ file, from Python or `python -m kernels emulate`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels import numerals
from kernels.engines import emulator
from kernels.engines.emulator import arguments, entries, limits
from kernels.engines.emulator.arguments import Argument, Array, Struct
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Dim, Options, launch, place
from kernels.engines.emulator.machine import EmulatorError
from kernels.engines.emulator.parse import Kernel, parse
from kernels.program import RuleError

# Architectures whose PTX the emulator reads; an instruction that it lacks is an error that names the line.
ARCHITECTURES = tuple(f"sm_{n}" for n in ("75", "80", "86", "87", "89", "90", "90a"))
MOST_SOURCE = 16 * 2**20  # bytes of a file: a device such as /dev/zero never ends
STANDARDS = ("c++11", "c++14", "c++17", "c++20")
_DEFINE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(=.*)?")
_CONSTANT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """A CUDA C++ file: its text as the compiler takes it, and its lines as a reader sees them."""

    path: Path
    text: str
    lines: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Source:
        """A file in UTF-8, or in Latin-1 as old ones are. RuleError if it is no text."""
        if "\0" in str(path):
            raise RuleError(f"a file's name has no zero byte, got {str(path)!r}")
        with path.open("rb") as file:
            content = file.read(MOST_SOURCE + 1).removeprefix(b"\xef\xbb\xbf")
        if len(content) > MOST_SOURCE:
            raise RuleError(f"{path} has more than {MOST_SOURCE:,} bytes: it is no CUDA C++")
        if b"\0" in content:
            raise RuleError(f"{path} is no CUDA C++ in UTF-8 or Latin-1: it holds a zero byte")
        try:
            shown = content.decode()
        except UnicodeDecodeError:
            shown = content.decode("latin-1")
        lines = tuple(line.rstrip("\r") for line in shown.split("\n"))
        return cls(path, content.decode(errors="surrogateescape"), lines)

    def line(self, file: str, number: int) -> str:
        """A line of the source; "" for one of another file."""
        return self.lines[number - 1].rstrip() if file == self.path.name and number <= len(self.lines) else ""

    def quoted(self, message: str) -> str:
        """A message that names a line of the file, with that line below it, as compilers do."""
        at = re.search(rf"{re.escape(self.path.name)}:([0-9]+)", message)
        code = at and self.line(self.path.name, int(at[1]))
        return f"{message}\n{int(at[1]):5} | {code}" if code else message


@dataclass(frozen=True)
class Emulated:
    """What a run gave: arrays after it (by argument: arg0, arg1 ..., and by variable), counters, data races in words."""

    arrays: dict[str, np.ndarray]
    counters: Counters
    races: tuple[str, ...]
    source: Source

    def to_json(self) -> dict:
        return self.counters.to_json() | {"races": list(self.races)}

    def text(self) -> str:
        """Totals, then each line that did something with its counts."""
        out = [f"{name:22} {count:>14,}" for name, count in self.counters.total.items() if count]
        out.append("\nline   warp instr.   sectors ld / st   shared waves ld / st   source")
        for line, c in self.counters.lines.items():
            own = line.file == self.source.path.name
            code = self.source.line(line.file, line.number).strip() if own else f"({line.file})"
            out.append(
                f"{line.number:4} {c['warp_instructions']:13,} {c['sectors_ld']:8,} / {c['sectors_st']:<8,}"
                f" {c['wavefronts_ld']:8,} / {c['wavefronts_st']:<8,}  {code}"
            )
        return "\n".join([*out, *(f"warning: {race}" for race in self.races), "PTX-level counts"])


def dim(text: str) -> Dim:
    """ "4", "4,4" or "4,4,1" as (x, y, z)."""
    extents = [numerals.count(part) for part in text.split(",")]
    if not 1 <= len(extents) <= 3 or None in extents:
        raise RuleError(f"a grid or block is one to three positive whole numbers, got {text!r}")
    return tuple((*extents, 1, 1)[:3])


def emulate(
    file: Path,
    entry: str,
    grid: Dim,
    block: Dim,
    args: Sequence[str],
    *,
    shared: int = 0,
    seed: int = 0,
    defines: Sequence[str] = (),
    folders: Sequence[str] = (),
    arch: str = "sm_80",
    standard: str = "c++17",
    constants: Sequence[str] = (),
    out: Path | None = None,
) -> Emulated:
    """Compile `file` and run its kernel `entry`, a name of C++: "naive", "ns::naive", "sgemm<16, float>".

    args: a text for each parameter, in a form of arguments.FORMS. constants: "NAME=ARG" for each `__constant__` or
    `__device__` variable to be written before the launch. shared: bytes of dynamic shared memory. defines: "NAME" or
    "NAME=VALUE". folders: more places of headers. out: a folder; each array is written there as .npy after the run.
    Raises RuleError (CompileError with the compiler's words, EmulatorError with line, thread and block), OSError.
    """
    limits.check_grid(grid, block)
    emulator.check_threads(entry, grid, block)
    given = {f"arg{n}": arguments.parse(text) for n, text in enumerate(args)}
    variables = dict(_constant(text) for text in constants)
    rng = _generator(seed)
    source = Source.read(Path(file))
    options = _options(source.path, defines, folders, arch, standard)
    ptx, name, lowered = entries.compile_entry(
        source.text, os.path.abspath(file), options, entry, [*variables]
    )
    kernel = parse(ptx, name)
    limits.check_shared(kernel, shared)
    _check_arguments(kernel, entry, given)
    _check_variables(kernel, lowered, variables)
    _check_memory(kernel, math.prod(grid), math.prod(block), shared, (given | variables).values())
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)

    # A variable's own array is its content; arrays in structs are buffers that they point to.
    pointed = given | {n: value for n, value in variables.items() if isinstance(value, Struct)}
    buffers = dict(pair for n, value in pointed.items() for pair in arguments.arrays(n, value))
    memory = place(
        {n: array.values(rng) for n, array in buffers.items()},
        [n for n, array in buffers.items() if array.fill != "empty"],
    )
    before = {n: _content(value, rng) for n, value in variables.items() if n not in pointed}
    for n, value in variables.items():
        content = before[n].tobytes() if n in before else arguments.packed(n, value, memory.address)
        memory.add(lowered[n], len(content), content)
    handed = [np.void(arguments.packed(n, value, memory.address)) for n, value in given.items()]
    try:
        run = launch(ptx, name, grid, block, handed, memory, shared, Options(races=True), name=entry)
    except EmulatorError as e:
        raise EmulatorError(source.quoted(str(e))) from None
    after = {n: memory.array(n) for n in buffers} | {
        n: memory.array(lowered[n]).view(value.dtype).reshape(value.shape) for n, value in before.items()
    }
    if out is not None:
        for n, array in after.items():
            np.save(Path(out) / f"{n.replace('::', '.')}.npy", array)
    return Emulated(after, run.counters, tuple(map(source.quoted, run.races)), source)


def _generator(seed: int) -> np.random.Generator:
    if not isinstance(seed, int) or seed < 0:
        raise RuleError(f"a seed is a whole number, 0 or more, got {seed!r}")
    return np.random.default_rng(seed)


def _content(value: Array | np.generic, rng: np.random.Generator) -> np.ndarray:
    """What is written into a variable."""
    return value.values(rng) if isinstance(value, Array) else np.asarray(value)


def _constant(text: str) -> tuple[str, Argument]:
    """A variable's name and value."""
    found = _CONSTANT.fullmatch(text)
    if not found:
        raise RuleError(f"a constant is NAME=ARG, such as mask=f32:9:ones, got {text!r}")
    return found[1], arguments.parse(found[2])


def _options(
    file: Path, defines: Sequence[str], folders: Sequence[str], arch: str, standard: str
) -> tuple[str, ...]:
    """The compiler's options; the file's own folder is the last that is searched for <headers>."""
    for text in defines:
        if not _DEFINE.fullmatch(text):
            raise RuleError(f"a define is NAME or NAME=VALUE, got {text!r}")
    for folder in folders:
        if not Path(folder).is_dir():
            raise RuleError(f"-I names a folder; there is none called {str(folder)!r}")
    target = str(arch).replace("compute_", "sm_", 1)
    if target not in ARCHITECTURES:
        raise RuleError(f"the emulator reads the PTX of {', '.join(ARCHITECTURES)}, not of {arch!r}")
    if standard not in STANDARDS:
        raise RuleError(f"the standard is one of {', '.join(STANDARDS)}, got {standard!r}")
    places = [*folders, file.parent]
    return (
        f"--std={standard}",
        f"--gpu-architecture={target.replace('sm_', 'compute_')}",
        "-lineinfo",
        *(f"-D{text}" for text in defines),
        *(f"-I{os.path.abspath(place)}" for place in places),
    )


def _check_arguments(kernel: Kernel, entry: str, given: Mapping[str, Argument]) -> None:
    """RuleError if an argument is not what the kernel's parameter takes."""
    if len(given) != len(kernel.params):
        raise RuleError(f"{entry} takes {len(kernel.params)} arguments, got {len(given)}")
    for (name, value), p in zip(given.items(), kernel.params, strict=True):
        size = arguments.size(value)
        what = "an array, which is a pointer" if isinstance(value, Array) else f"{size} bytes wide"
        if size != p.size:
            raise RuleError(f"{entry}: parameter {name[3:]} is {p.size} bytes wide, {name} is {what}")
        if p.align > arguments.alignment(value):
            raise RuleError(
                f"{entry}: parameter {name[3:]} is aligned to {p.align} bytes, {name} to "
                f"{arguments.alignment(value)}: write struct{p.align}{{...}}"
            )
        if isinstance(value, np.generic) and p.dtype[:1] in "fsu":
            floating = p.dtype.startswith("f")
            if floating == (value.dtype.kind in "iub"):
                kinds = ("a floating-point number", "a whole number")
                raise RuleError(
                    f"{entry}: parameter {name[3:]} is {kinds[not floating]}, {name} is {kinds[floating]}"
                )


def _check_variables(kernel: Kernel, lowered: Mapping[str, str], given: Mapping[str, Argument]) -> None:
    """RuleError if a value is not as large as its variable."""
    sizes = {v.name: v.size for v in kernel.variables}
    for name, value in given.items():
        size = value.nbytes if isinstance(value, Array) else arguments.size(value)
        if size != sizes.get(lowered[name], 0):
            raise RuleError(
                f"the variable {name} holds {sizes.get(lowered[name], 0):,} bytes, its value {size:,}"
            )


def _check_memory(kernel: Kernel, blocks: int, threads: int, shared: int, given: Iterable[Argument]) -> None:
    """RuleError, before any is taken, if a run needs more of the host's memory than is free."""
    arrays = [array for value in given for _, array in arguments.arrays("", value)]
    of = {space: sum(v.size for v in kernel.variables if v.space == space) for space in ("shared", "local")}
    # The emulator keeps a state beside each byte.
    need = arguments.total_bytes(arrays) + 2 * blocks * (of["shared"] + shared + threads * of["local"])
    free = emulator.free_bytes()
    if need > free:
        raise RuleError(
            f"this launch needs {need:,} bytes of the host's memory, {free:,} bytes are free; "
            "take smaller arrays or a smaller grid"
        )
