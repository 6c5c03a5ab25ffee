"""Bits of a word: fields, any function of three bits, funnel shifts, the highest set bit."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.instructions.closure import Build, Run
from kernels.engines.emulator.operations import integers, table
from kernels.engines.emulator.operations.dtypes import DTYPES
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine


def _three(f):
    """Returns the builder of an opcode whose last two sources are u32 and whose other ones have its type."""

    def build(m: Machine, pc: int, i: Instruction) -> Run:
        type_ = i.parts[-1]
        count = len(i.operands) - 1
        types = [type_] * (count - 2) + ["u32", "u32"]
        put, sources = (
            m.writer(i.operands[0], type_),
            [m.reader(o, t) for o, t in zip(i.operands[1:], types, strict=True)],
        )
        return lambda: put(f(*(s() for s in sources)))

    return build


def _lop3(m: Machine, pc: int, i: Instruction) -> Run:
    """Build lop3.b32. With .and, .or or .xor it also writes whether the result is not zero, combined with a
    predicate."""
    target = i.operands[0]
    first, nonzero = target.inner if target.kind == "vector" else (target, None)
    put, (a, b, c) = m.writer(first, "b32"), (m.reader(o, "b32") for o in i.operands[1:4])
    lut = i.operands[4].number
    if nonzero is None:
        return lambda: put(integers.lop3(a(), b(), c(), lut))
    combine, put_nonzero = table.BINARY[i.parts[1]], m.writer(nonzero, "pred")
    condition = m.reader(i.operands[5], "pred")

    def run() -> None:
        result = integers.lop3(a(), b(), c(), lut)
        put(result)
        put_nonzero(combine(result != 0, condition()))

    return run


def _shf(m: Machine, pc: int, i: Instruction) -> Run:
    put, (a, b, c) = m.writer(i.operands[0], "b32"), (m.reader(o, "u32") for o in i.operands[1:])
    left, wrap = i.parts[1] == "l", i.parts[2] == "wrap"
    return lambda: put(integers.shf(a(), b(), c(), left, wrap))


def _bfind(m: Machine, pc: int, i: Instruction) -> Run:
    put, a = m.writer(i.operands[0], "u32"), m.reader(i.operands[1], i.parts[-1])
    if "shiftamt" not in i.parts:
        return lambda: put(integers.bfind(a()))
    top = np.uint32(8 * DTYPES[i.parts[-1]]().itemsize - 1)

    def run() -> None:
        found = integers.bfind(a())
        put(np.where(found == np.uint32(0xFFFFFFFF), found, top - found))

    return run


BUILDERS: dict[str, Build] = {
    "bfe": _three(integers.bfe),
    "bfi": _three(integers.bfi),
    "lop3": _lop3,
    "shf": _shf,
    "bfind": _bfind,
}
