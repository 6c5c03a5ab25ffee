"""Names in PTX, demangled to C++."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache


def plain(name: str) -> str:
    """Returns the C++ form of a name in PTX, without parameters: "ns::naive", "sgemm<16, float>".

    Without the C++ runtime it also lacks a template's arguments.
    """
    text = demangled(name)
    if text == name:
        return _nested(name)
    text = re.sub(r"\(anonymous namespace\)::|\[abi:\w+\]", "", text)  # Numba adds several [abi:...] to a name
    text = re.sub(r"\(.*\)( const)?$", "", text)
    return re.sub(r"^[^<]*? (?=[\w:]+<)", "", text)  # a template's result type


def _nested(name: str) -> str:
    """Returns the names that a mangled one contains: _ZNK1A4areaEv -> A::area."""
    m = re.match(r"_ZN?K?", name)
    rest, parts = name[m.end() :] if m else "", []
    while m := re.match(r"\d+", rest):
        end = m.end() + int(m[0])
        parts.append(rest[m.end() : end])
        rest = rest[end:]
    return "::".join(parts) or name


@cache
def demangled(name: str) -> str:
    """Returns the C++ form of a name in PTX, from the C++ runtime; the name itself if that is missing."""
    demangle = _demangler()
    if not demangle or not name.startswith("_Z"):
        return name
    size, status = ctypes.c_size_t(0), ctypes.c_int()
    result = demangle(name.encode(), None, ctypes.byref(size), ctypes.byref(status))
    return ctypes.string_at(result).decode() if result else name


@cache
def _demangler() -> Callable[..., int | None] | None:
    for library in ("libstdc++.so.6", "libc++.1.dylib", "libc++.so.1"):
        try:
            function = ctypes.CDLL(library).__cxa_demangle
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
        return function
    return None


def variable(name: str) -> str:
    """Returns the C++ name of a function's variable in a mangled one: _ZZ4gemmE6tile_a -> tile_a."""
    for m in re.finditer(r"E(\d+)", name) if name.startswith("_ZZ") else ():
        end = m.end() + int(m[1])
        # A second variable of the same name ends with _0, a third with _1.
        if end <= len(name) and re.fullmatch(r"(_\d+|__\d+_)?", name[end:]):
            return name[m.end() : end]
    return name
