"""The build of a kernel for watching. It follows the source line by line, and its debug information says where each variable is.

The kernel that is measured and counted is another build of the same source (precompiled.options). Both compute the same bits, as far as
`contraction` finds the multiply-adds that the optimiser fuses.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kernels import sources
from kernels.engines.emulator import precompiled, ptx_archive
from kernels.engines.emulator.compiler import compile
from kernels.engines.emulator.precompiled import Defines
from kernels.engines.emulator.ptx import parse
from kernels.engines.emulator.ptx.kernel import Kernel, Line
from kernels.engines.emulator.watch.contraction import contract
from kernels.engines.emulator.watch.statements import PART, spread

_FUSED = "// fused: "  # the first line of a build: the lines with fused multiply-adds in the measured build
_MOST_STATEMENTS = 8  # of a line
_PLACES = re.compile(
    r"^\s*\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)|^\s*(?:@!?%\w+\s+)?(?P<fma>fma\.rn\.(?:ftz\.)?f(?:32|64))\b",
    re.MULTILINE,
)
# NVRTC 13.5 does not compile the built-in __dp4a with -G.
_DP4A = """__device__ inline int watched_dp4a(int a, int b, int c) {
  int d;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
#define __dp4a watched_dp4a
#line 1
"""


def options(defines: Defines, source: str = "") -> tuple[str, ...]:
    """Returns the compiler's options, those of the measured build with -G."""
    return tuple("-G" if option == "-lineinfo" else option for option in precompiled.options(defines, source))


def ptx(source: str, defines: Defines) -> str:
    """Returns the PTX of a project's source. Errors as those of precompiled.ptx."""
    stem = ptx_archive.WATCHED
    return precompiled.stored_or(stem, source, defines, options(defines, source), lambda: compiled(source, defines))


def compiled(source: str, defines: Defines) -> str:
    """Returns the PTX of a project's source, compiled here. CompilerMissing without NVRTC."""
    text = spread(sources.translation_unit(source))
    text = _DP4A + text if "__dp4a" in text else text
    watched = compile.compile_ptx(text, source.rpartition("/")[2], options(defines, source))
    return with_fused(watched, precompiled.ptx(source, defines))


def with_fused(watched: str, measured: str) -> str:
    """Returns the PTX of a build for watching that says which lines have fused multiply-adds in the measured build."""
    files = parse.files(measured.split("\n"))
    found, at = set(), None
    for m in _PLACES.finditer(measured):
        if m["fma"] and at:
            found.add(at)
        elif m["line"] and int(m["line"]):
            at = Line(files.get(int(m["file"]), f"file {m['file']}"), int(m["line"]))
    return f"{_FUSED}{' '.join(sorted(map(str, found)))}\n{watched}"


@lru_cache(maxsize=32)
def kernel(ptx: str, entry: str) -> Kernel:
    """Returns a kernel of a build for watching. Callers must not change it."""
    first = ptx.partition("\n")[0]
    fused = first.removeprefix(_FUSED).split() if first.startswith(_FUSED) else []
    kernel = parse.read(ptx, entry)
    contract(kernel.code, {line for place in fused for line in _parts(*place.rsplit(":", 1))})
    for i in kernel.code:
        i.statement, i.inlined_statement = _statement(i.line), _statement(i.inlined)
        i.line, i.inlined = _whole(i.line), _whole(i.inlined)
    for body in kernel.bodies:
        body.line = _whole(body.line)
    return kernel


def _parts(file: str, number: str) -> list[Line]:
    """Returns the lines that the statements of a line have in the build."""
    return [Line(file, int(number) + part * PART) for part in range(_MOST_STATEMENTS)]


def _statement(line: Line | None) -> int:
    return line.number // PART if line else 0


def _whole(line: Line | None) -> Line | None:
    """Returns the line of the source that a statement is in."""
    return Line(line.file, line.number % PART) if line is not None and line.number >= PART else line
