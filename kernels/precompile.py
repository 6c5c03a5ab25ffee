"""Compile the kernels of every rung ahead of time: python -m kernels ptx [TOPIC ...] writes the archives that
kernels.engines.emulator.precompiled reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from kernels import sources
from kernels.collectives import kernels as collectives
from kernels.engines.emulator import ptx_archive
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.precompiled import FOLDER, Defines, archive_entry, options
from kernels.engines.emulator.ptx_archive import Compiled
from kernels.engines.emulator.watch import build as watch
from kernels.ladders import LADDERS
from kernels.model.program import Launch, RuleError, Tiles
from kernels.model.rung import Ladder, Rung
from kernels.model.shape import Shape


def kernels() -> Iterator[tuple[str, str, Defines]]:
    """Yields (source, entry, defines) of every kernel that is compiled ahead: of every rung at every preset with the
    default tile sizes. The tile sizes of Rung.tile_sets are added once for each element type and sequence of kernels,
    at the first preset that has them. The kernels of several GPUs follow."""
    steps = (
        step
        for ladder in LADDERS.values()
        for rung in ladder.rungs
        for shape, tiles in _settings(ladder, rung)
        for step in rung.build(shape, tiles).steps
        if isinstance(step, Launch)
    )
    yield from dict.fromkeys((step.source, step.entry, step.defines) for step in steps)
    yield from collectives.compiled()


def _settings(ladder: Ladder, rung: Rung) -> Iterator[tuple[Shape, Tiles]]:
    seen: set[tuple] = set()
    for preset in ladder.presets.values():
        shape, tiles = preset.shape, rung.default_tiles
        if any(rung.rules(shape, tiles)):
            continue
        yield shape, tiles
        program = rung.build(shape, tiles)
        types = tuple(b.dtype for b in program.buffers)
        files = tuple(step.source for step in program.steps if isinstance(step, Launch))
        if (types, files) not in seen:
            seen.add((types, files))
            yield from ((shape, other) for other in rung.tile_sets(shape))


def build(source: str, defines: Defines) -> Compiled:
    """Compile a source now and return its PTX, digest and resources."""
    text = sources.translation_unit(source)
    return Compiled(
        compile.compile_ptx(text, source.rpartition("/")[2], options(defines, source)),
        compile.digest(text, options(defines, source)),
        ptxas_resources(compile.ptxas_log(text, source.rpartition("/")[2], defines, sources.needs_hopper(source))),
    )


def digest_for_watching(source: str, defines: Defines) -> str:
    return compile.digest(sources.translation_unit(source), watch.options(defines, source))


def build_for_watching(source: str, defines: Defines) -> Compiled:
    """Compile a source now for watching and return its PTX and digest."""
    return Compiled(watch.compiled(source, defines), digest_for_watching(source, defines), {})


def write(wanted: Collection[str] = ()) -> list[Path]:
    """Write the archives of these topics anew, as they are measured and for watching, of all topics if none is named, and return the
    paths written. RuleError names a topic that has no kernels."""
    builds = {ptx_archive.MEASURED: build, ptx_archive.WATCHED: build_for_watching}
    topics: dict[str, dict[str, tuple[str, Defines]]] = {name: {} for name in wanted}
    for source, _, defines in kernels():
        topic, name = archive_entry(source, defines)
        if not wanted or topic in wanted:
            topics.setdefault(topic, {})[name] = source, defines
    if empty := [topic for topic, found in topics.items() if not found]:
        raise RuleError(f"no kernels are in {', '.join(empty)}")
    version = compile.version() or ""
    return [
        path
        for stem, compiled in builds.items()
        for topic, found in topics.items()
        for path in ptx_archive.write(
            FOLDER, topic, version, {name: compiled(*kernel) for name, kernel in found.items()}, stem
        )
    ]


def ptxas_resources(log: str) -> dict[str, int]:
    """Returns registers, shared_bytes and spill_bytes from the output of ptxas for a kernel."""

    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    return {
        "registers": number(r"Used (\d+) registers"),
        "shared_bytes": number(r"(\d+) bytes smem"),
        "spill_bytes": number(r"(\d+) bytes spill stores"),
    }
