"""The instruction table: PTX opcodes as NumPy functions of their operands.

All of this is arithmetic on values of one type. The machine (state.py) reads operands and selects active threads.
An entry takes and returns arrays or NumPy scalars.
"""

from __future__ import annotations

import operator

import numpy as np

DTYPES = {
    "pred": np.bool_, "b8": np.uint8, "u8": np.uint8, "s8": np.int8,
    "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "f16": np.float16, "bf16": np.uint16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32, "f16x2": np.uint32,
    "bf16x2": np.uint32, "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64,
}  # fmt: skip
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def is_float(type_: str) -> bool:
    return type_ in ("f16", "bf16", "f32", "f64")


# -- bfloat16: stored as its bits, computed in float32 --------------------------------------------
def from_bf16(bits):
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(values):
    """Round float32 to nearest even; NaN stays NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def halves(bits, type_: str):
    """Return (low, high) of a packed pair as float32 values."""
    low, high = (bits & np.uint32(0xFFFF)).astype(np.uint16), (bits >> np.uint32(16)).astype(np.uint16)
    if type_ == "bf16x2":
        return from_bf16(low), from_bf16(high)
    return low.view(np.float16).astype(np.float32), high.view(np.float16).astype(np.float32)


def packed(low, high, type_: str):
    """Round two float32 values into a packed pair."""
    if type_ == "bf16x2":
        low, high = to_bf16(low), to_bf16(high)
    else:
        low, high = (np.asarray(v).astype(np.float16).view(np.uint16) for v in (low, high))
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))


# -- integers ----------------------------------------------------------------------------------------
def div(a, b):
    """Divide as C does, towards zero. A division of integers by zero returns all ones, as on the hardware."""
    if np.issubdtype(a.dtype, np.floating):
        return a / b
    zero = b == 0
    safe = np.where(zero, 1, b).astype(b.dtype)
    quotient = (a - np.fmod(a, safe)) // safe
    return np.where(zero, a.dtype.type(-1) if a.dtype.kind == "i" else np.iinfo(a.dtype).max, quotient)


def rem(a, b):
    zero = b == 0
    return np.where(zero, a, np.fmod(a, np.where(zero, 1, b).astype(b.dtype)))


def mul_hi(a, b):
    width = a.dtype.itemsize
    if width < 8:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(8 * width)).astype(a.dtype)
    # 64 x 64: by unsigned halves, then corrected for signs.
    mask, s = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & mask, x >> s, y & mask, y >> s
    mid = x1 * y0 + (x0 * y0 >> s)
    high = x1 * y1 + (mid >> s) + ((mid & mask) + x0 * y1 >> s)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def shl(a, count):
    bits = 8 * a.dtype.itemsize
    return np.where(count >= bits, a.dtype.type(0), a << np.minimum(count, bits - 1).astype(a.dtype))


def shr(a, count):
    bits = 8 * a.dtype.itemsize
    if a.dtype.kind == "i":
        return a >> np.minimum(count, bits - 1).astype(a.dtype)
    return np.where(count >= bits, a.dtype.type(0), a >> np.minimum(count, bits - 1).astype(a.dtype))


def bfe(a, pos, length):
    bits = 8 * a.dtype.itemsize
    pos, length = np.minimum(pos & 0xFF, bits), np.minimum(length & 0xFF, bits)
    u = a.view(UNSIGNED[a.dtype.itemsize])
    field = shr(u, pos) & (shl(np.ones_like(u), length) - 1).astype(u.dtype)
    if a.dtype.kind == "i":
        sign = shr(u, np.minimum(pos + np.maximum(length, 1) - 1, bits - 1)) & u.dtype.type(1)
        fill = ~(shl(np.ones_like(u), length) - 1).astype(u.dtype)
        field = np.where((sign == 1) & (length > 0), field | fill, field)
    return field.astype(u.dtype).view(a.dtype)


def bfi(a, b, pos, length):
    bits = 8 * a.dtype.itemsize
    pos, length = np.minimum(pos & 0xFF, bits), np.minimum(length & 0xFF, bits)
    mask = shl((shl(np.ones_like(b), length) - 1).astype(b.dtype), pos)
    return ((b & ~mask) | (shl(a, pos) & mask)).astype(b.dtype)


def brev(a):
    out = np.zeros_like(a)
    for bit in range(8 * a.dtype.itemsize):
        out |= ((a >> a.dtype.type(bit)) & a.dtype.type(1)) << a.dtype.type(8 * a.dtype.itemsize - 1 - bit)
    return out


def popc(a):
    return np.bitwise_count(a).astype(np.uint32)


def clz(a):
    bits = 8 * a.dtype.itemsize
    u, n = (
        a.view(UNSIGNED[a.dtype.itemsize]).copy() if np.ndim(a) else np.asarray(a),
        np.zeros(np.shape(a), np.uint32),
    )
    found = np.zeros(np.shape(a), bool)
    for bit in range(bits - 1, -1, -1):
        found |= ((u >> u.dtype.type(bit)) & u.dtype.type(1)).astype(bool)
        n += ~found
    return n


def bfind(a):
    """Return the position of the highest set bit (of a negative number: the highest zero); all ones for none."""
    u = (np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a).view(UNSIGNED[a.dtype.itemsize])
    return (np.uint32(8 * a.dtype.itemsize - 1) - clz(u)).astype(np.uint32)


def prmt(a, b, selector):
    """Permute bytes: four selector nibbles choose among the eight bytes of b:a; bit 3 replicates the sign."""
    both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    out = np.zeros(np.broadcast(a, b, selector).shape, np.uint32)
    for i in range(4):
        nibble = (selector >> np.uint32(4 * i)) & np.uint32(0xF)
        byte = (both >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(
            np.uint32
        ) & np.uint32(0xFF)
        sign = np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
        out |= np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * i)
    return out


def lop3(a, b, c, table: int):
    out = np.zeros(np.broadcast(a, b, c).shape, a.dtype)
    for row in range(8):
        if table >> row & 1:
            out |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return out


def shf(a, b, count, left: bool, wrap: bool):
    count = (count & np.uint32(31)) if wrap else np.minimum(count, np.uint32(32))
    both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
    if left:
        return ((both << count.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
    return (both >> count.astype(np.uint64)).astype(np.uint32)


def _bytes(word, signed: bool):
    """Return the four bytes of 32-bit words as int64, last axis of length 4."""
    raw = np.ascontiguousarray(np.atleast_1d(word)).view(np.int8 if signed else np.uint8)
    return raw.reshape(*np.shape(np.atleast_1d(word)), 4).astype(np.int64)


def fields(word, bits: int, signed: bool) -> list:
    """Return the fields of `bits` bits of 32-bit words, lowest first, as int64."""
    wide = word.astype(np.int64)
    out = [wide >> at & ((1 << bits) - 1) for at in range(0, 32, bits)]
    return [(v ^ 1 << bits - 1) - (1 << bits - 1) for v in out] if signed else out


def dp4a(a, b, c, a_signed: bool, b_signed: bool):
    """Return c plus the dot product of four bytes."""
    total = (_bytes(a, a_signed) * _bytes(b, b_signed)).sum(axis=-1) + np.atleast_1d(c).astype(np.int64)
    total = total.astype(np.uint32)
    return total if np.ndim(a) or np.ndim(b) or np.ndim(c) else total[0]


# -- floats ------------------------------------------------------------------------------------------
def fma(a, b, c):
    """Return a b + c. float32 is computed in float64: exact except for rare double rounding."""
    if a.dtype.itemsize == 8:
        return _fma_double(a, b, c)
    if a.ndim or b.ndim or c.ndim:
        return (a.astype(np.float64) * b + c).astype(a.dtype)
    return a.dtype.type(float(a) * float(b) + float(c))


def _two_sum(a, b):
    """Return a + b as its rounded value and the exact rest."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a, b):
    """Return a b as its rounded value and the exact rest."""

    def split(x):
        big = x * 134217729.0  # 2^27 + 1
        high = big - (big - x)
        return high, x - high

    p = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _to_odd(value, rest):
    """Return value + rest rounded to odd. Rounded again to fewer bits, it equals one rounding."""
    even = (np.asarray(value).view(np.uint64) & np.uint64(1)) == 0
    adjust = (rest != 0) & even & np.isfinite(value)
    return np.where(adjust, np.nextafter(value, np.where(rest > 0, np.inf, -np.inf)), value)


