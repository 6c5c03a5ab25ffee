"""Arithmetic: sums, products, fused multiply-adds, extended precision by carry, minima and maxima."""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator.instructions.closure import Build, Run, Unknown
from kernels.engines.emulator.operations import floats, integers, table
from kernels.engines.emulator.operations.dtypes import DTYPES, UNSIGNED, from_bf16, halves, is_float, packed, to_bf16
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine


def _binary(m: Machine, pc: int, i: Instruction) -> Run:
    name, type_ = i.parts[0], i.parts[-1]
    f = table.BINARY[name]
    count = "u32" if name in ("shl", "shr") else type_
    if name in ("add", "sub", "mul", "div"):
        _count_flops(m, pc, type_, 1)
        f = _rounding(i, f)
    if type_ in ("f16x2", "bf16x2"):
        return _on_halves(m, i, f, type_)
    put, a, b = m.writer(i.operands[0], type_), m.reader(i.operands[1], type_), m.reader(i.operands[2], count)
    if name in table.SHIFT and i.operands[2].kind == "imm" and 0 <= i.operands[2].number < 8 * DTYPES[type_]().itemsize:
        shift, by = table.SHIFT[name], DTYPES[type_](i.operands[2].number)
        return lambda: put(shift(a(), by))
    if type_ == "bf16":
        return lambda: put(to_bf16(f(from_bf16(a()), from_bf16(b()))))
    if "sat" in i.parts:
        return lambda: put(_saturated(f(a(), b()), type_, a, b, name))
    return lambda: put(f(a(), b()))


def _count_flops(m: Machine, pc: int, type_: str, each: int) -> None:
    if is_float(type_):
        m.flops(pc, each)
    elif type_ in ("f16x2", "bf16x2"):
        m.flops(pc, 2 * each)


def _rounding(i: Instruction, f):
    """Returns f, or f with the instruction's rounding mode. The default is to nearest even."""
    name, type_ = ("fma" if i.parts[0] == "mad" else i.parts[0]), i.parts[-1]
    mode = next((p for p in i.parts if p in ("rz", "rm", "rp")), None)
    if mode is not None:
        if name not in floats.EXACT or type_ not in ("f32", "f64"):
            raise Unknown(f"unknown opcode {i.opcode}")
        f = floats.in_mode(name, mode)
    if "ftz" in i.parts and type_ == "f32" and name in floats.EXACT:
        return floats.flushing_tiny(name, mode, f)
    if "ftz" in i.parts and type_ in ("f16", "f16x2") and name in ("mul", "fma"):
        return _flushing_halves(f, np.float16 if type_ == "f16" else np.float64)
    return f


def _flushing_halves(f, dtype):
    """Returns f, a product of halves, with .ftz. A pair is rounded where it is packed: its dtype is float64."""

    def g(*values):
        return floats.without_tiny_halves(f(*(v.astype(np.float64) for v in values))).astype(dtype)

    return g


def _saturated(value, type_: str, a, b, name: str):
    """Clamp as .sat does: floats to 0 .. 1, integers to their type's range."""
    if is_float(type_):
        return floats.saturate(value)
    wide, info = a().astype(np.int64), np.iinfo(DTYPES[type_])
    other = b().astype(np.int64)
    return np.clip(wide + other if name == "add" else wide - other, info.min, info.max).astype(info.dtype)


def _on_halves(m: Machine, i: Instruction, f, type_: str) -> Run:
    put, sources = m.writer(i.operands[0], "b32"), [m.reader(o, "b32") for o in i.operands[1:]]
    saturate = floats.saturate if "sat" in i.parts else lambda value: value

    def run() -> None:
        pairs = [halves(source(), type_) for source in sources]
        low, high = (saturate(f(*(pair[n] for pair in pairs))) for n in (0, 1))
        put(packed(low, high, type_))

    return run


