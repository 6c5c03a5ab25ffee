"""A user's file of CUDA C++ or PTX: its text, its lines, and the options that it is compiled with."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.engines.emulator.compiler.standard import IMPLICIT
from kernels.model.program import RuleError

# Architectures whose PTX the emulator reads. An instruction that it lacks is an error that names the line.
ARCHITECTURES = tuple(f"sm_{n}" for n in ("75", "80", "86", "87", "89", "90", "90a"))
MAX_SOURCE = 16 * 2**20  # bytes of a file: a device such as /dev/zero never ends
STANDARDS = ("c++11", "c++14", "c++17", "c++20")
_DEFINE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(=.*)?")


@dataclass(frozen=True)
class Source:
    """A file of CUDA C++ or PTX: its text for the compiler, and its lines for display."""

    path: Path
    text: str
    lines: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read a file in UTF-8, or in Latin-1 as in old files. RuleError if it is no text."""
        if "\0" in str(path):
            raise RuleError(f"a file's name has no zero byte, got {str(path)!r}")
        with path.open("rb") as file:
            content = file.read(MAX_SOURCE + 1).removeprefix(b"\xef\xbb\xbf")
        if len(content) > MAX_SOURCE:
            raise RuleError(f"{path} has more than {MAX_SOURCE:,} bytes: it is no CUDA C++ and no PTX")
        if b"\0" in content:
            raise RuleError(f"{path} is no CUDA C++ in UTF-8 or Latin-1: it holds a zero byte")
        try:
            decoded = content.decode()
        except UnicodeDecodeError:
            decoded = content.decode("latin-1")
        lines = tuple(line.rstrip("\r") for line in decoded.split("\n"))
        return cls(path, content.decode(errors="surrogateescape"), lines)

    def line(self, file: str, number: int) -> str:
        """Returns a line of the source; the name of the file, in brackets, if it is another file."""
        if file != self.path.name:
            return f"({file})"
        return self.lines[number - 1].rstrip() if number <= len(self.lines) else ""

    def quoted(self, message: str) -> str:
        """Returns a message that names a line of the file with that line below it, as compilers do."""
        at = re.search(rf"{re.escape(self.path.name)}:([0-9]+)", message)
        if at is None or not (code := self.line(self.path.name, int(at[1]))):
            return message
        return f"{message}\n{int(at[1]):5} | {code}"


def options(file: Path, defines: Sequence[str], folders: Sequence[str], arch: str, standard: str) -> tuple[str, ...]:
    """Returns the compiler's options. The file's own folder is the last that is searched for <headers>."""
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
    search_folders = [*folders, file.parent]
    return (
        f"--std={standard}",
        f"--gpu-architecture={target.replace('sm_', 'compute_')}",
        "-lineinfo",
        f"--pre-include={IMPLICIT}",
        "--diag-suppress=47",  # a macro defined again, as libcu++ does with INFINITY
        *(["--device-int128"] if sys.platform == "linux" else []),
        *(f"-D{text}" for text in defines),
        *(f"-I{os.path.abspath(folder)}" for folder in search_folders),
    )