def _fma_double(a, b, c):
    """Return a b + c by Boldo and Melquiond's method: the rests of product and sum, rounded to odd, then added."""
    product, low = _two_product(a, b)
    high, tail = _two_sum(c, low)
    high, middle = _two_sum(product, high)
    out = high + _to_odd(*_two_sum(tail, middle))
    return np.where(np.isfinite(out) & (out != 0), out, a * b + c)  # a zero needs its sign


def directed(values, mode: str, dtype):
    """Round float64 values to a narrower float towards zero (rz), down (rm) or up (rp)."""
    nearest = values.astype(dtype)
    return _step_towards(nearest, values - nearest.astype(np.float64), mode)


def _step_towards(nearest, rest, mode: str):
    """Round nearest + rest towards zero (rz), down (rm) or up (rp). `nearest` is the number nearest to the sum."""
    limit = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]
    overshoots = {"rz": rest * np.sign(nearest) < 0, "rm": rest < 0, "rp": rest > 0}[mode]
    return np.where(overshoots, np.nextafter(nearest, nearest.dtype.type(limit)), nearest)


def in_mode(name: str, mode: str):
    """Return a function of float32 or float64 that rounds towards zero, down or up; `name` is one of EXACT."""

    def f(*values):
        value, rest = EXACT[name](*(v.astype(np.float64) for v in values))
        if values[0].dtype == np.float64:
            return _step_towards(value, rest, mode)
        return directed(_to_odd(value, rest), mode, np.float32)

    return f


def _exact_fma(a, b, c):
    nearest = _fma_double(a, b, c)
    product, low = _two_product(a, b)
    total, rest = _two_sum(product, -nearest)
    total, error = _two_sum(total, c)
    return nearest, total + (rest + error + low)


