"""Integer instructions beyond C's operators: bit search, masks, sign extension, 16-bit dot products, packing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.engines.emulator.instructions.closure import Build, Run, Unknown
from kernels.engines.emulator.operations import integers
from kernels.engines.emulator.operations.dtypes import DTYPES
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine

BITS = np.int64(32)


def _of(function: Callable, *types: str) -> Build:
    """Returns the builder of an instruction that writes 32 bits: function(instruction, sources as these types)."""

    def build(m: Machine, pc: int, i: Instruction) -> Run:
        put = m.writer(i.operands[0], "u32")
        reads = [m.reader(o, type_) for o, type_ in zip(i.operands[1:], types, strict=True)]
        return lambda: put(function(i, *(read() for read in reads)))

    return build


def _u32(values) -> np.ndarray | np.generic:
    return (np.asarray(values, np.int64) & np.int64(0xFFFFFFFF)).astype(np.uint32)[()]


def _position(i: Instruction, value):
    """Returns a bit position or width: at most 32 with .clamp, its low five bits with .wrap."""
    if i.parts[1] not in ("clamp", "wrap"):
        raise Unknown(f"unknown opcode {i.opcode}")
    wide = value.astype(np.int64)
    return np.minimum(wide, BITS) if i.parts[1] == "clamp" else wide & 31


def _fns(i: Instruction, mask, base, offset):
    """Returns the position of the |offset|-th set bit from `base` on, upwards or downwards; all ones if there is none."""
    mask, base, offset = np.broadcast_arrays(*(np.asarray(x, np.int64) for x in (mask, base, offset)))
    found, remaining = np.full(mask.shape, -1), np.where(offset == 0, 1, np.abs(offset))
    step, steps = np.where(offset < 0, -1, 1), np.where(offset == 0, 1, BITS)
    for n in range(32):
        at = base + step * n
        valid = (at >= 0) & (at < BITS) & (n < steps)
        remaining = remaining - (valid & (mask >> np.where(valid, at, 0) & 1 == 1))
        found = np.where((remaining == 0) & (found < 0), at, found)
    return _u32(found)


def _szext(i: Instruction, a, b):
    """Returns the low b bits of a, extended by their sign (.s32) or by zeros."""
    width = _position(i, b)
    low = a.astype(np.int64) & ((np.int64(1) << width) - 1)
    top = (np.int64(1) << width) >> 1
    return _u32(np.where(low & top != 0, low - 2 * top, low) if i.parts[-1] == "s32" else low)


def _bmsk(i: Instruction, a, b):
    """Returns b set bits from bit a on."""
    start, width = _position(i, a), _position(i, b)
    return _u32(((np.int64(1) << width) - 1) << start)


def _cnot(m: Machine, pc: int, i: Instruction) -> Run:
    put, a = m.writer(i.operands[0], i.parts[-1]), m.reader(i.operands[1], i.parts[-1])
    return lambda: put((a() == 0).astype(DTYPES[i.parts[-1]]))


def _slct(m: Machine, pc: int, i: Instruction) -> Run:
    """Build slct: a if c is 0 or more, else b. Only c is flushed by .ftz."""
    type_, sign = f"b{i.parts[-2][1:]}", i.parts[-1]
    put, a, b = m.writer(i.operands[0], type_), m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    c = m.reader(i.operands[3], sign)
    return lambda: put(np.where(c() >= 0, a(), b())[()])


def _dp2a(m: Machine, pc: int, i: Instruction) -> Run:
    """Build dp2a: c plus the products of a's two halves and the lower or upper two bytes of b."""
    signed = i.parts[2] == "s32", i.parts[3] == "s32"
    shift = np.uint32(16 if i.parts[1] == "hi" else 0)
    put, (a, b, c) = m.writer(i.operands[0], "u32"), (m.reader(o, "u32") for o in i.operands[1:])
    m.flops(pc, 4, "flops_dp4a")

    def run() -> None:
        x, y = integers.fields(a(), 16, signed[0]), integers.fields(b() >> shift, 8, signed[1])
        put(_u32(x[0] * y[0] + x[1] * y[1] + c().astype(np.int64)))

    return run


def _mul24(m: Machine, pc: int, i: Instruction) -> Run:
    """Build mul24 and mad24: the low (.lo) or high (.hi) 32 of the 48 bits of a product of 24-bit numbers."""
    type_ = i.parts[-1]
    put = m.writer(i.operands[0], type_)
    a, b, *c = (m.reader(o, type_) for o in i.operands[1:])
    shift = np.int64(16 if "hi" in i.parts else 0)

    def run() -> None:
        x, y = ((v << v.dtype.type(8) >> v.dtype.type(8)).astype(np.int64) for v in (np.asarray(a()), np.asarray(b())))
        total = (x * y >> shift) + (c[0]().astype(np.int64) if c else 0)
        if "sat" in i.parts:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        put(_u32(total).view(DTYPES[type_]))

    return run


def _pack(m: Machine, pc: int, i: Instruction) -> Run:
    """Build cvt.pack: a and b clamped to a narrow type's range, side by side with b lowest, below c's low bits if there
    is a c."""
    narrow = i.parts[3]
    bits = int(narrow[1:])
    min_value, max_value = (-(1 << bits - 1), (1 << bits - 1) - 1) if narrow[0] == "s" else (0, (1 << bits) - 1)
    put = m.writer(i.operands[0], "u32")
    a, b, *c = (m.reader(o, t) for o, t in zip(i.operands[1:], (i.parts[4], i.parts[4], "u32"), strict=False))

    def run() -> None:
        high, low = (np.clip(v().astype(np.int64), min_value, max_value) & (1 << bits) - 1 for v in (a, b))
        above = c[0]().astype(np.int64) << 2 * bits if c else 0
        put(_u32(above | high << bits | low))

    return run


# The bytes that prmt's modes select for a selector of 0 to 3, lowest first.
_MODES = {
    "f4e": lambda n, k: n + k,
    "b4e": lambda n, k: (n - k) % 8,
    "rc8": lambda n, k: n,
    "ecl": lambda n, k: max(n, k),
    "ecr": lambda n, k: min(n, k),
    "rc16": lambda n, k: 2 * (n & 1) + (k & 1),
}


def _prmt(m: Machine, pc: int, i: Instruction) -> Run:
    """Build a byte permute. The selector names each byte; with a mode, it selects one of four combinations."""
    put, (a, b, c) = m.writer(i.operands[0], "b32"), (m.reader(o, "u32") for o in i.operands[1:])
    if len(i.parts) == 2:
        return lambda: put(integers.prmt(a(), b(), c()))
    choose = _MODES.get(i.parts[2])
    if choose is None:
        raise Unknown(f"unknown opcode {i.opcode}")
    selectors = np.array([sum(choose(n, k) << 4 * k for k in range(4)) for n in range(4)], np.uint32)
    return lambda: put(integers.prmt(a(), b(), selectors[c() & np.uint32(3)]))


BUILDERS = {
    "fns": _of(_fns, "u32", "u32", "s32"),
    "szext": _of(_szext, "u32", "u32"),
    "bmsk": _of(_bmsk, "u32", "u32"),
    "cnot": _cnot,
    "slct": _slct,
    "dp2a": _dp2a,
    "mul24": _mul24,
    "mad24": _mul24,
    "prmt": _prmt,
    "cvt.pack": _pack,
}
