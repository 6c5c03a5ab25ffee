"""The instructions that compute: a handler for each opcode, by the types of its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir

from kernels.engines.emulator.memory import WINDOWS
from kernels.engines.emulator.native.emit import F64, I1, I32, I64, SCALARS, Emit, Emitter, constant, vector
from kernels.engines.emulator.native.record import CHECK, INFINITY, NAN

Build = Callable[..., Any]
TYPES = frozenset(SCALARS)
BASES = frozenset(
    "add sub mul mad fma div rem min max and or xor not neg abs shl shr sqrt rcp mov selp setp cvt "
    "popc clz brev bfe shf".split()
)


@dataclass(frozen=True)
class Operation:
    """A handler's name, the types of its operands (the result first), what emits it, and floating-point operations."""

    name: str
    types: tuple[str, ...]
    emit: Emit
    flops: int = 0  # of a thread

    @property
    def makes_nan(self) -> bool:
        """Whether it may make NaN or infinity of other numbers."""
        return self.name.partition(".")[0] in _MAKE_NAN and is_float(self.types[0]) and is_float(self.types[-1])


def _bits(type_: str) -> int:
    return int(type_.lstrip("abcdefghijklmnopqrstuvwxyz"))


def is_float(type_: str) -> bool:
    return type_ in ("f32", "f64")


def _simple(name: str, types: tuple[str, ...], f: Build, flops: int = 0) -> Operation:
    base = name.partition(".")[0]

    def emit(e: Emitter) -> None:
        operands = [e.operand(n, t) for n, t in enumerate(types[1:], 1)]
        value = f(e, *operands)
        if op.makes_nan:
            _check_finite(e, value, operands)
        if base in _EXACT and types[0] in ("b32", "u32", "s32") and ".hi" not in name:
            _check_wraps(e, value, operands, _EXACT[base])
        e.put(0, types[0], value)
        e.done()

    op = Operation(name, types, emit, flops)
    return op


