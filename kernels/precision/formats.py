"""Number formats of a GPU bit by bit: how a value is stored, and what is lost.

Sources: IEEE 754-2019 (FP32, FP16); NVIDIA A100 whitepaper (TF32); Kalamkar et al., arXiv 1905.12322 (BF16);
Micikevicius et al., arXiv 2209.05433 (FP8: E4M3 has no infinities and one NaN for each sign, E5M2 is IEEE-like).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: a sign bit, exponent bits, mantissa bits.

    `infinities`: whether the largest exponent is kept for infinities and NaN, as in IEEE 754. Without them only the
    pattern of all ones is NaN.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    infinities: bool = True

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent_bits - 1) - 1

    @property
    def max_exponent(self) -> int:
        """Returns the exponent of the largest finite number."""
        return 2**self.exponent_bits - 1 - self.bias - self.infinities

    @property
    def min_exponent(self) -> int:
        """Returns the exponent of the smallest normal number. Below it a number loses digits."""
        return 1 - self.bias

    @property
    def max(self) -> float:
        """Returns the largest finite number."""
        last = 2 ** (self.mantissa_bits + 1) - 1 - (not self.infinities)  # all ones is NaN there
        return float(np.ldexp(last, self.max_exponent - self.mantissa_bits))

    @property
    def tiny(self) -> float:
        """Returns the smallest positive number, a subnormal one. Half of it and less becomes 0."""
        return float(np.ldexp(1.0, self.min_exponent - self.mantissa_bits))

    @property
    def epsilon(self) -> float:
        """Returns the distance from 1 to the next number."""
        return float(np.ldexp(1.0, -self.mantissa_bits))


FP32 = Format("FP32", 8, 23)
TF32 = Format("TF32", 8, 10)
BF16 = Format("BF16", 8, 7)
FP16 = Format("FP16", 5, 10)
E4M3 = Format("FP8 E4M3", 4, 3, infinities=False)
E5M2 = Format("FP8 E5M2", 5, 2)
FORMATS = {f.name: f for f in (FP32, TF32, BF16, FP16, E4M3, E5M2)}


def rounded(x: np.ndarray | float, f: Format, saturate: bool = False) -> np.ndarray:
    """Returns x, float64, rounded to the nearest number of a format, ties to the even one.

    Beyond the largest number: infinity, NaN in a format without infinities, or with `saturate` the largest number.
    """
    x = np.asarray(x, np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exponent = np.maximum(np.frexp(x)[1] - 1, f.min_exponent)  # x = m 2^exponent, 1 <= m < 2 if normal
        unit = np.ldexp(1.0, exponent - f.mantissa_bits)
        y = np.rint(x / unit) * unit  # np.rint rounds ties to even
    beyond = np.abs(y) > f.max
    edge = f.max if saturate else np.inf if f.infinities else np.nan
    y = np.where(beyond, np.copysign(edge, x), y)
    return np.where(np.isfinite(x) | saturate & ~np.isnan(x), y, x if f.infinities else np.nan)


def pattern(x: float, f: Format) -> int:
    """Returns the bits of a value after rounding, as a whole number: sign, exponent, mantissa from the top."""
    y = float(rounded(x, f))
    sign = int(np.signbit(y)) << (f.bits - 1)
    ones = 2**f.exponent_bits - 1
    if np.isnan(y):
        quiet = 1 << (f.mantissa_bits - 1) if f.infinities else 2**f.mantissa_bits - 1
        return sign | ones << f.mantissa_bits | quiet
    if np.isinf(y):
        return sign | ones << f.mantissa_bits
    exponent = max(int(np.frexp(y)[1]) - 1, f.min_exponent)
    mantissa = int(abs(y) / np.ldexp(1.0, exponent - f.mantissa_bits))  # with the leading 1 of a normal number
    stored = exponent + f.bias if mantissa >> f.mantissa_bits else 0
    return sign | stored << f.mantissa_bits | mantissa & (2**f.mantissa_bits - 1)


@dataclass(frozen=True)
class Fields:
    """The three parts of a stored number, as whole numbers."""

    sign: int
    exponent: int
    mantissa: int


def fields(bits: int, f: Format) -> Fields:
    """Returns the parts of a pattern."""
    return Fields(
        bits >> (f.bits - 1), bits >> f.mantissa_bits & (2**f.exponent_bits - 1), bits & (2**f.mantissa_bits - 1)
    )


def value(bits: int, f: Format) -> float:
    """Returns the number of a pattern: (-1)^sign 2^(exponent - bias) 1.mantissa; 0.mantissa if the exponent is stored
    as 0."""
    parts = fields(bits, f)
    sign = -1.0 if parts.sign else 1.0
    ones = 2**f.exponent_bits - 1
    if parts.exponent == ones and f.infinities:
        return float("nan") if parts.mantissa else sign * float("inf")
    if parts.exponent == ones and parts.mantissa == 2**f.mantissa_bits - 1 and not f.infinities:
        return float("nan")
    normal = parts.exponent > 0
    exponent = (parts.exponent or 1) - f.bias
    mantissa = parts.mantissa + (normal << f.mantissa_bits)
    return sign * float(np.ldexp(mantissa, exponent - f.mantissa_bits))


@dataclass(frozen=True)
class Losses:
    """What a format does to many values, as shares of those that are not 0."""

    underflow: float  # become 0
    subnormal: float  # are stored below the smallest normal number: with fewer digits
    overflow: float  # become infinity or NaN


def losses(x: np.ndarray, f: Format, scale: float = 1.0) -> Losses:
    """Returns what happens to values times `scale` that are stored in a format."""
    x = np.abs(np.asarray(x, np.float64)).ravel()
    x = x[x > 0] * scale
    if not x.size:
        return Losses(0.0, 0.0, 0.0)
    y = rounded(x, f)
    small = (y > 0) & (y < np.ldexp(1.0, f.min_exponent))
    return Losses(float(np.mean(y == 0)), float(np.mean(small)), float(np.mean(~np.isfinite(y))))
