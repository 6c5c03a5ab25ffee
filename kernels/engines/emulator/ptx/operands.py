"""The text of operands and numbers in PTX, parsed."""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from kernels.engines.emulator.ptx.kernel import Operand, PtxError

_SPECIAL = re.compile(
    r"^%(n?tid|n?ctaid|n?clusterid|cluster_n?ctaid|cluster_n?ctarank|is_explicit_cluster|laneid|n?warpid|n?smid|gridid"
    r"|lanemask_\w+|clock(64|_hi)?|globaltimer(_lo|_hi)?|envreg\d+|\w+_smem_\w+|pm\d+(_64)?|current_graph_exec)(\.[xyz])?$"
)
_NUMBER = re.compile(r"^(0[fFdD][0-9A-Fa-f]+|-?0[xX][0-9A-Fa-f]+U?|-?\d+U?|-?\d*\.\d+)$")
_BRACKET = re.compile(r"[{\[(]")
_FLOATS = {"0f": "<f", "0d": "<d"}  # prefix of a float's bits in hexadecimal -> its format


def operands(text: str) -> tuple[Operand, ...]:
    """Returns the operands of an instruction: "%f1, [%rd2+4]"."""
    return tuple(operand(part) for part in _split(text))


@lru_cache(maxsize=1 << 14)  # a kernel names each register several times
def operand(text: str) -> Operand:
    text = text.strip()
    if text.startswith("{"):
        return Operand("vector", tuple(operand(p) for p in _split(text[1:-1])))
    if text.startswith("["):
        return _memory(text[1:-1])
    if text == "_":
        return Operand("sink")
    if m := re.match(r"^(%?[\w$]+)\.([bh][0-3])$", text):
        return Operand("part", m[2], base=operand(m[1]))
    if m := re.match(r"^(%?[\w$]+)\|(%?[\w$]+)$", text):
        return Operand("vector", (operand(m[1]), operand(m[2])))
    if _SPECIAL.match(text):
        return Operand("special", text[1:])
    if text.startswith("!"):
        return Operand("not", text[1:])
    if text.startswith("%"):
        return Operand("reg", text)
    if text == "WARP_SZ":
        return Operand("imm", 32)
    if _NUMBER.match(text):
        return Operand("imm", _number(text))
    if m := re.match(r"^([\w$.]+)\+(-?\d+)$", text):
        return Operand("symbol", m[1], int(m[2]))
    return Operand("symbol", text)


def _split(text: str) -> list[str]:
    """Returns the parts of a list between commas, except commas within brackets."""
    if not _BRACKET.search(text):
        return [p for part in text.split(",") if (p := part.strip())]
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


def _memory(text: str) -> Operand:
    address, *coordinates = _split(text)
    m = re.match(r"^\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*$", address)
    if not m or len(coordinates) > 1:
        raise PtxError(f"the address [{text}] is not understood")
    value = operand(coordinates[0]).value if coordinates else None
    return Operand("mem", value, int(m[2] or 0), operand(m[1]))


def _number(text: str) -> float | int:
    if data := float_bytes(text):
        return struct.unpack(_FLOATS[text[:2].lower()], data)[0]
    return float(text) if "." in text else int(text.rstrip("U"), 0)


def matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    """Returns the match of a pattern at the start of a text. PtxError if there is none."""
    m = pattern.match(text)
    if m is None:
        raise PtxError(f"this is not understood: {text.strip()}")
    return m


def float_bytes(text: str) -> bytes:
    """Returns the bytes of a float whose bits are written in hexadecimal, "0f3F800000"; empty for any other number."""
    return bytes.fromhex(text[2:])[::-1] if text[:2].lower() in _FLOATS else b""
