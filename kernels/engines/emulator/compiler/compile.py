"""CUDA C++ to PTX by NVRTC, called through ctypes: needs NVIDIA's nvrtc wheel, no driver and no GPU."""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from kernels.engines import cuda_headers
from kernels.engines.emulator.cache import cache_folder, keep
from kernels.engines.emulator.compiler import includes, standard
from kernels.engines.emulator.program import libraries
from kernels.model.program import RuleError

PTX_TARGET = "compute_80"
# -lineinfo keeps the CUDA line of every instruction.
OPTIONS = ("--std=c++17", f"--gpu-architecture={PTX_TARGET}", "-lineinfo")

Result = TypeVar("Result")
MAX_LOG = 2000  # characters of the compiler's messages that an error quotes

# NVRTC writes the folder it ran in before each file's name. It is private, so it is removed.
_FILE = re.compile(r'^(\s*\.file\s+\d+\s+)"((?:[^"\\]|\\.)*)"', re.MULTILINE)


class CompileError(RuleError):
    """CUDA C++ that does not compile; the message is the compiler's own."""


class CompilerMissing(RuleError):
    """NVRTC is not installed here."""


@cache
def _nvrtc() -> ctypes.CDLL:
    """Returns the library of the nvidia-cuda-nvrtc wheel."""
    try:
        import nvidia
    except ImportError:
        raise CompilerMissing("NVRTC is not installed (pip install nvidia-cuda-nvrtc; Linux and Windows)") from None
    for folder in nvidia.__path__:
        pattern = "cu*/bin/**/nvrtc64_*.dll" if sys.platform == "win32" else "cu*/lib/libnvrtc.so.*"
        for path in sorted(Path(folder).glob(pattern)):
            return ctypes.CDLL(str(path))
    raise CompilerMissing("NVRTC is not installed (pip install nvidia-cuda-nvrtc; Linux and Windows)")


def version() -> str | None:
    """Return NVRTC's version, such as "13.5"; None if it is missing."""
    try:
        library = _nvrtc()
    except RuleError:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def digest(text: str, options: Sequence[str]) -> str:
    """Return 16 hex digits that identify a compilation: its text and its options."""
    return hashlib.sha256(_bytes("\0".join((text, *options)))).hexdigest()[:16]


def compile_ptx(text: str, name: str, options: Sequence[str] = OPTIONS) -> str:
    """Returns the PTX of a translation unit called `name`, from the cache on disk if it was compiled before.

    Raises CompileError with the compiler's messages, CompilerMissing without NVRTC.
    """
    return compile_unit(text, name, options).ptx


@dataclass(frozen=True)
class Unit:
    """A compiled translation unit. `lowered`: the PTX's name of each C++ name that was passed to the compiler."""

    ptx: str
    lowered: Mapping[str, str]


def compile_unit(text: str, name: str, options: Sequence[str], names: Sequence[str] = ()) -> Unit:
    """Returns the PTX of a translation unit, and the names in it of the C++ expressions `names` ("sgemm<16, float>",
    "&mask"). Naming an expression also instantiates it.

    `name` is the file's path if the text is a file's, so that #include "..." is found beside it.
    The result comes from the cache on disk if nothing that it depends on has changed. Raises the errors of compile_ptx.
    """
    return _through_cache(_compile_all, text, name, options, names)


def _through_cache(
    compile: Callable[..., Unit], text: str, name: str, options: Sequence[str], names: Sequence[str]
) -> Unit:
    """Returns the result of a compilation from the cache on disk, else compiles and adds it to the cache."""
    key = _key(text, name, options, names)
    if key and (unit := _cached(key)):
        return unit
    unit = compile(text, name, options, names)
    if key and key == _key(text, name, options, names):  # no file was edited during the compilation
        keep(cache_folder("ptx") / key, json.dumps([unit.ptx, unit.lowered]).encode())
    return unit


def _key(text: str, name: str, options: Sequence[str], names: Sequence[str]) -> str | None:
    """Returns the file name of a compilation in the cache; None if it is unknown which files it reads."""
    fixed = cuda_headers.folders()
    folders = tuple(Path(option.removeprefix("-I")) for option in options if option.startswith("-I"))
    read = includes.fingerprint(text, Path(name).parent, (*folders, *fixed), fixed)
    if read is None:
        return None
    parts = (*options, "", *names, "", repr(standard.HEADERS), read)
    return f"{version()}-{digest(name + text, parts)}.json"


