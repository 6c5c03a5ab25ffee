"""Moves and conversions between types and state spaces."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.instructions import fp8
from kernels.engines.emulator.instructions.closure import Build, Run, Unknown
from kernels.engines.emulator.memory import WINDOWS
from kernels.engines.emulator.operations import conversions
from kernels.engines.emulator.operations.dtypes import DTYPES, halves, is_float, packed
from kernels.engines.emulator.operations.floats import relu
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine


def _mov(m: Machine, pc: int, i: Instruction) -> Run:
    target, source = i.operands
    type_ = i.parts[-1]
    if source.kind == "vector":  # pack: the first is the lowest
        part = f"b{int(type_[1:]) // len(source.inner)}"
        parts, dtype, bits = [m.reader(o, part) for o in source.inner], DTYPES[type_], int(part[1:])
        put = m.writer(target, type_)

        def pack() -> None:
            total = parts[0]().astype(dtype)
            for n, read in enumerate(parts[1:], 1):
                total = total | (read().astype(dtype) << dtype(n * bits))
            put(total)

        return pack
    read = m.reader(source, type_)
    if target.kind == "vector":  # unpack
        bits = int(type_[1:]) // len(target.inner)
        puts, narrow = [m.writer(o, f"b{bits}") for o in target.inner], DTYPES[f"b{bits}"]
        wide = DTYPES[type_]

        def unpack() -> None:
            value = read()
            for n, put in enumerate(puts):
                put((value >> wide(n * bits)).astype(narrow))

        return unpack
    put = m.writer(target, type_)
    return lambda: put(read())


def _cvt(m: Machine, pc: int, i: Instruction) -> Run:
    parts = i.parts
    to, from_ = parts[-2], parts[-1]
    modifiers = set(parts[1:-2])
    if to in fp8.PAIRS or from_ in fp8.PAIRS:
        return _cvt_fp8(m, i, to, from_)
    if to in ("f16x2", "bf16x2"):
        put = m.writer(i.operands[0], "b32")
        high, low = m.reader(i.operands[1], "f32"), m.reader(i.operands[2], "f32")
        if modifiers == {"rn", "relu"}:
            return lambda: put(packed(relu(low()), relu(high()), to))
        if modifiers != {"rn"}:
            raise Unknown(f"unknown opcode {i.opcode}")
        return lambda: put(packed(low(), high(), to))
    if "relu" in modifiers or "satfinite" in modifiers:
        raise Unknown(f"unknown opcode {i.opcode}")
    if to == "tf32":
        put, bits = m.writer(i.operands[0], "b32"), m.reader(i.operands[1], "b32")
        return lambda: put((bits() + np.uint32(0x1000)) & np.uint32(0xFFFFE000))  # nearest, ties away
    put, a = m.writer(i.operands[0], to), m.reader(i.operands[1], from_)
    if to != "bf16" and not is_float(from_) and modifiers <= {"rn"}:
        dtype = DTYPES[to]
        if to in ("f32", "f64") and from_ in ("s32", "u32"):  # for one thread a call is faster, and as exact
            return lambda: put(v.astype(dtype) if (v := a()).ndim else dtype(v))
        return lambda: put(a().astype(dtype))
    return lambda: put(conversions.convert(a(), to, from_, modifiers))


def _cvt_fp8(m: Machine, i: Instruction, to: str, from_: str) -> Run:
    """Build a conversion between a pair of 8-bit floats and two floats or a pair of halves."""
    if "relu" in i.parts or {to, from_} & {"bf16x2"}:
        raise Unknown(f"unknown opcode {i.opcode}")
    if to == "f16x2":
        put, a = m.writer(i.operands[0], "b32"), m.reader(i.operands[1], "b16")
        return lambda: put(fp8.unpack(a(), fp8.PAIRS[from_]))
    put, name = m.writer(i.operands[0], "b16"), fp8.PAIRS[to]
    if from_ == "f32":
        high, low = m.reader(i.operands[1], "f32"), m.reader(i.operands[2], "f32")
        return lambda: put(fp8.pack(high(), low(), name))
    pair = m.reader(i.operands[1], "b32")

    def run() -> None:
        low, high = halves(pair(), from_)
        put(fp8.pack(high, low, name))

    return run


def _cvta(m: Machine, pc: int, i: Instruction) -> Run:
    put, a = m.writer(i.operands[0], "u64"), m.reader(i.operands[1], "u64")
    window = np.uint64(WINDOWS.get(i.parts[2 if "to" in i.parts else 1], 0))
    return (lambda: put(a() - window)) if "to" in i.parts else (lambda: put(a() + window))


BUILDERS: dict[str, Build] = {"mov": _mov, "cvt": _cvt, "cvta": _cvta}
