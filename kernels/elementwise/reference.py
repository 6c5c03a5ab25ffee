"""float64 references of elementwise layers and of their gradients, from the formulas. Each returns (result, error scale)
of its output, by name if it has several. Masks are whole numbers: their scale is 0."""

from __future__ import annotations

import numpy as np

from kernels.elementwise import normal
from kernels.elementwise.shape import (
    BITS,
    ERF,
    OUTPUT,
    WORD,
    BiasBackwardShape,
    BiasShape,
    GeluBackwardShape,
    GeluShape,
    ReluBackwardShape,
    ReluShape,
    ResidualBackwardShape,
    ResidualShape,
)
from kernels.model.verify import Reference

TOLERANCE = 2.0**-22  # a few roundings of float32, as a fraction of the scale
GELU_TOLERANCE = 2.0**-20  # and those of erf, tanh and exp
TINY = 2.0**-126  # smaller results may become 0
SUM_TOLERANCE = 1e-5  # of a sum over many elements


def mask_of(s: ReluShape, x: np.ndarray) -> np.ndarray:
    """Returns whether each element of x is positive: uint8 of its shape, or uint32 [words] with bit i % 32 of word i / 32
    for element i; the bits beyond the end are 0."""
    positive = x > 0
    if s.keep != BITS:
        return positive.astype(np.uint8)
    padded = np.zeros(s.words * WORD, bool)
    padded[: positive.size] = positive.ravel()
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)


def is_positive(s: ReluShape, kept: np.ndarray) -> np.ndarray:
    """Returns bool [N, C, P, Q]: where x was positive, from what was kept."""
    if s.keep != BITS:
        return kept > 0
    bits = np.unpackbits(kept.astype("<u4").view(np.uint8), bitorder="little")
    return bits[: s.elements].reshape(s.maps).astype(bool)


Scaled = tuple[np.ndarray, np.ndarray]  # a result and its error scale


def relu(s: ReluShape, x: np.ndarray) -> Scaled | dict[str, Scaled]:
    y = np.maximum(x.astype(np.float64), 0)
    if s.keep == OUTPUT:
        return y, y
    mask = mask_of(s, x).astype(np.float64)
    return {"y": (y, y), "mask": (mask, np.zeros_like(mask))}


def relu_backward(s: ReluBackwardShape, dy: np.ndarray, **kept: np.ndarray) -> Reference:
    """Returns dx and its scale. `kept`: y or mask."""
    (of_x,) = kept.values()
    dx = np.where(is_positive(s, of_x), dy.astype(np.float64), 0)
    return dx, np.abs(dx)


def gelu(s: GeluShape, x: np.ndarray) -> Reference:
    """Returns y and its scale: that of x, because 1 + erf cancels below 0. Smaller results may become 0."""
    x = x.astype(np.float64)
    return x * normal.share_below(x, s.form), np.abs(x) + TINY / GELU_TOLERANCE


def gelu_backward(s: GeluBackwardShape, dy: np.ndarray, x: np.ndarray) -> Reference:
    """Returns dx and its scale: the slope is a difference, by tanh one of numbers that are as large as its inner slope."""
    dy, x = dy.astype(np.float64), x.astype(np.float64)
    at = np.minimum(np.abs(x), normal.FLAT / 2)
    terms = 1 + at if s.form == ERF else 1 + at * normal.SCALE * (1 + 3 * normal.CUBE * at * at)
    return dy * normal.slope(x, s.form), np.abs(dy) * terms + TINY / GELU_TOLERANCE


def _of_channels(s: BiasShape, b: np.ndarray) -> np.ndarray:
    """Returns b [C] in the shape in which it is added to the maps."""
    return b.reshape((-1, 1, 1) if s.layout == "nchw" else -1)


def bias(s: BiasShape, x: np.ndarray, b: np.ndarray) -> Reference:
    x, b = x.astype(np.float64), _of_channels(s, b.astype(np.float64))
    return x + b, np.abs(x) + np.abs(b)


def bias_backward(s: BiasBackwardShape, dy: np.ndarray) -> Reference:
    """Returns db and its scale, float64 [C], image by image: that limits the float64 copies in memory."""
    db, scale = np.zeros((2, s.C))
    axes = tuple(axis - 1 for axis in s.axes[1:])
    for image in dy:
        wide = image.astype(np.float64)
        db += wide.sum(axis=axes)
        scale += np.abs(wide, out=wide).sum(axis=axes)
    return db, scale


def residual(s: ResidualShape, a: np.ndarray, b: np.ndarray) -> Reference:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return np.maximum(a + b, 0), np.abs(a) + np.abs(b)


def residual_backward(s: ResidualBackwardShape, dy: np.ndarray, y: np.ndarray, db: np.ndarray) -> dict[str, Reference]:
    gradient = np.where(y > 0, dy.astype(np.float64), 0)
    total = db + gradient
    return {"da": (gradient, np.abs(gradient)), "db": (total, np.abs(db) + np.abs(gradient))}