def _cached(key: str) -> Unit | None:
    try:
        return Unit(*json.loads((cache_folder("ptx") / key).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def ptxas_log(text: str, name: str, defines: Sequence[tuple[str, int]], only_hopper: bool = False) -> str:
    """Returns ptxas's report of a kernel on sm_90: registers, shared memory, spills. The cache on disk keeps it.
    `only_hopper`: it has instructions that later GPUs lack."""
    target = f"--gpu-architecture=sm_90{'a' if only_hopper else ''}"
    options = ("--std=c++17", target, "--ptxas-options=-v")
    options = (*options, *(f"-D{name}={value}" for name, value in defines))
    return _through_cache(_assemble, text, name, options, ()).ptx


def _assemble(text: str, name: str, options: Sequence[str], names: Sequence[str]) -> Unit:
    """Returns the compiler's log of a translation unit in place of PTX."""
    with _program(text, name, options, names) as program:
        return Unit(_fetch(program, "ProgramLog"), {})


def compile_cubin(text: str, name: str, options: Sequence[str], names: Sequence[str] = ()) -> bytes:
    """Returns the machine code of a translation unit. The options name an architecture sm_..., not compute_... Arguments and
    errors are those of compile_unit."""

    def compiled(chosen: Sequence[str]) -> bytes:
        with _program(text, name, chosen, names) as program:
            return _fetch_bytes(program, "CUBIN")

    return _with_host_code(compiled, options)


def _compile_all(text: str, name: str, options: Sequence[str], names: Sequence[str]) -> Unit:
    return _with_host_code(lambda chosen: _compile(text, name, chosen, names), options)


def _with_host_code(compile: Callable[[Sequence[str]], Result], options: Sequence[str]) -> Result:
    """Returns the result of a compilation. If host functions do not compile, all functions are compiled for the device: nvcc
    accepts declarations and constexpr functions without __device__."""
    try:
        return compile(options)
    except CompileError as error:
        if cuda_headers.HOST_CODE_ERROR not in str(error):
            raise
        try:
            return compile((*options, "--device-as-default-execution-space"))
        except CompileError:
            raise error from None


def _compile(text: str, name: str, options: Sequence[str], names: Sequence[str] = ()) -> Unit:
    with _program(text, name, options, names) as program:
        lowered = {expression: _lowered(program, expression) for expression in names}
        return Unit(_FILE.sub(_without_folder, _fetch(program, "PTX")), lowered)


def _without_folder(file: re.Match) -> str:
    """Returns a .file directive with only the file's name. NVRTC writes bytes beyond ASCII as octal numbers."""
    latin1 = re.sub(r"\\([0-7]{3}|.)", lambda m: chr(int(m[1], 8)) if len(m[1]) == 3 else m[1], file[2])
    path = latin1.encode("latin-1", "replace").decode(errors="surrogateescape")
    name = re.split(r"[/\\]", path)[-1]
    return f'{file[1]}"{name}"'


@contextmanager
def _program(text: str, name: str, options: Sequence[str], names: Sequence[str]) -> Iterator[ctypes.c_void_p]:
    """Yields a compiled program of NVRTC and destroy it at the end. CompileError has the compiler's messages."""
    if "\0" in text:
        raise CompileError(f"{name} holds a zero byte: it is not a text in UTF-8 or Latin-1")
    library, options = _nvrtc(), (*options, *cuda_headers.options(text))
    folders = [Path(name).parent, *(Path(o.removeprefix("-I")) for o in options if o.startswith("-I"))]
    implicit = any(standard.IMPLICIT in option for option in options)
    headers = standard.provided(folders) if implicit or cuda_headers.options(text) else {}
    if any(libraries.RUNTIME in option for option in options):
        headers |= libraries.headers()
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(
        ctypes.byref(program), _bytes(text), _bytes(name), len(headers), _array(headers.values()), _array(headers)
    )
    try:
        for expression in names:
            library.nvrtcAddNameExpression(program, _bytes(expression))
        if library.nvrtcCompileProgram(program, len(options), _array(options)):
            raise CompileError(cuda_headers.with_advice(_shortened(_fetch(program, "ProgramLog").strip(), name)))
        yield program
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(text: str) -> bytes:
    """Encode a text for NVRTC. Bytes of a file or path that were not UTF-8 are restored."""
    return text.encode(errors="surrogateescape")


def _array(texts: Iterable[str]) -> ctypes.Array:
    encoded = [_bytes(text) for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _shortened(log: str, name: str) -> str:
    """Returns the compiler's messages without the folder of the file that it compiled, and only the first of many."""
    folder = re.sub(r"[^/\\]*$", "", name)
    lines = (log.replace(folder, "") if folder else log).splitlines()
    size, kept = 0, 0
    while kept < len(lines) and (size := size + len(lines[kept]) + 1) <= MAX_LOG:
        kept += 1
    if kept == len(lines):
        return "\n".join(lines)
    return "\n".join(
        [*(lines[:kept] or [lines[0][:MAX_LOG]]), f"... and {len(lines) - max(kept, 1):,} more lines", lines[-1]]
    )


def _lowered(program: ctypes.c_void_p, expression: str) -> str:
    """Returns the PTX's name for a C++ name of a compiled program."""
    name = ctypes.c_char_p()
    _nvrtc().nvrtcGetLoweredName(program, _bytes(expression), ctypes.byref(name))
    return (name.value or b"").decode()


def _fetch(program: ctypes.c_void_p, item: str) -> str:
    return _fetch_bytes(program, item).rstrip(b"\0").decode(errors="replace")


def _fetch_bytes(program: ctypes.c_void_p, item: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(_nvrtc(), f"nvrtcGet{item}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(_nvrtc(), f"nvrtcGet{item}")(program, buffer)
    return buffer.raw
