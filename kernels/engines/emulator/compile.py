"""CUDA C++ to PTX by NVRTC, called through ctypes: needs NVIDIA's nvrtc wheel, no driver and no GPU."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kernels.engines import headers
from kernels.program import RuleError

PTX_TARGET = "compute_80"
# -lineinfo keeps the CUDA line of every instruction.
OPTIONS = ("--std=c++17", f"--gpu-architecture={PTX_TARGET}", "-lineinfo")


# NVRTC writes the folder it ran in before each file's name: it is nobody's business.
_FOLDERS = re.compile(r'(\.file\s+\d+\s+")[^"]*[/\\]')


class CompileError(RuleError):
    """CUDA C++ that does not compile; the message is the compiler's own."""


class CompilerMissing(RuleError):
    """NVRTC is not installed here."""


@cache
def _nvrtc() -> ctypes.CDLL:
    """The library of the nvidia-cuda-nvrtc wheel."""
    try:
        import nvidia
    except ImportError:
        raise CompilerMissing(
            "NVRTC is not installed (pip install nvidia-cuda-nvrtc; Linux and Windows)"
        ) from None
    for folder in nvidia.__path__:
        pattern = "cu*/bin/**/nvrtc64_*.dll" if sys.platform == "win32" else "cu*/lib/libnvrtc.so.*"
        for path in sorted(Path(folder).glob(pattern)):
            return ctypes.CDLL(str(path))
    raise CompilerMissing("NVRTC is not installed (pip install nvidia-cuda-nvrtc; Linux and Windows)")


def version() -> str | None:
    """NVRTC's version, "13.5"; None where it is missing."""
    try:
        library = _nvrtc()
    except RuleError:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def digest(text: str, options: Sequence[str]) -> str:
    """16 hex digits that name one compilation: the text and every option that shapes the PTX."""
    return hashlib.sha256("\0".join((text, *options)).encode()).hexdigest()[:16]


def compile_ptx(text: str, name: str, options: Sequence[str] = OPTIONS) -> str:
    """PTX of a translation unit called `name`; taken from the cache on disk where it was compiled before.

    Raises CompileError with the compiler's messages, CompilerMissing without NVRTC.
    """
    if '#include "' in text:  # what it includes may change behind its back
        return _compile(text, name, options)
    cached = _cache_folder() / f"{version()}-{digest(name + text, options)}.ptx"
    try:
        return cached.read_text(encoding="utf-8")
    except OSError:
        pass
    ptx = _compile(text, name, options)
    _write(cached, ptx)
    return ptx


def ptxas_log(text: str, name: str, defines: Sequence[tuple[str, int]]) -> str:
    """What ptxas says of the kernel on sm_90: registers, shared memory, spills."""
    options = ("--std=c++17", "--gpu-architecture=sm_90", "--ptxas-options=-v")
    given = (*options, *(f"-D{name}={value}" for name, value in defines))
    return _compile(text, name, given, "ProgramLog")


def _compile(text: str, name: str, options: Sequence[str], what: str = "PTX") -> str:
    library, options = _nvrtc(), (*options, *headers.options(text))
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    try:
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        if library.nvrtcCompileProgram(program, len(options), given):
            raise CompileError(headers.explained(_fetch(library, program, "ProgramLog").strip()))
        return _FOLDERS.sub(r"\1", _fetch(library, program, what))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _fetch(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode()


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or (
        os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else Path.home() / ".cache"
    )
    return Path(base or tempfile.gettempdir()) / "kernel-theatre" / "ptx"


def _write(path: Path, text: str) -> None:
    """Whole or not at all, so that two processes may compile the same kernel at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError:
        pass  # no place to cache: compile again next time
