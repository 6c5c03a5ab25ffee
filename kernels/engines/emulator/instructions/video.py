"""Video instructions: sums, differences and comparisons of a register's bytes and halves, one or all at once.

Two forms of unsigned numbers do not follow the PTX ISA, but an H200. vadd.u32.u32.u32.sat does not saturate: the sum wraps
around. vmad.u32.u32.u32 with .sat, .shr7 or .shr15 reads its operands as signed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.engines.emulator.instructions.closure import Run, Unknown
from kernels.engines.emulator.operations import integers, table
from kernels.engines.emulator.ptx.kernel import Instruction, Operand
from kernels.engines.emulator.state import Machine

_TWO = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
    "vavrg": lambda a, b: a + b + (a + b >= 0) >> 1,
}
_THEN = {"add": lambda value, c: value + c, "min": np.minimum, "max": np.maximum}


def _operation(i: Instruction) -> tuple[Callable, str, str, str, list[str]]:
    """Returns (function of a and b, types of the result, of a and of b, modifiers after the types)."""
    name, parts = i.parts[0].rstrip("24"), i.parts[1:]
    if name == "vset":
        compare = table.COMPARE[parts[2]]
        return lambda a, b: compare(a, b).astype(np.int64), "u32", parts[0], parts[1], parts[3:]
    to, a, b, *more = parts
    return _TWO[name], to, a, b, more


def _saturated(value, type_: str, bits: int):
    """Clamp int64 values to the type's range, as .sat does."""
    if type_ == "s32":
        return np.clip(value, -(1 << bits - 1), (1 << bits - 1) - 1)
    return np.clip(value, 0, (1 << bits) - 1)


def _u32(value) -> np.ndarray | np.generic:
    return (value & np.int64(0xFFFFFFFF)).astype(np.uint32)


def _part(m: Machine, o: Operand, type_: str) -> Callable[[], np.ndarray]:
    """Returns a reader of a register, or of the byte or half of it that the operand selects, as int64."""
    signed = type_ == "s32"
    if o.kind != "part":
        read = m.reader(o, type_)
        return lambda: read().astype(np.int64)
    read, at, bits = m.reader(o.root, "u32"), int(o.name[1]), 8 if o.name[0] == "b" else 16
    return lambda: integers.fields(read(), bits, signed)[at]


def scalar(m: Machine, pc: int, i: Instruction) -> Run:
    """Build vadd, vsub, vabsdiff, vmin, vmax, vset of two numbers, then a sum, minimum or maximum with a third."""
    f, to, a_type, b_type, more = _operation(i)
    after = next((_THEN[p] for p in more if p in _THEN), None)
    wraps = "sat" in more and i.opcode.startswith("vadd.u32.u32.u32")
    if set(more) - {"sat", *_THEN} or (len(i.operands) == 4) != (after is not None) or (wraps and after):
        raise Unknown(f"unknown opcode {i.opcode}")
    put, a, b = (m.writer(i.operands[0], "u32"), _part(m, i.operands[1], a_type), _part(m, i.operands[2], b_type))
    c = _part(m, i.operands[3], to) if after else None

    def run() -> None:
        value = f(a(), b())
        if "sat" in more and not wraps:
            value = _saturated(value, to, 32)
        put(_u32(after(value, c()) if after and c else value))

    return run


def multiply(m: Machine, pc: int, i: Instruction) -> Run:
    """Build vmad: a b + c, shifted right by 7 or 15 with .shr7 or .shr15.

    Raises Unknown for unsigned forms whose results on a GPU are not known: mixed types, or .sat with a shift.
    """
    to, a_type, b_type, *more = i.parts[1:]
    types = {to, a_type, b_type}
    unknown = "u32" in types and bool(more) and (len(types) > 1 or len(more) > 1)
    if set(more) - {"sat", "shr7", "shr15"} or unknown:
        raise Unknown(f"unknown opcode {i.opcode}")
    shift = next((int(p[3:]) for p in more if p.startswith("shr")), 0)
    put, a, b = (m.writer(i.operands[0], "u32"), _part(m, i.operands[1], a_type), _part(m, i.operands[2], b_type))
    c = _part(m, i.operands[3], to)

    def signed(value: np.ndarray) -> np.ndarray:
        return value.astype(np.int32).astype(np.int64)

    def run() -> None:
        value = (signed(a()) * signed(b()) + signed(c()) >> shift) if more else a() * b() + c()
        put(_u32(_saturated(value, to, 32) if "sat" in more else value))

    return run


def packed(m: Machine, pc: int, i: Instruction) -> Run:
    """Build the same operations of both halves or all four bytes, side by side; .add: their sum plus a third number."""
    f, to, a_type, b_type, more = _operation(i)
    plain = all(o.kind != "part" for o in i.operands)
    if set(more) - {"sat", "add"} or not plain:
        raise Unknown(f"unknown opcode {i.opcode}")
    bits = 8 if i.parts[0].endswith("4") else 16
    put, (a, b, c) = m.writer(i.operands[0], "u32"), (m.reader(o, "u32") for o in i.operands[1:])

    def run() -> None:
        pairs = zip(
            integers.fields(a(), bits, a_type == "s32"), integers.fields(b(), bits, b_type == "s32"), strict=True
        )
        values = [f(x, y) for x, y in pairs]
        if "sat" in more:
            values = [_saturated(v, to, bits) for v in values]
        if "add" in more:
            put(_u32(sum(values) + c().astype(np.int64)))
            return
        lanes = [(v & (1 << bits) - 1) << bits * n for n, v in enumerate(values)]
        put(_u32(sum(lanes)))

    return run


_NAMES = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset")
BUILDERS = {
    **dict.fromkeys(_NAMES, scalar),
    **{f"{name}{count}": packed for name in (*_NAMES, "vavrg") for count in "24"},
    "vmad": multiply,
}