def _exact_div(a, b):
    product, low = _two_product(a / b, b)
    return a / b, ((a - product) - low) / b


def _exact_sqrt(a):
    root = np.sqrt(a)
    product, low = _two_product(root, root)
    return root, (a - product) - low


# Functions of float64: the nearest result, and the rest (at least its sign).
EXACT = {
    "add": _two_sum, "sub": lambda a, b: _two_sum(a, -b), "mul": _two_product,
    "fma": _exact_fma, "div": _exact_div, "rcp": lambda a: _exact_div(np.ones_like(a), a), "sqrt": _exact_sqrt,
}  # fmt: skip


def _exact_enough(integers):
    """Return integers as float64, 64-bit ones rounded to odd so that they can be rounded again."""
    if integers.dtype.itemsize < 8:
        return integers.astype(np.float64)
    high = (integers >> integers.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (integers & integers.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return _to_odd(*_two_sum(high, low))


def in_double(function):
    """Return a function that computes in float64 and rounds to its argument's type."""
    return lambda a: function(a.astype(np.float64)).astype(a.dtype)


def _ex2(a):
    return np.exp2(a)


def saturate(a):
    return np.where(np.isnan(a), 0, np.clip(a, 0, 1)).astype(a.dtype)


# Operators: on scalars they are ten times as fast as NumPy's functions.
BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": div, "rem": rem,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "shl": shl, "shr": shr, "copysign": lambda sign, a: np.copysign(a, sign),
}  # fmt: skip
UNARY = {
    "neg": np.negative, "abs": np.abs, "not": np.invert, "brev": brev, "popc": popc, "clz": clz,
    "rcp": in_double(np.reciprocal), "sqrt": in_double(np.sqrt),
    "rsqrt": in_double(lambda a: 1 / np.sqrt(a)), "ex2": in_double(_ex2), "lg2": in_double(np.log2),
    "sin": in_double(np.sin), "cos": in_double(np.cos), "tanh": in_double(np.tanh),
}  # fmt: skip
MINMAX = {"min": (np.minimum, np.fmin), "max": (np.maximum, np.fmax)}
COMPARE = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
ATOMIC = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "min": np.minimum, "max": np.maximum, "exch": lambda old, new: new,
    "inc": lambda old, top: np.where(old >= top, 0, old + 1).astype(old.dtype),
    "dec": lambda old, top: np.where((old == 0) | (old > top), top, old - 1).astype(old.dtype),
}  # fmt: skip
ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def compare(op: str, a, b):
    """Return a setp comparison. Float comparisons are ordered (false for NaN) except the -u forms."""
    if op == "num":
        return ~(np.isnan(a) | np.isnan(b))
    if op == "nan":
        return np.isnan(a) | np.isnan(b)
    if op in UNORDERED:
        return COMPARE[UNORDERED[op]](a, b) | np.isnan(a) | np.isnan(b)
    result = COMPARE[op](a, b)
    if op == "ne" and np.issubdtype(a.dtype, np.floating):
        result = result & ~(np.isnan(a) | np.isnan(b))
    return result


def _direction(modifiers) -> str | None:
    return next((mode for mode in ("rz", "rm", "rp") if mode in modifiers), None)


def convert(value, to: str, from_: str, modifiers):
    """Convert as cvt does: integers are truncated or extended, floats rounded; `modifiers` give rounding and .sat."""
    if from_ == "bf16":
        value, from_ = from_bf16(value), "f32"
    target = np.float32 if to == "bf16" else DTYPES[to]
    if is_float(from_):
        for mode in modifiers:
            if mode in ROUND:
                value = ROUND[mode](value)
        if not is_float(to):
            info = np.iinfo(target)
            # The PTX ISA: NaN becomes zero, but only the top bit set if either type has 64 bits.
            isnan, is_wide = np.isnan(value), from_ == "f64" or to in ("s64", "u64")
            nan_result = target(info.min) if info.min else target(info.max // 2 + 1)
            value = np.where(isnan, 0, np.asarray(value, np.float64))
            # float64 cannot represent the largest int64: clip, then correct values that the clip rounded up.
            whole = np.clip(np.trunc(value), float(info.min), float(info.max))
            top = whole >= float(info.max)
            out = np.where(top, target(info.max), np.where(top, 0, whole).astype(target))
            return np.where(isnan & is_wide, nan_result, out).astype(target)[()]
        if (mode := _direction(modifiers)) is not None:
            return directed(np.asarray(value, np.float64), mode, target)
    elif is_float(to) and (mode := _direction(modifiers)) is not None:
        return directed(_exact_enough(value), mode, target)
    elif "sat" in modifiers and not is_float(to):
        info = np.iinfo(target)
        if value.dtype == np.uint64:
            value = np.minimum(value, np.uint64(info.max))
        else:
            value = np.clip(value.astype(np.int64), info.min, min(info.max, np.iinfo(np.int64).max))
    out = value.astype(target)
    if "sat" in modifiers and is_float(to):
        out = saturate(out)
    return to_bf16(out) if to == "bf16" else out
