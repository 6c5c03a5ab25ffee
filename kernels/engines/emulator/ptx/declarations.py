"""Declarations in PTX: variables with their initial content, and the parameters of functions."""

from __future__ import annotations

import re

from kernels.engines.emulator.ptx.kernel import Address, PtxError, Variable, type_bytes
from kernels.engines.emulator.ptx.operands import float_bytes

_VARIABLE = re.compile(
    r"^\s*(?:\.(?:extern|visible|weak|common)\s+)?\.(shared|local|const|global)\s+(?:\.attribute\(\.managed\)\s+)?(?:\.align\s+(\d+)\s+)?"
    r"\.(\w+)\s+([\w$]+)((?:\[\d*\])*)\s*(?:=\s*(.*))?;\s*$"
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)(?:\s+\.ptr(?:\s+\.(?!align)\w+)*(?:\s+\.align\s+\d+)?)?\s+([\w$]+)(?:\[(\d+)\])?"
)
# A symbol's address in a variable's initial content, "generic(x)+8", or a byte of it, "0xFF00(x)".
_ADDRESS = re.compile(r"^(?:(0[xX][fF0]+)\s*\()?\s*(generic\s*\()?\s*([A-Za-z_$][\w$.]*)\s*\)?\s*([+-]\s*\d+)?\s*\)?$")


def variable(statement: str) -> Variable | None:
    """Returns the variable that a statement declares; None if it is no declaration."""
    m = _VARIABLE.match(statement)
    if not m:
        return None
    space, align, type_, name, dims, initial = m.groups()
    width, count = type_bytes(type_), 1
    for extent in re.findall(r"\[(\d*)\]", dims or ""):
        count *= int(extent or 0)
    data, addresses = _initial_content(initial or "", width)
    return Variable(name, space, int(align or width), width * count, data, addresses=addresses)


def params(header: str) -> list[Variable]:
    """Returns the parameters declared in a text, such as a function's header."""
    out = []
    for m in _PARAM.finditer(header):
        align, type_, name, count = m.groups()
        size = type_bytes(type_) * int(count or 1)
        out.append(Variable(name, "param", int(align or min(size, 8)), size, dtype=type_))
    return out


def _initial_content(text: str, width: int) -> tuple[bytes, tuple[Address, ...]]:
    """Returns the bytes of a variable's elements, `width` bytes each, and the addresses among them."""
    data, addresses = bytearray(), []
    for value in re.split(r"[\s,]+", re.sub(r"[{}]", " ", text).strip()):
        if m := _ADDRESS.match(value):
            mask, _, symbol, offset = m.groups()
            shift = 0 if mask is None else _trailing_zeros(int(mask, 16))
            addresses.append(Address(len(data), width, symbol, int(offset or 0), shift))
            data += bytes(width)
        elif bits := float_bytes(value):
            data += bits
        elif re.match(r"-?\d", value):
            data += (int(value.rstrip("U"), 0) & (1 << 8 * width) - 1).to_bytes(width, "little")
        elif value:
            raise PtxError(f"{value} among a variable's first values is not understood")
    return bytes(data), tuple(addresses)


def _trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1
