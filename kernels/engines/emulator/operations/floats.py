"""Float operations: fused multiply-add, and rounding modes by the exact rest of a result."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from functools import partial, reduce

import numpy as np

TINY_PRODUCT = 2.0**-900  # of float64: its rest may be inexact below
TINY = np.finfo(np.float32).tiny  # the smallest normal number


def fma(a, b, c):
    """Returns a b + c, rounded once."""
    if a.dtype.itemsize == 8:
        return _fma_double(a, b, c)
    product, term = a.astype(np.float64) * b, c.astype(np.float64)  # the product is exact
    total = product + term
    if _may_round_twice(total, a.dtype):
        total = rounded_to_odd(*two_sum(product, term))
    return total.astype(a.dtype)


def _may_round_twice(total, dtype) -> bool:
    """Returns whether a sum, rounded to float64, is midway between two numbers of a narrower type, or below its normal ones."""
    info = np.finfo(dtype)
    half = np.uint64(1 << 51 - info.nmant)
    midway = (np.asarray(total).view(np.uint64) & np.uint64(2 * int(half) - 1)) == half
    return bool(midway.any() or ((np.abs(total) < 2 * info.tiny) & (total != 0)).any())


def two_sum(a, b):
    """Returns a + b as its rounded value and the exact rest."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a, b):
    """Returns a b as its rounded value and the exact rest."""

    def split(x):
        big = x * 134217729.0  # 2^27 + 1
        high = big - (big - x)
        return high, x - high

    p = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def rounded_to_odd(value, rest):
    """Returns value + rest rounded to odd. Rounded again to fewer bits, it equals one rounding."""
    even = (np.asarray(value).view(np.uint64) & np.uint64(1)) == 0
    adjust = (rest != 0) & even & np.isfinite(value)
    return np.where(adjust, np.nextafter(value, np.where(rest > 0, np.inf, -np.inf)), value)


def _fma_double(a, b, c):
    """Returns a b + c by Boldo and Melquiond's method: the rests of product and sum, rounded to odd, then added."""
    product, low = _two_product(a, b)
    high, tail = two_sum(c, low)
    high, middle = two_sum(product, high)
    out = high + rounded_to_odd(*two_sum(tail, middle))
    plain = a * b + c  # a zero needs its sign
    out = np.where(np.isfinite(out) & (out != 0), out, plain)
    # The rests overflow for large operands, and are inexact for a tiny product.
    large = ~np.isfinite(high) & np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    inexact = large | ((np.abs(product) < TINY_PRODUCT) & (a != 0) & (b != 0))
    return np.where(inexact, _fma_in_fractions(a, b, c), out) if np.any(inexact) else out


@partial(np.vectorize, otypes=[np.float64])
def _fma_in_fractions(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    sign = 1 if exact > 0 else -1
    try:
        return sign * float(abs(exact))
    except OverflowError:
        return sign * math.inf


def directed(values, mode: str, dtype):
    """Round float64 values to a narrower float towards zero (rz), down (rm) or up (rp)."""
    nearest = values.astype(dtype)
    return step_towards(nearest, values - nearest.astype(np.float64), mode)


def step_towards(nearest, rest, mode: str):
    """Round nearest + rest towards zero (rz), down (rm) or up (rp). `nearest` is the number nearest to the sum."""
    limit = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]
    overshoots = {"rz": rest * np.sign(nearest) < 0, "rm": rest < 0, "rp": rest > 0}[mode]
    return np.where(overshoots, np.nextafter(nearest, nearest.dtype.type(limit)), nearest)


def in_mode(name: str, mode: str):
    """Returns a function of float32 or float64 that rounds towards zero, down or up; `name` is one of EXACT."""

    def f(*values):
        double = values[0].dtype == np.float64
        value, rest = EXACT[name](*(v.astype(np.float64) for v in values))
        if double:
            rest = _side(name)(value, *values)
        elif name in ("div", "rcp"):
            rest = np.where(np.isfinite(values[-1]), rest, 0)
        zero = (value == 0) & (rest == 0)
        if mode == "rm" and name in ("add", "sub", "fma") and np.any(zero):
            value = np.where(zero, _zero_of_sum(name, *values), value)
        if double:
            return step_towards(value, rest, mode)
        return directed(rounded_to_odd(value, rest), mode, np.float32)

    return f


