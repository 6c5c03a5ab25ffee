"""Builders of closures for arithmetic. A closure runs one instruction for all active threads at once.

A register is a NumPy array over thread slots, or a NumPy scalar if all threads have the same value.
"""

from __future__ import annotations

import numpy as np

from kernels.engines.emulator import operations
from kernels.engines.emulator.instructions import fp8
from kernels.engines.emulator.instructions.closure import Build, Run, Unknown
from kernels.engines.emulator.memory import WINDOWS
from kernels.engines.emulator.operations import DTYPES, UNSIGNED
from kernels.engines.emulator.ptx.kernel import Instruction
from kernels.engines.emulator.state import Machine


def _type(i: Instruction) -> str:
    """Return the last type of an opcode, in which it computes."""
    return i.parts[-1]


def _binary(m: Machine, pc: int, i: Instruction) -> Run:
    name, type_ = i.parts[0], _type(i)
    f = operations.BINARY[name]
    count = "u32" if name in ("shl", "shr") else type_
    if name in ("add", "sub", "mul", "div"):
        _count_flops(m, pc, type_, 1)
        f = _rounding(i, f)
    if type_ in ("f16x2", "bf16x2"):
        return _on_halves(m, i, f, type_)
    put, a, b = m.writer(i.operands[0], type_), m.reader(i.operands[1], type_), m.reader(i.operands[2], count)
    if type_ == "bf16":
        return lambda: put(operations.to_bf16(f(operations.from_bf16(a()), operations.from_bf16(b()))))
    if "sat" in i.parts:
        return lambda: put(_saturated(f(a(), b()), type_, a, b, name))
    return lambda: put(f(a(), b()))


def _count_flops(m: Machine, pc: int, type_: str, each: int) -> None:
    if operations.is_float(type_):
        m.flops(pc, each)
    elif type_ in ("f16x2", "bf16x2"):
        m.flops(pc, 2 * each)


def _rounding(i: Instruction, f):
    """Return f, or f with the instruction's rounding mode. The default is to nearest even."""
    mode = next((p for p in i.parts if p in ("rz", "rm", "rp")), None)
    if mode is None:
        return f
    if i.parts[0] not in operations.EXACT or _type(i) not in ("f32", "f64"):
        raise Unknown(f"unknown opcode {i.opcode}")
    return operations.in_mode(i.parts[0], mode)


def _saturated(value, type_: str, a, b, name: str):
    """Clamp as .sat does: floats to 0 .. 1, integers to their type's range."""
    if operations.is_float(type_):
        return operations.saturate(value)
    wide, info = a().astype(np.int64), np.iinfo(DTYPES[type_])
    other = b().astype(np.int64)
    return np.clip(wide + other if name == "add" else wide - other, info.min, info.max).astype(info.dtype)


def _on_halves(m: Machine, i: Instruction, f, type_: str) -> Run:
    put, sources = m.writer(i.operands[0], "b32"), [m.reader(o, "b32") for o in i.operands[1:]]
    saturate = operations.saturate if "sat" in i.parts else lambda value: value

    def run() -> None:
        pairs = [operations.halves(source(), type_) for source in sources]
        low, high = (saturate(f(*(pair[n] for pair in pairs))) for n in (0, 1))
        put(operations.packed(low, high, type_))

    return run


