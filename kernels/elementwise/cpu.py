"""The kernels of elementwise layers in NumPy, with the same arguments: the cpu engine runs these.

Arrays have the shapes of their buffers. `shape` and `count` are the kernels' own arguments; NumPy takes them from the
arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.elementwise import normal
from kernels.elementwise.shape import WORD

IN_CACHE = 2**16  # elements at a time that stay in a cache: 256 KB


# -- ReLU ------------------------------------------------------------------------------------------
def relu(x: np.ndarray, y: np.ndarray, count) -> None:
    np.maximum(x, np.float32(0), out=y)


def relu_bytes(x: np.ndarray, y: np.ndarray, mask: np.ndarray, count) -> None:
    np.maximum(x, np.float32(0), out=y)
    np.greater(x, 0, out=mask.view(bool))


def relu_bits(x: np.ndarray, y: np.ndarray, mask: np.ndarray, count) -> None:
    np.maximum(x, np.float32(0), out=y)
    packed = np.packbits(x.ravel() > 0, bitorder="little")
    mask[-1] = 0  # bits beyond the end
    mask.view(np.uint8)[: packed.size] = packed


def relu_backward(dy: np.ndarray, kept: np.ndarray, dx: np.ndarray, count) -> None:
    _select(kept > 0, dy, dx)


def _select(kept: np.ndarray, dy: np.ndarray, out: np.ndarray) -> None:
    """Write dy at the elements that are kept, else 0. Infinity times 0 would be NaN."""
    out[...] = 0
    np.copyto(out, dy, where=kept)


def relu_backward_bits(dy: np.ndarray, mask: np.ndarray, dx: np.ndarray, count) -> None:
    for first in range(0, dy.size, IN_CACHE):
        words = mask[first // WORD : (first + IN_CACHE) // WORD]
        part, out = (array.reshape(-1)[first : first + IN_CACHE] for array in (dy, dx))
        bits = np.unpackbits(words.view(np.uint8), count=part.size, bitorder="little")
        _select(bits.view(bool), part, out)


# -- GELU ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Gelu:
    """GELU in one of its forms, a few elements at a time."""

    form: str

    def __call__(self, x: np.ndarray, y: np.ndarray, count) -> None:
        for of_x, out in _few(x, y):
            np.multiply(of_x, normal.share_below(of_x, self.form), out=out)


@dataclass(frozen=True)
class GeluBackward:
    """The gradient of GELU in one of its forms, a few elements at a time."""

    form: str

    def __call__(self, dy: np.ndarray, x: np.ndarray, dx: np.ndarray, count) -> None:
        for of_dy, of_x, out in _few(dy, x, dx):
            np.multiply(of_dy, normal.slope(of_x, self.form), out=out)


# -- bias ------------------------------------------------------------------------------------------
def channels_of(t: np.ndarray, shape) -> np.ndarray:
    """Returns a view [outer, C, inner] of a tensor."""
    return t.reshape(-1, int(shape["C"]), int(shape["inner"]))


def bias(x: np.ndarray, b: np.ndarray, y: np.ndarray, shape, count) -> None:
    np.add(channels_of(x, shape), b[:, None], out=channels_of(y, shape))


def bias_backward_atomics(dy: np.ndarray, db: np.ndarray, shape, count) -> None:
    """Add element after element, in the order of memory."""
    outer, C, inner = channels_of(dy, shape).shape
    channel = np.tile(np.repeat(np.arange(C), inner), outer)
    np.add.at(db, channel, dy.ravel())


def bias_backward_block(dy: np.ndarray, db: np.ndarray, shape, columns, count, part) -> None:
    """Add the sums of each part, part after part."""
    for sums in _parts(dy, shape, int(part)):
        db += sums


def bias_backward_sums(dy: np.ndarray, sums: np.ndarray, shape, columns, count, part) -> None:
    """Store the sums of each part in a row of its own."""
    for row, of_part in zip(sums.reshape(-1, int(shape["C"])), _parts(dy, shape, int(part)), strict=True):
        row[:] = of_part


def _parts(dy: np.ndarray, shape, part: int) -> Iterator[np.ndarray]:
    """Yields the sums [C] of each part: `part` consecutive indices of the (outer, inner) plane."""
    t = channels_of(dy, shape)
    inner, count = t.shape[2], t.shape[0] * t.shape[2]
    for first in range(0, count, part):
        last, total = min(first + part, count), np.zeros(t.shape[1], t.dtype)
        for outer in range(first // inner, -(-last // inner)):
            low, high = max(first - outer * inner, 0), min(last - outer * inner, inner)
            if inner == 1:  # rows: all of them at once
                total = t[first:last, :, 0].sum(axis=0)
                break
            total = total + t[outer, :, low:high].sum(axis=1)
        yield total


# -- residual --------------------------------------------------------------------------------------
def add(a: np.ndarray, b: np.ndarray, total: np.ndarray, count) -> None:
    np.add(a, b, out=total)


def residual(a: np.ndarray, b: np.ndarray, y: np.ndarray, count) -> None:
    """Add and compare a few elements at a time: their sum is still in a cache."""
    for of_a, of_b, out in _few(a, b, y):
        np.add(of_a, of_b, out=out)
        np.maximum(out, np.float32(0), out=out)


def accumulate(da: np.ndarray, db: np.ndarray, count) -> None:
    db += da


def residual_backward(dy: np.ndarray, y: np.ndarray, da: np.ndarray, db: np.ndarray, count) -> None:
    """Compute a few elements at a time: their gradient is still in a cache when it is added to db."""
    for of_dy, of_y, gradient, total in _few(dy, y, da, db):
        _select(of_y > 0, of_dy, gradient)
        total += gradient


def _few(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    flat = [array.reshape(-1) for array in arrays]
    for first in range(0, flat[0].size, IN_CACHE):
        yield tuple(array[first : first + IN_CACHE] for array in flat)