def _mul(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = i.parts[-1]
    if is_float(type_) or type_ in ("f16x2", "bf16x2"):
        return _binary(m, pc, i)
    a, b = m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    if "wide" in i.parts:
        wide = _wide(type_)
        put, dtype = m.writer(i.operands[0], wide), DTYPES[wide]
        return lambda: put(a().astype(dtype) * b().astype(dtype))
    put = m.writer(i.operands[0], type_)
    if "hi" in i.parts:
        return lambda: put(integers.mul_hi(a(), b()))
    return lambda: put(a() * b())


def _wide(type_: str) -> str:
    return f"{type_[0]}{2 * int(type_[1:])}"


def _mad(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = i.parts[-1]
    if is_float(type_):
        return _fma(m, pc, i)
    if "sat" in i.parts:
        raise Unknown(f"unknown opcode {i.opcode}")
    if i.parts[0] == "madc" or "cc" in i.parts:
        return _addc(m, pc, i)
    a, b = m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    result = _wide(type_) if "wide" in i.parts else type_
    put, c, dtype = m.writer(i.operands[0], result), m.reader(i.operands[3], result), DTYPES[result]
    if "wide" in i.parts:
        return lambda: put(a().astype(dtype) * b().astype(dtype) + c())
    if "hi" in i.parts:
        return lambda: put(integers.mul_hi(a(), b()) + c())
    return lambda: put(a() * b() + c())


def _fma(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = i.parts[-1]
    relu = "relu" in i.parts
    _count_flops(m, pc, type_, 2)
    if type_ in ("f16x2", "bf16x2"):
        f = _rounding(i, _fma_wide)
        return _on_halves(m, i, (lambda *values: floats.relu(f(*values))) if relu else f, type_)
    put, (a, b, c) = m.writer(i.operands[0], type_), (m.reader(o, type_) for o in i.operands[1:])
    if type_ == "bf16":
        after = floats.relu if relu else lambda value: value
        return lambda: put(to_bf16(after(_fma_wide(*(from_bf16(x()) for x in (a, b, c))))))
    f = _rounding(i, floats.fma)
    if "sat" in i.parts:
        return lambda: put(floats.saturate(f(a(), b(), c())))
    return (lambda: put(floats.relu(f(a(), b(), c())))) if relu else (lambda: put(f(a(), b(), c())))


def _fma_wide(a, b, c):
    """Returns a b + c of a 16-bit type's float32 values, in float64 rounded to odd: the product is exact."""
    return floats.rounded_to_odd(*floats.two_sum(a.astype(np.float64) * b, c.astype(np.float64)))


def _add_or_carry(m: Machine, pc: int, i: Instruction) -> Run:
    return _addc(m, pc, i) if "cc" in i.parts else _binary(m, pc, i)


def _addc(m: Machine, pc: int, i: Instruction) -> Run:
    """Build add.cc, addc, sub.cc, subc, mad.cc, madc. The carry is a separate register.

    A subtraction without a borrow sets it to 1: the hardware adds the complement. 128-bit division depends on that.
    """
    base, type_ = i.parts[0], i.parts[-1]
    unsigned = UNSIGNED[DTYPES[type_]().itemsize]
    put, (a, b) = m.writer(i.operands[0], type_), (m.reader(o, f"u{type_[1:]}") for o in i.operands[-2:])
    if base in ("mad", "madc"):
        first, second = (m.reader(o, type_) for o in i.operands[1:3])
        high = "hi" in i.parts

        def a():
            product = integers.mul_hi(first(), second()) if high else first() * second()
            return product.view(unsigned)

    subtract, with_carry, sets = base.startswith("sub"), base.endswith("c"), "cc" in i.parts

    def run() -> None:
        x, y = a(), b()
        if subtract:
            y = ~y
        carry = m.carry.astype(unsigned) if with_carry else unsigned(subtract)
        out = x + y + carry
        m.carry = ((out < x) | ((carry == 1) & (out == x))) if sets else m.carry
        put(out.view(DTYPES[type_]))

    return run


def _unary(m: Machine, pc: int, i: Instruction) -> Run:
    name, type_ = i.parts[0], i.parts[-1]
    f = _rounding(i, table.UNARY[name])
    if {"approx", "ftz"} <= set(i.parts) and type_ == "f64":
        f = floats.of_upper_words(f)
    if type_ in ("f16x2", "bf16x2"):
        return _on_halves(m, i, f, type_)
    result = "u32" if name in ("popc", "clz") else type_
    put, a = m.writer(i.operands[0], result), m.reader(i.operands[1], type_)
    if type_ == "bf16":
        return lambda: put(to_bf16(f(from_bf16(a()))))
    return lambda: put(f(a()))


def _minmax(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = i.parts[-1]
    whole, ordered, of_zeros = table.MINMAX[i.parts[0]]
    f = whole
    if type_.startswith(("f", "bf")):
        f = _with_zeros(whole if "NaN" in i.parts else ordered, of_zeros)
    if "xorsign" in i.parts:
        f = _xor_of_signs(f)
    if "relu" in i.parts:
        if type_ != "s32":
            raise Unknown(f"unknown opcode {i.opcode}")
        f = _not_negative(f)
    if type_ in ("f16x2", "bf16x2"):
        return _on_halves(m, i, f, type_)
    put, a, b = m.writer(i.operands[0], type_), m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    if type_ == "bf16":
        return lambda: put(to_bf16(f(from_bf16(a()), from_bf16(b()))))
    return lambda: put(f(a(), b()))


def _with_zeros(f, of_zeros):
    """Returns a minimum or maximum f that orders the two zeros."""

    def g(a, b):
        value, zeros = f(a, b), (a == 0) & (b == 0)
        return np.where(zeros, of_zeros(a, b), value) if zeros.any() else value

    return g


def _not_negative(f):
    """Returns .relu of f: 0 for a negative result."""
    return lambda a, b: np.maximum(f(a, b), a.dtype.type(0))


def _xor_of_signs(f):
    """Return .xorsign.abs of f: f of the magnitudes, with the sign of the product."""
    return lambda a, b: np.copysign(f(np.abs(a), np.abs(b)), np.where(np.signbit(a) ^ np.signbit(b), -1, 1)).astype(
        a.dtype
    )


def _sad(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = i.parts[-1]
    put, (a, b, c) = m.writer(i.operands[0], type_), (m.reader(o, type_) for o in i.operands[1:])
    return lambda: put(c() + np.where(a() > b(), a() - b(), b() - a()))


def _dp4a(m: Machine, pc: int, i: Instruction) -> Run:
    a_signed, b_signed = i.parts[1] == "s32", i.parts[2] == "s32"
    put, (a, b, c) = m.writer(i.operands[0], "u32"), (m.reader(o, "u32") for o in i.operands[1:])
    m.flops(pc, 8, "flops_dp4a")
    return lambda: put(integers.dp4a(a(), b(), c(), a_signed, b_signed))


BUILDERS: dict[str, Build] = {
    **dict.fromkeys(table.BINARY, _binary),
    **dict.fromkeys(table.UNARY, _unary),
    **dict.fromkeys(table.MINMAX, _minmax),
    "add": _add_or_carry,
    "sub": _add_or_carry,
    "addc": _addc,
    "subc": _addc,
    "mul": _mul,
    "mad": _mad,
    "madc": _mad,
    "fma": _fma,
    "dp4a": _dp4a,
    "sad": _sad,
}