# Instructions of floats that `first_nan` looks at.
_MAKE_NAN = {"add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "cvt"}


def _check_finite(e: Emitter, value: Any, operands: Sequence[Any]) -> None:
    """Return 1 if the record asks for it and an active lane makes NaN or infinity of other numbers."""
    b, check = e.b, e.field(CHECK)

    def not_finite(v: Any) -> Any:
        return b.not_(b.fcmp_ordered("<", e.call("fabs", v), constant(float("inf"), v.type.element)))

    def is_nan(v: Any) -> Any:
        return b.fcmp_unordered("uno", v, v)

    with b.if_then(b.icmp_unsigned("!=", check, I64(0))):
        beyond = b.bitcast(b.and_(not_finite(value), e.lanes), I32)
        with b.if_then(b.icmp_unsigned("!=", beyond, I32(0)), likely=False):
            for bit, kind in ((NAN, is_nan), (INFINITY, not_finite)):
                made = b.and_(kind(value), e.lanes)
                for operand in operands:
                    made = b.and_(made, b.not_(kind(operand)))
                wanted = b.icmp_unsigned("!=", b.and_(check, I64(bit)), I64(0))
                e.leave_if(b.and_(wanted, b.icmp_unsigned("!=", b.bitcast(made, I32), I32(0))))


# The exact results of whole numbers of 32 bits, of operands with 64.
_EXACT: dict[str, Build] = {
    "add": lambda e, x, y: e.b.add(x, y),
    "sub": lambda e, x, y: e.b.sub(x, y),
    "mul": lambda e, x, y: e.b.mul(x, y),
    "mad": lambda e, x, y, z: e.b.add(e.b.mul(x, y), z),
    "shl": lambda e, x, n: e.b.select(
        e.b.icmp_unsigned("<", n, constant(32, I64)), e.b.shl(x, e.call("umin", n, constant(31, I64))), constant(0, I64)
    ),
}


def _check_wraps(e: Emitter, value: Any, operands: Sequence[Any], exact: Build) -> None:
    """Return 1 if the record asks for it and an active lane's signed result is not exact."""
    b, wide = e.b, vector(I64)
    with b.if_then(b.icmp_unsigned("!=", e.field(CHECK), I64(0)), likely=False):
        wrong = b.icmp_unsigned("!=", b.sext(value, wide), exact(e, *(b.sext(o, wide) for o in operands)))
        e.unless(b.icmp_unsigned("==", b.bitcast(b.and_(wrong, e.lanes), I32), I32(0)))


def _shift(left: bool, signed: bool) -> Build:
    def f(e: Emitter, a, count):
        bits = a.type.element.width
        wide = constant(bits - 1, count.type.element)
        clamped = e.call("umin", count, wide)
        clamped = e.b.zext(clamped, a.type) if bits == 64 else e.b.trunc(clamped, a.type) if bits == 16 else clamped
        if signed and not left:
            return e.b.ashr(a, clamped)
        shifted = e.b.shl(a, clamped) if left else e.b.lshr(a, clamped)
        return e.b.select(e.b.icmp_unsigned(">", count, wide), constant(0, a.type.element), shifted)

    return f


def _extended(e: Emitter, value, bits: int, signed: bool):
    to = vector(ir.IntType(bits))
    return e.b.sext(value, to) if signed else e.b.zext(value, to)


def _wide(signed: bool) -> Build:
    def f(e: Emitter, a, b):
        bits = 2 * a.type.element.width
        return e.b.mul(_extended(e, a, bits, signed), _extended(e, b, bits, signed))

    return f


def _high(signed: bool) -> Build:
    def f(e: Emitter, a, b):
        bits = a.type.element.width
        product = _wide(signed)(e, a, b)
        return e.b.trunc(e.b.lshr(product, constant(bits, product.type.element)), a.type)

    return f


def _divided(signed: bool, remainder: bool) -> Build:
    """C's division: by zero it is all ones, and the smallest number by -1 is itself."""

    def f(e: Emitter, a, b):
        element = a.type.element
        zero = e.b.icmp_unsigned("==", b, constant(0, element))
        bad = zero
        if signed:
            least = e.b.icmp_unsigned("==", a, constant(1 << element.width - 1, element))
            bad = e.b.or_(zero, e.b.and_(least, e.b.icmp_unsigned("==", b, constant(-1, element))))
        safe = e.b.select(bad, constant(1, element), b)
        quotient = {(True, True): e.b.srem, (True, False): e.b.sdiv, (False, True): e.b.urem, (False, False): e.b.udiv}[
            signed, remainder
        ](a, safe)
        return e.b.select(zero, constant(-1, element), quotient)

    return f


_INTEGER: dict[str, Callable[[bool], Build]] = {
    "add": lambda signed: lambda e, a, b: e.b.add(a, b),
    "sub": lambda signed: lambda e, a, b: e.b.sub(a, b),
    "and": lambda signed: lambda e, a, b: e.b.and_(a, b),
    "or": lambda signed: lambda e, a, b: e.b.or_(a, b),
    "xor": lambda signed: lambda e, a, b: e.b.xor(a, b),
    "min": lambda signed: lambda e, a, b: e.call("smin" if signed else "umin", a, b),
    "max": lambda signed: lambda e, a, b: e.call("smax" if signed else "umax", a, b),
    "div": lambda signed: _divided(signed, remainder=False),
    "rem": lambda signed: _divided(signed, remainder=True),
}
_FLOAT: dict[str, Build] = {
    "add": lambda e, a, b: e.b.fadd(a, b),
    "sub": lambda e, a, b: e.b.fsub(a, b),
    "mul": lambda e, a, b: e.b.fmul(a, b),
    "div": lambda e, a, b: e.b.fdiv(a, b),
    "min": lambda e, a, b: e.call("minimumnum", a, b),
    "max": lambda e, a, b: e.call("maximumnum", a, b),
}
_FLOAT_UNARY: dict[str, Build] = {
    "neg": lambda e, a: e.b.fneg(a),
    "abs": lambda e, a: e.call("fabs", a),
    "sqrt": lambda e, a: e.call("sqrt", a),
    "rcp": lambda e, a: e.b.fdiv(constant(1.0, a.type.element), a),
}
_COMPARE = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}


def _comparison(op: str, type_: str) -> Build | None:
    if is_float(type_):
        if op in ("num", "nan"):
            kind = "ord" if op == "num" else "uno"
            return lambda e, a, b: e.b.fcmp_ordered(kind, a, b) if op == "num" else e.b.fcmp_unordered(kind, a, b)
        if op in _UNORDERED:
            return lambda e, a, b: e.b.fcmp_unordered(_UNORDERED[op], a, b)
        return (lambda e, a, b: e.b.fcmp_ordered(_COMPARE[op], a, b)) if op in _COMPARE else None
    if op not in _COMPARE:
        return None
    if type_[0] == "s":
        return lambda e, a, b: e.b.icmp_signed(_COMPARE[op], a, b)
    return lambda e, a, b: e.b.icmp_unsigned(_COMPARE[op], a, b)