def _mul(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = _type(i)
    if operations.is_float(type_) or type_ in ("f16x2", "bf16x2"):
        return _binary(m, pc, i)
    a, b = m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    if "wide" in i.parts:
        wide = _wide(type_)
        put, dtype = m.writer(i.operands[0], wide), DTYPES[wide]
        return lambda: put(a().astype(dtype) * b().astype(dtype))
    put = m.writer(i.operands[0], type_)
    if "hi" in i.parts:
        return lambda: put(operations.mul_hi(a(), b()))
    return lambda: put(a() * b())


def _wide(type_: str) -> str:
    return f"{type_[0]}{2 * int(type_[1:])}"


def _mad(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = _type(i)
    if operations.is_float(type_):
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
        return lambda: put(operations.mul_hi(a(), b()) + c())
    return lambda: put(a() * b() + c())


def _fma(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = _type(i)
    relu = "relu" in i.parts
    _count_flops(m, pc, type_, 2)
    if type_ in ("f16x2", "bf16x2"):
        return _on_halves(
            m, i, (lambda a, b, c: np.maximum(_fma_wide(a, b, c), 0)) if relu else _fma_wide, type_
        )
    put, (a, b, c) = m.writer(i.operands[0], type_), (m.reader(o, type_) for o in i.operands[1:])
    if type_ == "bf16":
        return lambda: put(operations.to_bf16(_fma_wide(*(operations.from_bf16(x()) for x in (a, b, c)))))
    f = _rounding(i, operations.fma)
    if "sat" in i.parts:
        return lambda: put(operations.saturate(f(a(), b(), c())))
    return (lambda: put(np.maximum(f(a(), b(), c()), 0))) if relu else (lambda: put(f(a(), b(), c())))


def _fma_wide(a, b, c):
    """Return a b + c of a 16-bit type's float32 values. The product is exact, the float64 sum nearly exact."""
    return a.astype(np.float64) * b + c


def _unary(m: Machine, pc: int, i: Instruction) -> Run:
    name, type_ = i.parts[0], _type(i)
    f = _rounding(i, operations.UNARY[name])
    if type_ in ("f16x2", "bf16x2"):
        return _on_halves(m, i, f, type_)
    result = "u32" if name in ("popc", "clz") else type_
    put, a = m.writer(i.operands[0], result), m.reader(i.operands[1], type_)
    if type_ == "bf16":
        return lambda: put(operations.to_bf16(f(operations.from_bf16(a()))))
    return lambda: put(f(a()))


def _minmax(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = _type(i)
    whole, ordered = operations.MINMAX[i.parts[0]]
    f = whole if not type_.startswith(("f", "bf")) or "NaN" in i.parts else ordered
    if "xorsign" in i.parts:
        f = _xor_of_signs(f)
    if type_ in ("f16x2", "bf16x2"):
        return _on_halves(m, i, f, type_)
    put, a, b = m.writer(i.operands[0], type_), m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    if type_ == "bf16":
        return lambda: put(operations.to_bf16(f(operations.from_bf16(a()), operations.from_bf16(b()))))
    return lambda: put(f(a(), b()))


def _xor_of_signs(f):
    """Return .xorsign.abs of f: f of the magnitudes, with the sign of the product."""
    return lambda a, b: np.copysign(
        f(np.abs(a), np.abs(b)), np.where(np.signbit(a) ^ np.signbit(b), -1, 1)
    ).astype(a.dtype)


def _mov(m: Machine, pc: int, i: Instruction) -> Run:
    target, source = i.operands
    type_ = _type(i)
    if source.kind == "vector":  # pack: the first is the lowest
        part = f"b{int(type_[1:]) // len(source.value)}"
        parts, dtype, bits = [m.reader(o, part) for o in source.value], DTYPES[type_], int(part[1:])
        put = m.writer(target, type_)

        def pack() -> None:
            total = parts[0]().astype(dtype)
            for n, read in enumerate(parts[1:], 1):
                total = total | (read().astype(dtype) << dtype(n * bits))
            put(total)

        return pack
    read = m.reader(source, type_)
    if target.kind == "vector":  # unpack
        bits = int(type_[1:]) // len(target.value)
        puts, narrow = [m.writer(o, f"b{bits}") for o in target.value], DTYPES[f"b{bits}"]
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
            return lambda: put(operations.packed(np.maximum(low(), 0), np.maximum(high(), 0), to))
        if modifiers != {"rn"}:
            raise Unknown(f"unknown opcode {i.opcode}")
        return lambda: put(operations.packed(low(), high(), to))
    if "relu" in modifiers or "satfinite" in modifiers:
        raise Unknown(f"unknown opcode {i.opcode}")
    if to == "tf32":
        put, bits = m.writer(i.operands[0], "b32"), m.reader(i.operands[1], "b32")
        return lambda: put((bits() + np.uint32(0x1000)) & np.uint32(0xFFFFE000))  # nearest, ties away
    put, a = m.writer(i.operands[0], to), m.reader(i.operands[1], from_)
    if to != "bf16" and not operations.is_float(from_) and modifiers <= {"rn"}:
        dtype = DTYPES[to]
        if to in ("f32", "f64") and from_ in ("s32", "u32"):  # for one thread a call is faster, and as exact
            return lambda: put(v.astype(dtype) if (v := a()).ndim else dtype(v))
        return lambda: put(a().astype(dtype))
    return lambda: put(operations.convert(a(), to, from_, modifiers))


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
    return lambda: put(fp8.pack(*operations.halves(pair(), from_)[::-1], name))


def _cvta(m: Machine, pc: int, i: Instruction) -> Run:
    put, a = m.writer(i.operands[0], "u64"), m.reader(i.operands[1], "u64")
    window = np.uint64(WINDOWS.get(i.parts[2 if "to" in i.parts else 1], 0))
    return (lambda: put(a() - window)) if "to" in i.parts else (lambda: put(a() + window))


def _setp(m: Machine, pc: int, i: Instruction) -> Run:
    parts, type_ = i.parts, _type(i)
    op = parts[1]
    if op in ("eq", "ne", "lt", "le", "gt", "ge") and type_[0] in "bus" and type_ != "bf16":
        f = operations.COMPARE[op]
    else:

        def f(a, b):
            return operations.compare(op, a, b)

    target = i.operands[0]
    first, second = (target.value if target.kind == "vector" else (target, None))  # fmt: skip
    put = m.writer(first, "pred")
    complement = m.writer(second, "pred") if second is not None else None
    a, b = m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    if type_ == "bf16":
        a, b = _bf16(a), _bf16(b)
    combine = next((operations.BINARY[p] for p in parts[2:-1] if p in ("and", "or", "xor")), None)
    if combine is None and complement is None:
        return lambda: put(f(a(), b()))
    c = m.reader(i.operands[3], "pred") if combine is not None else None

    def run() -> None:
        result = f(a(), b())
        put(combine(result, c()) if c else result)
        if complement:
            complement(combine(~result, c()) if c else ~result)

    return run


def _bf16(read):
    return lambda: operations.from_bf16(read())


def _selp(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = _type(i)
    put, a, b = m.writer(i.operands[0], type_), m.reader(i.operands[1], type_), m.reader(i.operands[2], type_)
    p = m.reader(i.operands[3], "pred")

    def run() -> None:
        take = p()
        put((a() if take else b()) if take.ndim == 0 else np.where(take, a(), b()))

    return run


def _three(f):
    """Return the builder of an opcode whose last two sources are u32 and whose other ones have its type."""

    def build(m: Machine, pc: int, i: Instruction) -> Run:
        type_ = _type(i)
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
    first, nonzero = target.value if target.kind == "vector" else (target, None)
    put, (a, b, c) = m.writer(first, "b32"), (m.reader(o, "b32") for o in i.operands[1:4])
    lut = int(i.operands[4].value)
    if nonzero is None:
        return lambda: put(operations.lop3(a(), b(), c(), lut))
    combine, put_nonzero = operations.BINARY[i.parts[1]], m.writer(nonzero, "pred")
    condition = m.reader(i.operands[5], "pred")

    def run() -> None:
        result = operations.lop3(a(), b(), c(), lut)
        put(result)
        put_nonzero(combine(result != 0, condition()))

    return run


def _shf(m: Machine, pc: int, i: Instruction) -> Run:
    put, (a, b, c) = m.writer(i.operands[0], "b32"), (m.reader(o, "u32") for o in i.operands[1:])
    left, wrap = i.parts[1] == "l", i.parts[2] == "wrap"
    return lambda: put(operations.shf(a(), b(), c(), left, wrap))


def _dp4a(m: Machine, pc: int, i: Instruction) -> Run:
    a_signed, b_signed = i.parts[1] == "s32", i.parts[2] == "s32"
    put, (a, b, c) = m.writer(i.operands[0], "u32"), (m.reader(o, "u32") for o in i.operands[1:])
    m.flops(pc, 8, "flops_dp4a")
    return lambda: put(operations.dp4a(a(), b(), c(), a_signed, b_signed))


def _addc(m: Machine, pc: int, i: Instruction) -> Run:
    """Build add.cc, addc, sub.cc, subc, mad.cc, madc. The carry is a separate register.

    A subtraction without a borrow sets it to 1: the hardware adds the complement. 128-bit division depends on that.
    """
    base, type_ = i.parts[0], _type(i)
    unsigned = UNSIGNED[DTYPES[type_]().itemsize]
    put, (a, b) = m.writer(i.operands[0], type_), (m.reader(o, f"u{type_[1:]}") for o in i.operands[-2:])
    if base in ("mad", "madc"):
        first, second = (m.reader(o, type_) for o in i.operands[1:3])
        high = "hi" in i.parts

        def a():
            product = operations.mul_hi(first(), second()) if high else first() * second()
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


def _add_or_carry(m: Machine, pc: int, i: Instruction) -> Run:
    return _addc(m, pc, i) if "cc" in i.parts else _binary(m, pc, i)


def _bfind(m: Machine, pc: int, i: Instruction) -> Run:
    put, a = m.writer(i.operands[0], "u32"), m.reader(i.operands[1], _type(i))
    if "shiftamt" not in i.parts:
        return lambda: put(operations.bfind(a()))
    top = np.uint32(8 * DTYPES[_type(i)]().itemsize - 1)

    def run() -> None:
        found = operations.bfind(a())
        put(np.where(found == np.uint32(0xFFFFFFFF), found, top - found))

    return run


def _set(m: Machine, pc: int, i: Instruction) -> Run:
    """Build set: a comparison whose result is a number: 1 (floats) or all ones if true, else 0; pairs by halves."""
    op, to, type_ = i.parts[1], i.parts[-2], i.parts[-1]
    if len(i.operands) != 3:
        raise Unknown(f"unknown opcode {i.opcode}")
    pair = type_ in ("f16x2", "bf16x2")
    read = "b32" if pair else type_
    put, a, b = (
        m.writer(i.operands[0], "b32" if pair else to),
        m.reader(i.operands[1], read),
        m.reader(i.operands[2], read),
    )

    def run() -> None:
        if not pair:
            x, y = (operations.from_bf16(v()) if type_ == "bf16" else v() for v in (a, b))
            truth = operations.compare(op, x, y)
            if to == "bf16":
                put(operations.to_bf16(truth.astype(np.float32)))
            else:
                one = DTYPES[to](1) if operations.is_float(to) else np.array(-1).astype(DTYPES[to])
                put(np.where(truth, one, DTYPES[to](0)))
            return
        low, high = (
            operations.compare(op, *h)
            for h in zip(operations.halves(a(), type_), operations.halves(b(), type_), strict=True)
        )
        if to == type_:
            put(operations.packed(low.astype(np.float32), high.astype(np.float32), to))
        else:
            put(
                np.where(low, np.uint32(0xFFFF), np.uint32(0))
                | np.where(high, np.uint32(0xFFFF0000), np.uint32(0))
            )

    return run


def _sad(m: Machine, pc: int, i: Instruction) -> Run:
    type_ = _type(i)
    put, (a, b, c) = m.writer(i.operands[0], type_), (m.reader(o, type_) for o in i.operands[1:])
    return lambda: put(c() + np.where(a() > b(), a() - b(), b() - a()))


def _testp(m: Machine, pc: int, i: Instruction) -> Run:
    put, a = m.writer(i.operands[0], "pred"), m.reader(i.operands[1], _type(i))
    smallest_normal = np.finfo(DTYPES[_type(i)]).tiny
    f = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda v: ~np.isnan(v),
        "notanumber": np.isnan,
        "normal": lambda v: np.isfinite(v) & (np.abs(v) >= smallest_normal),
        "subnormal": lambda v: (v != 0) & (np.abs(v) < smallest_normal),
    }[i.parts[1]]
    return lambda: put(f(a()))


ARITHMETIC: dict[str, Build] = {
    **dict.fromkeys(operations.BINARY, _binary),
    **dict.fromkeys(operations.UNARY, _unary),
    **dict.fromkeys(operations.MINMAX, _minmax),
    "add": _add_or_carry, "sub": _add_or_carry, "addc": _addc, "subc": _addc,
    "mul": _mul, "mad": _mad, "madc": _mad, "fma": _fma, "mov": _mov, "cvt": _cvt, "cvta": _cvta,
    "setp": _setp, "selp": _selp, "bfe": _three(operations.bfe), "bfi": _three(operations.bfi),
    "lop3": _lop3, "shf": _shf, "dp4a": _dp4a, "sad": _sad, "bfind": _bfind, "set": _set, "testp": _testp,
}  # fmt: skip
