"""PTX of the project's kernels: stored in archives at their default tile sizes and once with each other choice, else
compiled when it is needed.

`python -m kernels ptx` writes the archives again (ptx_archive). A test compiles every kernel and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernels import sources
from kernels.engines.emulator import ptx_archive
from kernels.engines.emulator.compiler import compile

HOPPER = "compute_90a"  # the target of sources with instructions that only Hopper has
CLUSTERS = "compute_90"  # the oldest target that has clusters
FOLDER = Path(__file__).parents[2]  # a folder for each topic
Defines = tuple[tuple[str, int], ...]


def options(defines: Defines, source: str = "") -> tuple[str, ...]:
    """Returns the compiler's options for a kernel of a source with these defines."""
    standard, target, *others = compile.OPTIONS
    if source and sources.needs_hopper(source):
        target = f"--gpu-architecture={HOPPER}"
    elif source and sources.needs_clusters(source):
        target = f"--gpu-architecture={CLUSTERS}"
    return (standard, target, *others, *(f"-D{name}={value}" for name, value in defines))


def archive_entry(source: str, defines: Defines) -> tuple[str, str]:
    """Returns the archive and the name in it of a source with its defines: ("conv", "03_gemm.TILE16")."""
    topic, _, file = source.removesuffix(".cu").rpartition("/")
    return topic, "".join((file, *(f".{name}{value}" for name, value in defines)))


def ptx(source: str, defines: Defines) -> str:
    """Returns the PTX of a project's source. CompilerMissing lists the precompiled kernels if none matches and NVRTC is
    missing."""
    return stored_or(ptx_archive.MEASURED, source, defines, options(defines, source), lambda: compiled(source, defines))


def compiled(source: str, defines: Defines) -> str:
    """Returns the PTX of a project's source, compiled here. CompilerMissing without NVRTC."""
    text = sources.translation_unit(source)
    return compile.compile_ptx(text, source.rpartition("/")[2], options(defines, source))


def stored_or(stem: str, source: str, defines: Defines, options: tuple[str, ...], build: Callable[[], str]) -> str:
    """Returns the PTX of a source in the archives of this stem, if it is that of this text and these options; else what `build` returns.
    CompilerMissing lists the precompiled kernels if that needs NVRTC, which is missing."""
    topic, name = archive_entry(source, defines)
    listed = ptx_archive.listed(FOLDER, topic, stem)
    if name in listed and listed[name]["digest"] == compile.digest(sources.translation_unit(source), options):
        return ptx_archive.read(FOLDER, topic, name, stem)
    try:
        return build()
    except compile.CompilerMissing as e:
        first = archive_entry(source, ())[1]
        available = ", ".join(other for other in listed if other.partition(".")[0] == first) or "nothing"
        requested = ", ".join(f"{name}={value}" for name, value in defines) or "no defines"
        raise compile.CompilerMissing(
            f"{source} with {requested} is not among the compiled kernels ({available}): {e}"
        ) from None


def resources(source: str, defines: Defines) -> dict[str, int] | None:
    """Returns registers, shared_bytes and spill_bytes of a kernel on sm_90, from ptxas; None if it is not precompiled."""
    topic, name = archive_entry(source, defines)
    listed_fields = ptx_archive.listed(FOLDER, topic).get(name)
    return listed_fields and {field: count for field, count in listed_fields.items() if field != "digest"}
