"""Bring your own kernel: compile and run any CUDA C++ file, from Python or `python -m kernels emulate`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from kernels.engines.emulator import compile
from kernels.engines.emulator.counters import Counters
from kernels.engines.emulator.launch import Dim, Options, launch, place
from kernels.engines.emulator.machine import EmulatorError
from kernels.engines.emulator.runtime_functions import PRINT_BUFFER, Printed
from kernels.program import RuleError

DTYPES = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "u8": np.uint8, "i16": np.int16,
    "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
}  # fmt: skip
FILLS = ("random", "zeros", "ones", "arange", "empty")
LAST_PRINTED = 20  # lines shown with an error
FORM = "TYPE:EXTENTS:FILL for an array (f32:64x64:random) or TYPE:VALUE (i32:64)"


@dataclass(frozen=True)
class Emulated:
    """What a run gave: arrays after it (by argument: arg0, arg1 ...), counters, data races in words, and the lines
    its threads printed."""

    arrays: dict[str, np.ndarray]
    counters: Counters
    races: tuple[str, ...]
    source: tuple[str, ...]  # the file's lines
    printed: tuple[Printed, ...] = ()  # by the kernel's printf
    unprinted: int = 0  # calls of printf whose text was not kept

    def to_json(self) -> dict:
        return self.counters.to_json() | {
            "races": list(self.races),
            "printed": [asdict(line) for line in self.printed],
            "unprinted": self.unprinted,
        }

    def text(self) -> str:
        """Totals, then each line that did something with its counts, then what threads printed."""
        out = [f"{name:22} {count:>14,}" for name, count in self.counters.total.items() if count]
        out.append("\nline   warp instr.   sectors ld / st   shared waves ld / st   source")
        for line, c in self.counters.lines.items():
            code = self.source[line.number - 1].strip() if line.number <= len(self.source) else ""
            out.append(
                f"{line.number:4} {c['warp_instructions']:13,} {c['sectors_ld']:8,} / {c['sectors_st']:<8,}"
                f" {c['wavefronts_ld']:8,} / {c['wavefronts_st']:<8,}  {code}"
            )
        out += [f"warning: {race}" for race in self.races]
        return "\n".join([*out, "PTX-level counts", *self._prints()])

    def _prints(self) -> Iterator[str]:
        if self.printed:
            yield "\nprinted by"
        yield from map(str, self.printed)
        if self.unprinted:
            yield f"The first {PRINT_BUFFER:,} bytes are kept. {self.unprinted:,} later calls of printf are left out."


def dim(text: str) -> Dim:
    """ "4", "4,4" or "4,4,1" as (x, y, z)."""
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(p.strip().isdigit() and int(p) > 0 for p in parts):
        raise RuleError(f"a grid or block is one to three positive whole numbers, got {text!r}")
    return tuple(int(p) for p in (*parts, "1", "1")[:3])


def argument(text: str, rng: np.random.Generator) -> np.ndarray | np.generic:
    """An array or a scalar from its description."""
    type_, _, rest = text.partition(":")
    if type_ not in DTYPES or not rest:
        raise RuleError(f"an argument is {FORM}, TYPE among {', '.join(DTYPES)}; got {text!r}")
    dtype = DTYPES[type_]
    extents, colon, fill = rest.partition(":")
    if not colon:
        try:
            return dtype(float(rest) if type_.startswith("f") else int(rest, 0))
        except (ValueError, OverflowError):
            raise RuleError(f"{rest!r} is no value of {type_}") from None
    sizes = [p for p in extents.split("x") if p]
    if not sizes or not all(p.isdigit() and int(p) > 0 for p in sizes) or fill not in FILLS:
        raise RuleError(f"an array is TYPE:EXTENTS:FILL, FILL among {', '.join(FILLS)}; got {text!r}")
    return _filled(tuple(map(int, sizes)), np.dtype(dtype), fill, rng)


def _filled(shape: tuple[int, ...], dtype: np.dtype, fill: str, rng: np.random.Generator) -> np.ndarray:
    if fill == "random":
        if dtype.kind == "f":
            return rng.standard_normal(shape).astype(dtype)
        return rng.integers(0, min(100, np.iinfo(dtype).max), shape).astype(dtype)
    if fill == "arange":
        return np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    return (np.ones if fill == "ones" else np.zeros)(shape, dtype)


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
    out: Path | None = None,
) -> Emulated:
    """Compile `file` and run its kernel `entry`. Array arguments marked "empty" may not be read before
    the kernel has written them; `out` gets each array as .npy after the run.

    Raises RuleError (CompileError with the compiler's words, EmulatorError with line, thread and block).
    """
    rng = np.random.default_rng(seed)
    given = {f"arg{n}": argument(text, rng) for n, text in enumerate(args)}
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    written = [f"arg{n}" for n, text in enumerate(args) if not text.endswith(":empty")]
    for text in defines:
        if not re.fullmatch(r"[A-Za-z_]\w*(=.*)?", text):
            raise RuleError(f"a define is NAME or NAME=VALUE, got {text!r}")
    _check_block(block)
    text = file.read_text(encoding="utf-8")
    options = (*compile.OPTIONS, *(f"-D{d}" for d in defines), f"-I{file.resolve().parent}")
    ptx = compile.compile_ptx(text, file.name, options)
    memory = place(arrays, written)
    lines = text.splitlines()
    try:
        run = launch(
            ptx, entry, grid, block, [n if n in arrays else v for n, v in given.items()], memory, shared,
            Options(races=True), name=entry,
        )  # fmt: skip
    except EmulatorError as e:
        raise EmulatorError(_with_source(str(e), file.name, lines) + _before(e)) from None
    after = {name: memory.array(name) for name in arrays}
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for name, array in after.items():
            np.save(out / f"{name}.npy", array)
    races = tuple(_with_source(race, file.name, lines) for race in run.races)
    return Emulated(after, run.counters, races, tuple(lines), run.printed, run.unprinted)


def _before(e: EmulatorError) -> str:
    """What the kernel printed before an error: the last lines."""
    lines = [str(line) for line in e.printed[-LAST_PRINTED:]]
    return "\n".join(["\nprinted before, the last lines:", *lines]) if lines else ""


def _with_source(message: str, name: str, lines: Sequence[str]) -> str:
    """A message that names a line of the file, with that line below it, as compilers do."""
    at = re.search(rf"{re.escape(name)}:(\d+)", message)
    if not at or int(at[1]) > len(lines):
        return message
    return f"{message}\n{int(at[1]):5} | {lines[int(at[1]) - 1].rstrip()}"


def _check_block(block: Dim) -> None:
    """CUDA's limits on a block."""
    if int(np.prod(block)) > 1024 or block[2] > 64:
        raise RuleError(f"a block has at most 1,024 threads and 64 along z, got {block}")
