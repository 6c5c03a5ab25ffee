"""Comparisons, classes of floats, and selection by a predicate."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.instructions.closure import Build, Run, Unknown
from kernels.engines.emulator.operations import table
from kernels.engines.emulator.operations.dtypes import DTYPES, from_bf16, halves, is_float, packed, to_bf16
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine


def _setp(m: Machine, pc: int, i: Instruction) -> Run:
    parts, type_ = i.parts, i.parts[-1]
    op = parts[1]
    if op in ("eq", "ne", "lt", "le", "gt", "ge") and type_[0] in "bus" and type_ != "bf16":
        f = table.COMPARE[op]
    else:

        def f(a, b):
            return table.compare(op, a, b)

    target = i.operands[0]
    first, second = target.inner if target.kind == "vector" else (target, None)
    put = m.writer(first, "pred")
    complement = m.writer(second, "pred") if second is not None else None
    a, b = m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    if type_ == "bf16":
        a, b = _bf16(a), _bf16(b)
    combine = next((table.BINARY[p] for p in parts[2:-1] if p in ("and", "or", "xor")), None)
    if combine is None and complement is None:
        return lambda: put(f(a(), b()))
    c = m.reader(i.operands[3], "pred") if combine is not None else None

    def run() -> None:
        result = f(a(), b())
        put(combine(result, c()) if combine and c else result)
        if complement:
            complement(combine(~result, c()) if combine and c else ~result)

    return run


def _bf16(read):
    return lambda: from_bf16(read())


def _set(m: Machine, pc: int, i: Instruction) -> Run:
    """Build set: a comparison whose result is a number: 1 (floats) or all ones if true, else 0."""
    op, to, type_ = i.parts[1], i.parts[-2], i.parts[-1]
    if len(i.operands) != 3:
        raise Unknown(f"unknown opcode {i.opcode}")
    if type_ in ("f16x2", "bf16x2"):
        return _set_halves(m, i)
    put, a, b = m.writer(i.operands[0], to), m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    if type_ == "bf16":
        a, b = _bf16(a), _bf16(b)
    if to == "bf16":
        return lambda: put(to_bf16(table.compare(op, a(), b()).astype(np.float32)))
    zero = DTYPES[to](0)
    true = DTYPES[to](1) if is_float(to) else np.array(-1).astype(DTYPES[to])
    return lambda: put(np.where(table.compare(op, a(), b()), true, zero))


def _set_halves(m: Machine, i: Instruction) -> Run:
    """Build set of both halves: the result is a pair of floats, or two masks of 16 bits."""
    op, to, type_ = i.parts[1], i.parts[-2], i.parts[-1]
    put, a, b = m.writer(i.operands[0], "b32"), m.reader(i.operands[1], "b32"), m.reader(i.operands[2], "b32")

    def run() -> None:
        pairs = zip(halves(a(), type_), halves(b(), type_), strict=True)
        low, high = (table.compare(op, x, y) for x, y in pairs)
        if to == type_:
            put(packed(low.astype(np.float32), high.astype(np.float32), to))
        else:
            zero, lower, upper = np.uint32(0), np.uint32(0xFFFF), np.uint32(0xFFFF0000)
            put(np.where(low, lower, zero) | np.where(high, upper, zero))

    return run


def _testp(m: Machine, pc: int, i: Instruction) -> Run:
    put, a = m.writer(i.operands[0], "pred"), m.reader(i.operands[1], i.parts[-1])
    smallest_normal = np.finfo(DTYPES[i.parts[-1]]).tiny
    f = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda v: ~np.isnan(v),
        "notanumber": np.isnan,
        "normal": lambda v: np.isfinite(v) & ((v == 0) | (np.abs(v) >= smallest_normal)),
        "subnormal": lambda v: (v != 0) & (np.abs(v) < smallest_normal),
    }[i.parts[1]]
    return lambda: put(f(a()))


def _selp(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = i.parts[-1]
    put, a, b = m.writer(i.operands[0], type_), m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    p = m.reader(i.operands[3], "pred")

    def run() -> None:
        take = p()
        put((a() if take else b()) if take.ndim == 0 else np.where(take, a(), b()))

    return run


BUILDERS: dict[str, Build] = {"setp": _setp, "set": _set, "testp": _testp, "selp": _selp}