def _setp(parts: Sequence[str]) -> Operation | None:
    type_ = parts[-1]
    if type_ not in SCALARS or type_ == "pred" or parts[0] != "setp":
        return None
    compare = _comparison(parts[1], type_)
    if compare is None or len(parts) > 4:
        return None
    if len(parts) == 3:
        return _simple(".".join(parts), ("pred", type_, type_), compare)
    combine = {"and": "and_", "or": "or_", "xor": "xor"}.get(parts[2])
    if combine is None:
        return None

    def f(e: Emitter, a, b, c):
        return getattr(e.b, combine)(compare(e, a, b), c)

    return _simple(".".join(parts), ("pred", type_, type_, "pred"), f)


def _mad(name: str, type_: str, form: str) -> Operation | None:
    signed = type_[0] == "s"
    if form == "wide":
        to = f"{type_[0]}{2 * _bits(type_)}"
        return _simple(name, (to, type_, type_, to), lambda e, a, b, c: e.b.add(_wide(signed)(e, a, b), c))
    if form == "hi":
        return _simple(name, (type_,) * 4, lambda e, a, b, c: e.b.add(_high(signed)(e, a, b), c))
    return _simple(name, (type_,) * 4, lambda e, a, b, c: e.b.add(e.b.mul(a, b), c))


def _converted(e: Emitter, value, to: str, from_: str):
    signed, t = from_[0] == "s", vector(SCALARS[to])
    if is_float(from_):
        return e.b.fpext(value, t) if to == "f64" else e.b.fptrunc(value, t)
    if is_float(to):
        return e.b.sitofp(value, t) if signed else e.b.uitofp(value, t)
    if _bits(to) == _bits(from_):
        return value
    return e.b.trunc(value, t) if _bits(to) < _bits(from_) else _extended(e, value, _bits(to), signed)


def _truncated(e: Emitter, value, to: str):
    """Returns floats as integers, towards zero, within their range; NaN is zero."""
    name = f"llvm.fpto{to[0]}i.sat.v32i{_bits(to)}.v32{'f64' if value.type.element is F64 else 'f32'}"
    f = e.declared(name, vector(SCALARS[to]), [value.type])
    return e.b.call(f, [value])


def _cvt(parts: Sequence[str]) -> Operation | None:
    to, from_, rest = parts[-2], parts[-1], list(parts[1:-2])
    if "pred" in (to, from_) or not {to, from_} <= TYPES or {to[0], from_[0]} & {"b"}:
        return None
    name = ".".join(parts)
    if is_float(from_) and not is_float(to):
        if rest == ["rzi"] and to in ("s32", "u32") and from_ == "f32":
            return _simple(name, (to, from_), lambda e, a: _truncated(e, a, to))
        return None
    if rest not in ([], ["rn"]) or (to == from_ and is_float(to)):
        return None
    return _simple(name, (to, from_), lambda e, a: _converted(e, a, to, from_))


def _cvta(middle: Sequence[str], name: str) -> Operation:
    window = constant(WINDOWS.get(middle[-1], 0), I64)
    return _simple(name, ("u64", "u64"), lambda e, a: (e.b.sub if "to" in middle else e.b.add)(a, window))


@cache
def operation(parts: tuple[str, ...]) -> Operation | None:
    """Returns the operation of an opcode; None if NumPy executes it."""
    base, type_, name = parts[0], parts[-1], ".".join(parts)
    middle = list(parts[1:-1])
    if base == "cvt":
        return _cvt(parts)
    if base == "setp":
        return _setp(parts)
    if base == "cvta" and type_ == "u64":
        return _cvta(middle, name)
    if type_ not in SCALARS or type_ in ("b8", "u8", "s8"):
        return None
    if type_ == "pred":
        return _of_predicates(base, name)
    if base == "mov" and not middle:
        return _simple(name, (type_, type_), lambda e, a: a)
    if base == "selp":
        return _simple(name, (type_, type_, type_, "pred"), lambda e, a, b, p: e.b.select(p, a, b))
    if is_float(type_):
        return _of_floats(base, middle, type_, name)
    return _of_integers(base, middle, type_, name)