def _zero_of_sum(name: str, *values):
    """Returns the zero of a sum rounded down, as float64: it is positive only if both terms are."""
    *first, last = (np.signbit(v) for v in values)
    negative = reduce(operator.xor, first) | (last ^ (name == "sub"))
    return np.where(negative, -0.0, 0.0)


def _side(name: str):
    """Returns a function of float64 results, the nearest ones, and their operands: the sign of exact - nearest.

    It computes in fractions. The rests of EXACT overflow for large numbers and are inexact for tiny ones.
    """
    exact = _FRACTIONS[name]

    def side(nearest: float, *values: float) -> float:
        if math.isnan(nearest) or not all(map(math.isfinite, values)) or (name in ("div", "rcp") and not values[-1]):
            return 0.0
        if math.isinf(nearest):
            return -math.copysign(1, nearest)
        beyond = exact(Fraction(nearest), *map(Fraction, values))
        return float((beyond > 0) - (beyond < 0))

    return np.vectorize(side, otypes=[np.float64])


def flushing_tiny(name: str, mode: str | None, f):
    """Returns f, a function of float32 as in_mode(name, mode), with .ftz: a result that would be subnormal if its 24 bits
    had no least exponent is flushed, also where rounding to a subnormal number reaches the smallest normal one."""

    def g(*values):
        out = f(*values)
        if not np.any(np.abs(out) == TINY):
            return out
        return flush_tiny(out, EXACT[name](*(v.astype(np.float64) for v in values))[0], mode)

    return g


def flush_tiny(rounded, exact, mode: str | None):
    """Returns float32 values with zeros for those whose exact value (float64) is below the smallest normal number after
    rounding to 24 bits: to nearest (None), towards zero (rz), down (rm) or up (rp)."""
    limit = float(TINY) * (1 - 2.0**-24 if mode else 1 - 2.0**-25)
    below = np.abs(exact) <= limit if mode else np.abs(exact) < limit
    return np.where((np.abs(rounded) == TINY) & below, np.copysign(np.float32(0), rounded), rounded)[()]


def _exact_fma(a, b, c):
    nearest = _fma_double(a, b, c)
    product, low = _two_product(a, b)
    total, rest = two_sum(product, -nearest)
    total, error = two_sum(total, c)
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
    "add": two_sum,
    "sub": lambda a, b: two_sum(a, -b),
    "mul": _two_product,
    "fma": _exact_fma,
    "div": _exact_div,
    "rcp": lambda a: _exact_div(np.ones_like(a), a),
    "sqrt": _exact_sqrt,
}


# The same results less n, as fractions. Of a square root: a number with the same sign.
_FRACTIONS = {
    "add": lambda n, a, b: a + b - n,
    "sub": lambda n, a, b: a - b - n,
    "mul": lambda n, a, b: a * b - n,
    "fma": lambda n, a, b, c: a * b + c - n,
    "div": lambda n, a, b: a / b - n,
    "rcp": lambda n, a: 1 / a - n,
    "sqrt": lambda n, a: a - n * n,
}


def of_upper_words(function):
    """Returns a function of float64 as .approx.ftz.f64 has it: the lower 32 bits of argument and result are zero."""

    def upper(a):
        return (np.asarray(a).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)

    return lambda a: upper(function(upper(a)))


def in_double(function):
    """Returns a function that computes in float64 and rounds to its argument's type."""
    return lambda a: function(a.astype(np.float64)).astype(a.dtype)


def saturate(a):
    """Clamp to 0 .. 1 as .sat does: NaN and a negative zero become a positive zero."""
    return np.where(a > 0, np.minimum(a, 1), 0).astype(a.dtype)


def relu(a):
    """Returns a positive zero for a negative number or zero, as .relu does: NaN stays NaN."""
    return np.where(a <= 0, a.dtype.type(0), a)


def without_tiny_halves(a):
    """Returns float32 or float64 values, results of .ftz before their rounding to float16, with zeros for those that are
    below the smallest normal half after rounding to 11 bits."""
    limit = 2.0**-14 * (1 - 2.0**-12)
    return np.where(np.abs(a) < limit, np.copysign(a.dtype.type(0), a), a)


def flushed(a):
    """Returns float32, float64 or float16 values with zeros of the same sign for subnormal ones, as .ftz does."""
    return np.where(np.abs(a) < np.finfo(a.dtype).tiny, np.copysign(a.dtype.type(0), a), a)[()]
