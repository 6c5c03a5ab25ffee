"""A user's kernel as PTX: compiled from CUDA C++, or read from a file of PTX, as Numba and Triton write it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernels.engines.emulator.compiler import entries
from kernels.engines.emulator.compiler.compile import Unit
from kernels.engines.emulator.compiler.source import ARCHITECTURES, Source, options
from kernels.engines.emulator.ptx.kernel import Kernel
from kernels.engines.emulator.ptx.parse import files, parse
from kernels.model.program import RuleError

SUFFIX = ".ptx"
ARCHITECTURE, STANDARD = "sm_80", "c++17"  # of CUDA C++, if none is given
_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)
_PLACES = re.compile(r"^[ \t]*\.(?:file|loc)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Translated:
    """The PTX of a kernel. `source`: the file whose lines are shown. `name`: the kernel's in the PTX. `lowered`: the PTX's
    name of each variable. `options`: the compiler's, none for a file of PTX."""

    source: Source
    arch: str
    ptx: str
    name: str
    lowered: Mapping[str, str]
    options: tuple[str, ...] = ()

    @property
    def kernel(self) -> Kernel:
        return parse(self.ptx, self.name)


def translated(
    file: Path,
    entry: str,
    variables: Sequence[str],
    defines: Sequence[str] = (),
    folders: Sequence[str] = (),
    arch: str = "",
    standard: str = "",
) -> Translated:
    """Returns the PTX of the kernel `entry` of a file. Raises RuleError (CompileError with the compiler's message), OSError.

    A file of PTX states its architecture, and nothing is compiled: `defines`, `folders`, `arch` and `standard` must be empty.
    """
    source = Source.read(file)
    if file.suffix.lower() == SUFFIX:
        given = {"-D": defines, "-I": folders, "--std": standard, "--arch": arch}
        if refused := [option for option, value in given.items() if value]:
            raise RuleError(f"{file.name} is PTX, which is not compiled: leave out {', '.join(refused)}")
        return _of_ptx(source, entry, variables)
    arch = arch or ARCHITECTURE
    compiler_options = options(source.path, defines, folders, arch, standard or STANDARD)
    compiled = entries.compile_entry(source.text, os.path.abspath(file), compiler_options, entry, variables)
    return Translated(source, arch, *compiled, compiler_options)


def unoptimized(code: Translated, entry: str) -> Translated:
    """Returns the kernel compiled again without optimizing, which keeps code that CUDA does not define."""
    path = os.path.abspath(code.source.path)
    again = entries.compile_entry(code.source.text, path, (*code.options, "-G"), entry, list(code.lowered))
    return Translated(code.source, code.arch, *again, code.options)


def for_watching(code: Translated, entry: str) -> Translated:
    """Returns the kernel compiled again for watching (emulator.watch). RuleError for a file of PTX."""
    from kernels.engines.emulator.watch import build, statements  # need Pygments

    if not code.options:
        raise RuleError(f"{code.source.path.name} is PTX: the variables of CUDA C++ are watched in its source")
    options = tuple("-G" if option == "-lineinfo" else option for option in code.options)
    path = os.path.abspath(code.source.path)
    text, variables = statements.spread(code.source.text), list(code.lowered)
    ptx, name, lowered = entries.compile_entry(text, path, options, entry, variables)
    return Translated(code.source, code.arch, build.with_fused(ptx, code.ptx), name, lowered, options)


def _of_ptx(source: Source, entry: str, variables: Sequence[str]) -> Translated:
    """Returns a kernel of a file of PTX. The lines shown are those of a source file beside it, if the kernel's instructions
    name one, else the PTX's own."""
    name = source.path.name
    target = _TARGET.search(source.text)
    if target is None:
        raise RuleError(f"{name} is no PTX: it has no .target")
    if target[1] not in ARCHITECTURES:
        raise RuleError(
            f"the emulator reads the PTX of {', '.join(ARCHITECTURES)}, not of {target[1]}, the .target of {name}"
        )
    kernel, lowered = entries.in_ptx(Unit(source.text, {}), entry, variables)
    code = Translated(source, target[1], source.text, kernel, lowered)
    if beside := _source_beside(code):
        return replace(code, source=beside)
    places = _PLACES.sub("", source.text)  # the PTX's own lines keep their numbers
    return replace(code, ptx=f'{places}\n.file 0 "{name}"\n')


def _source_beside(code: Translated) -> Source | None:
    """Returns the source file of most of a kernel's instructions that is in the folder of the PTX."""
    if not files(code.ptx.split("\n")):
        return None
    named = [i.line.file for i in code.kernel.code if i.line is not None]
    for name in sorted(set(named), key=named.count, reverse=True):
        path = code.source.path.parent / name
        if path.is_file():
            return Source.read(path)
    return None
