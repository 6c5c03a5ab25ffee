"""PTX of the project's kernels: checked in at their default tile sizes and with each other choice once,
compiled where it is not.

`python -m kernels ptx` writes the archives anew (ptx_archive); a test compiles every kernel and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels import cuda
from kernels.engines.emulator import compile, ptx_archive
from kernels.engines.emulator.ptx_archive import Compiled
from kernels.ladders import LADDERS
from kernels.program import Ladder, Launch, Rung, Tiles

FOLDER = Path(__file__).parent / "ptx"
Defines = tuple[tuple[str, int], ...]


def options(defines: Defines) -> tuple[str, ...]:
    return (*compile.OPTIONS, *(f"-D{name}={value}" for name, value in defines))


def place(source: str, defines: Defines) -> tuple[str, str]:
    """The archive and the name in it of a source with its defines: ("conv", "03_gemm.TILE16")."""
    topic, _, file = source.removesuffix(".cu").rpartition("/")
    return topic, "".join((file, *(f".{name}{value}" for name, value in defines)))


def ptx(source: str, defines: Defines) -> str:
    """PTX of a project's source. CompilerMissing lists what is precompiled where nothing fits and NVRTC is missing."""
    text = cuda.translation_unit(source)
    topic, name = place(source, defines)
    listed = ptx_archive.listed(FOLDER, topic)
    if name in listed and listed[name]["digest"] == compile.digest(text, options(defines)):
        return ptx_archive.read(FOLDER, topic, name)
    try:
        return compile.compile_ptx(text, source.rpartition("/")[2], options(defines))
    except compile.CompilerMissing as e:
        stem = place(source, ())[1]
        there = ", ".join(other for other in listed if other.partition(".")[0] == stem) or "nothing"
        wanted = ", ".join(f"{name}={value}" for name, value in defines) or "no defines"
        raise compile.CompilerMissing(
            f"{source} with {wanted} is not among the compiled kernels ({there}): {e}"
        ) from None


def resources(source: str, defines: Defines) -> dict[str, int] | None:
    """registers, shared_bytes, spill_bytes of a kernel on sm_90 as ptxas reports; None if it was not compiled ahead."""
    topic, name = place(source, defines)
    found = ptx_archive.listed(FOLDER, topic).get(name)
    return found and {field: count for field, count in found.items() if field != "digest"}


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


def build(source: str, defines: Defines) -> Compiled:
    """A source compiled now."""
    text = cuda.translation_unit(source)
    return Compiled(
        compile.compile_ptx(text, source.rpartition("/")[2], options(defines)),
        compile.digest(text, options(defines)),
        ptxas_resources(compile.ptxas_log(text, source.rpartition("/")[2], defines)),
    )


def write_all() -> list[Path]:
    """Write every archive anew; the paths written."""
    topics: dict[str, dict[str, Compiled]] = {}
    for source, _, defines in kernels():
        topic, name = place(source, defines)
        topics.setdefault(topic, {})[name] = build(source, defines)
    version = compile.version() or ""
    return [
        path for topic, built in topics.items() for path in ptx_archive.write(FOLDER, topic, version, built)
    ]


def ptxas_resources(log: str) -> dict[str, int]:
    """registers, shared_bytes, spill_bytes in what ptxas printed of a kernel."""

    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    return {
        "registers": number(r"Used (\d+) registers"),
        "shared_bytes": number(r"(\d+) bytes smem"),
        "spill_bytes": number(r"(\d+) bytes spill stores"),
    }
