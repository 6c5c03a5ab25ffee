"""PTX of the project's kernels: checked in at their default tile sizes and with each other choice once,
compiled where it is not.

Each file begins with a comment: the digest of source and options it was made from, and what ptxas says
of the kernel for sm_90. `python -m kernels ptx` writes them all; a test compiles them anew and compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels import cuda
from kernels.engines.emulator import compile
from kernels.ladders import LADDERS
from kernels.program import Ladder, Launch, Rung, Tiles

FOLDER = Path(__file__).parent / "ptx"
HEAD = "// kernel-theatre "
Defines = tuple[tuple[str, int], ...]


def options(defines: Defines) -> tuple[str, ...]:
    return (*compile.OPTIONS, *(f"-D{name}={value}" for name, value in defines))


def path(source: str, defines: Defines) -> Path:
    """Where the PTX of a source with its defines lies: ptx/conv/03_gemm.TILE16.ptx"""
    tail = "".join(f".{name}{value}" for name, value in defines)
    return FOLDER / f"{source.removesuffix('.cu')}{tail}.ptx"


def ptx(source: str, defines: Defines) -> str:
    """PTX of a project's source. CompilerMissing names what is there where nothing fits and NVRTC is missing."""
    text = cuda.translation_unit(source)
    file = path(source, defines)
    if file.exists() and head(file)["digest"] == compile.digest(text, options(defines)):
        return file.read_text(encoding="utf-8")
    try:
        return compile.compile_ptx(text, source.rpartition("/")[2], options(defines))
    except compile.CompilerMissing as e:
        there = ", ".join(sorted(p.name for p in file.parent.glob(f"{Path(source).stem}*.ptx"))) or "nothing"
        wanted = ", ".join(f"{name}={value}" for name, value in defines) or "no defines"
        raise compile.CompilerMissing(
            f"{source} with {wanted} is not among the compiled kernels ({there}): {e}"
        ) from None


def head(file: Path) -> dict:
    """The first line of a checked-in file: digest, compiler, resources."""
    with file.open(encoding="utf-8") as lines:
        return json.loads(lines.readline().removeprefix(HEAD))


def resources(source: str, defines: Defines) -> dict | None:
    """registers, shared_bytes, spill_bytes of a kernel on sm_90 as ptxas reports; None where unknown."""
    file = path(source, defines)
    return head(file)["resources"] if file.exists() else None


def kernels() -> Iterator[tuple[str, str, Defines]]:
    """(source, entry, defines) of every kernel of every rung at every preset at the usual tile sizes, and at those of
    Rung.tile_sets at the first preset for each type of data and each chain of kernels that it takes."""
    steps = (
        step
        for ladder in LADDERS.values()
        for rung in ladder.rungs
        for shape, tiles in _settings(ladder, rung)
        for step in rung.build(shape, tiles).steps
        if isinstance(step, Launch)
    )
    yield from dict.fromkeys((step.source, step.entry, step.defines) for step in steps)


def _settings(ladder: Ladder, rung: Rung) -> Iterator[tuple[Any, Tiles]]:
    seen: set[tuple] = set()
    for preset in ladder.presets.values():
        shape, tiles = preset.shape, rung.default_tiles
        if any(rung.rules(shape, tiles)):
            continue
        yield shape, tiles
        program = rung.build(shape, tiles)
        types = tuple(b.dtype for b in program.buffers)
        sources = tuple(step.source for step in program.steps if isinstance(step, Launch))
        if (types, sources) not in seen:
            seen.add((types, sources))
            yield from ((shape, other) for other in rung.tile_sets(shape))


def build(source: str, defines: Defines) -> str:
    """The content of a checked-in file: its head and the PTX."""
    text = cuda.translation_unit(source)
    head_ = {
        "digest": compile.digest(text, options(defines)),
        "nvrtc": compile.version(),
        "resources": _resources(compile.ptxas_log(text, source.rpartition("/")[2], defines)),
    }
    return (
        f"{HEAD}{json.dumps(head_)}\n{compile.compile_ptx(text, source.rpartition('/')[2], options(defines))}"
    )


def write_all() -> list[Path]:
    """Write every file anew; the paths written."""
    written = []
    for source, _, defines in kernels():
        file = path(source, defines)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(build(source, defines), encoding="utf-8")
        written.append(file)
    return written


def _resources(log: str) -> dict[str, int]:
    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    return {
        "registers": number(r"Used (\d+) registers"),
        "shared_bytes": number(r"(\d+) bytes smem"),
        "spill_bytes": number(r"(\d+) bytes spill stores"),
    }