def _field(signed: bool) -> Build:
    """bfe: bits of a number from a position on, in 64 bits so that those beyond the last are its sign or zero."""

    def f(e: Emitter, a, position, length):
        b, wide, all_bits = e.b, vector(I64), constant(64, I64)
        position, length = (b.zext(b.and_(o, constant(255, I32)), wide) for o in (position, length))
        shift = e.call("umin", position, constant(63, I64))
        value = b.ashr(b.sext(a, wide), shift) if signed else b.lshr(b.zext(a, wide), shift)
        none = b.icmp_unsigned("==", length, constant(0, I64))
        unused = b.sub(all_bits, e.call("umin", b.select(none, constant(1, I64), length), all_bits))
        value = b.shl(value, unused)
        value = b.ashr(value, unused) if signed else b.lshr(value, unused)
        return b.select(none, constant(0, I32), b.trunc(value, a.type))

    return f


# With the number of operands.
_BITS: dict[str, tuple[int, Callable[[bool], Build]]] = {
    "popc": (1, lambda signed: lambda e, a: e.call("ctpop", a)),
    "clz": (1, lambda signed: lambda e, a: e.call("ctlz", a, I1(0))),
    "brev": (1, lambda signed: lambda e, a: e.call("bitreverse", a)),
    "bfe": (3, _field),
}


def _of_bits(base: str, middle: list[str], type_: str, name: str) -> Operation | None:
    if base == "shf":
        form = {"l.wrap": "fshl", "r.wrap": "fshr"}.get(".".join(middle))
        of = ("b32", "b32", "b32", "u32")
        return _simple(name, of, lambda e, low, high, n: e.call(form, high, low, n)) if form else None
    if middle or type_ not in (("u32", "s32") if base == "bfe" else ("b32",)):
        return None
    count, f = _BITS[base]
    return _simple(name, (type_, type_, *("u32",) * (count - 1)), f(type_[0] == "s"))


def _of_predicates(base: str, name: str) -> Operation | None:
    two = {"and": "and_", "or": "or_", "xor": "xor"}.get(base)
    if two:
        return _simple(name, ("pred",) * 3, lambda e, a, b: getattr(e.b, two)(a, b))
    if base in ("mov", "not"):
        return _simple(name, ("pred",) * 2, lambda e, a: e.b.not_(a) if base == "not" else a)
    return None


def _of_floats(base: str, middle: list[str], type_: str, name: str) -> Operation | None:
    if set(middle) - {"rn"}:
        return None
    if base in ("fma", "mad") and middle:
        return _simple(name, (type_,) * 4, lambda e, a, b, c: e.call("fma", a, b, c), 2)
    if base in _FLOAT:
        return _simple(name, (type_,) * 3, _FLOAT[base], int(base not in ("min", "max")))
    if base in _FLOAT_UNARY and (middle or base in ("neg", "abs")):
        return _simple(name, (type_,) * 2, _FLOAT_UNARY[base])
    return None


def _of_integers(base: str, middle: list[str], type_: str, name: str) -> Operation | None:
    signed = type_[0] == "s"
    if base in ("mul", "mad") and middle in (["lo"], ["wide"], ["hi"]) and type_[0] != "b":
        if middle != ["lo"] and _bits(type_) > 32:
            return None
        if base == "mad":
            return _mad(name, type_, middle[0])
        if middle == ["wide"]:
            return _simple(name, (f"{type_[0]}{2 * _bits(type_)}", type_, type_), _wide(signed))
        f = _high(signed) if middle == ["hi"] else (lambda e, a, b: e.b.mul(a, b))
        return _simple(name, (type_,) * 3, f)
    if base in _BITS or base == "shf":
        return _of_bits(base, middle, type_, name)
    if middle:
        return None
    if base in ("shl", "shr"):
        return _simple(name, (type_, type_, "u32"), _shift(base == "shl", signed))
    if base in _INTEGER:
        return _simple(name, (type_,) * 3, _INTEGER[base](signed))
    if base == "not" or (base in ("neg", "abs") and signed):
        zero = constant(0, SCALARS[type_])
        f = {
            "neg": lambda e, a: e.b.sub(zero, a),
            "not": lambda e, a: e.b.not_(a),
            "abs": lambda e, a: e.b.select(e.b.icmp_signed("<", a, zero), e.b.sub(zero, a), a),
        }[base]
        return _simple(name, (type_,) * 2, f)
    return None
