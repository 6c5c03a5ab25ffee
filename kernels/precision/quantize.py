"""INT8 quantisation: real numbers as 8-bit whole numbers with a scale and a zero point.

q = clamp(round(x / scale) + zero_point, -128, 127), and x is about (q - zero_point) scale.
Source: Jacob et al., arXiv 1712.05877; Wu et al., arXiv 2004.09602 (calibration).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

LOW, HIGH = -128, 127
LEVELS = HIGH - LOW
PERCENTILE = 99.9  # of the absolute values, for the calibration of that name
TRIED = 64  # clipping limits that the calibration by error tries


@dataclass(frozen=True)
class Quantizer:
    """A scale and a zero point: of a whole tensor, or one for each channel along `axis`."""

    scale: np.ndarray  # float64, one element or one a channel
    zero_point: np.ndarray  # int32, likewise
    axis: int | None = None

    def _along(self, values: np.ndarray, dimensions: int) -> np.ndarray:
        if self.axis is None:
            return values.reshape(())
        return values.reshape([-1 if d == self.axis else 1 for d in range(dimensions)])

    def quantize(self, x: np.ndarray) -> np.ndarray:
        """Returns int8 of the shape of x; numbers beyond the range are clamped."""
        scale, zero = self._along(self.scale, x.ndim), self._along(self.zero_point, x.ndim)
        return np.clip(np.rint(x / scale) + zero, LOW, HIGH).astype(np.int8)

    def dequantize(self, q: np.ndarray) -> np.ndarray:
        """Returns float64 of the shape of q."""
        scale, zero = self._along(self.scale, q.ndim), self._along(self.zero_point, q.ndim)
        return (q.astype(np.float64) - zero) * scale


def of_range(low: np.ndarray, high: np.ndarray, symmetric: bool, axis: int | None = None) -> Quantizer:
    """Returns the quantizer of numbers in low .. high, which are extended to contain 0 so that 0 is exact.

    Symmetric: zero point 0, and -high .. high are -127 .. 127.
    """
    low, high = np.minimum(np.atleast_1d(low), 0.0), np.maximum(np.atleast_1d(high), 0.0)
    if symmetric:
        limit = np.maximum(-low, high)
        scale = np.where(limit > 0, limit / HIGH, 1.0)
        return Quantizer(scale, np.zeros(scale.shape, np.int32), axis)
    scale = np.where(high > low, (high - low) / LEVELS, 1.0)
    return Quantizer(scale, np.rint(LOW - low / scale).astype(np.int32), axis)


def by_channel(x: np.ndarray, axis: int = 0) -> Quantizer:
    """Returns the symmetric quantizer with a scale for each channel of x along `axis`, from the largest value of each."""
    others = tuple(d for d in range(x.ndim) if d != axis)
    limit = np.abs(x).max(axis=others)
    return of_range(-limit, limit, symmetric=True, axis=axis)


# -- calibration: the range of activations, from examples ----------------------------------------------
def by_extremes(x: np.ndarray, symmetric: bool) -> Quantizer:
    """Returns the quantizer of the smallest and the largest value. Nothing is clamped; one outlier makes all steps coarse."""
    return of_range(x.min(), x.max(), symmetric)


def by_percentile(x: np.ndarray, symmetric: bool) -> Quantizer:
    """Returns the quantizer that clamps the 0.1 % of the values with the largest magnitude."""
    limit = np.percentile(np.abs(x), PERCENTILE)
    return of_range(max(x.min(), -limit), min(x.max(), limit), symmetric)


def by_error(x: np.ndarray, symmetric: bool) -> Quantizer:
    """Returns the quantizer, among TRIED clipping limits, with the least mean squared error on x."""
    limits = np.abs(x).max() * np.arange(1, TRIED + 1) / TRIED
    candidates = [of_range(max(x.min(), -limit), min(x.max(), limit), symmetric) for limit in limits]
    return min(candidates, key=lambda c: error(x, c))


class Calibration(Protocol):
    def __call__(self, x: np.ndarray, symmetric: bool) -> Quantizer: ...


CALIBRATIONS: Mapping[str, Calibration] = {"extremes": by_extremes, "percentile": by_percentile, "error": by_error}


def error(x: np.ndarray, quantizer: Quantizer) -> float:
    """Returns the mean squared error of x after quantisation and back."""
    return float(np.mean((quantizer.dequantize(quantizer.quantize(x)) - x) ** 2))


def product(a: np.ndarray, b: np.ndarray, qa: Quantizer, qb: Quantizer) -> np.ndarray:
    """Returns a b, float64 [M, N], of a [M, K] and b [K, N] quantised, from whole numbers alone.

    The sum over k of (qa - za)(qb - zb) is the INT8 product with INT32 sums, less the zero points' share, which is known
    from sums of rows and columns. `qb` may have a scale for each column.
    """
    A, B = qa.quantize(a).astype(np.int64), qb.quantize(b).astype(np.int64)
    za, zb = qa.zero_point.astype(np.int64), qb.zero_point.astype(np.int64)
    rows, columns = A.sum(axis=1, keepdims=True), B.sum(axis=0, keepdims=True)
    whole = A @ B - za * columns - zb * rows + a.shape[1] * za * zb
    return whole * (qa.scale * qb.scale)
