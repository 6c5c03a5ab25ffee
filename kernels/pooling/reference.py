"""float64 references of pooling, forward and backward, each with its error scale.

A window is a list of taps (r, s). Tap (r, s) of window (p, q) is the pixel (p*u - pad_h + r*dilation_h, q*v - pad_w +
s*dilation_w). Each reference goes through the taps once, with x padded to what the last windows reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from zlib import crc32

import numpy as np

from kernels.model.verify import Reference
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape, PoolShape

TOLERANCE = 1e-5  # allowed error of a sum, as a fraction of the scale
NO_PIXEL = -1
IN_CACHE = 2**16  # pixels of a few planes


def padded(s: PoolShape, planes: np.ndarray, fill: float | np.floating) -> np.ndarray:
    """Returns planes [..., H, W] with `fill` around them, as far as the windows reach."""
    reach_h = (s.P - 1) * s.u + (s.R - 1) * s.dilation_h + 1
    reach_w = (s.Q - 1) * s.v + (s.S - 1) * s.dilation_w + 1
    out = np.full((*planes.shape[:-2], max(reach_h, s.pad_h + s.H), max(reach_w, s.pad_w + s.W)), fill, planes.dtype)
    out[..., s.pad_h : s.pad_h + s.H, s.pad_w : s.pad_w + s.W] = planes
    return out


def few_planes(s: PoolShape, *arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields a few planes of each array [N, C, rows, cols] at a time, as views [planes, rows, cols]: they stay in a cache."""
    step = max(1, IN_CACHE // (s.H * s.W))
    flat = [a.reshape(s.planes, *a.shape[2:]) for a in arrays]
    for first in range(0, s.planes, step):
        yield tuple(a[first : first + step] for a in flat)


def taps(s: PoolShape) -> Iterator[tuple[slice, slice]]:
    """Yields, tap by tap in window order, the rows and columns of padded planes that it takes for all windows [P, Q]."""
    for r in range(s.R):
        for c in range(s.S):
            h, w = r * s.dilation_h, c * s.dilation_w
            yield slice(h, h + (s.P - 1) * s.u + 1, s.u), slice(w, w + (s.Q - 1) * s.v + 1, s.v)


def places(s: PoolShape) -> np.ndarray:
    """Returns h*W + w of each pixel, and NO_PIXEL around them, int64, padded as `padded`."""
    return padded(s, np.arange(s.H * s.W).reshape(s.H, s.W), NO_PIXEL)


# -- maxima ------------------------------------------------------------------------------------------
def max_pool(s: MaxPoolShape, x: np.ndarray) -> dict[str, Reference]:
    """Returns y, float64 [N, C, P, Q], and index, int64 [N, C, P, Q], each with its scale."""
    y, index = maxima(s, x.astype(np.float64))
    return {"y": (y, np.abs(y)), "index": (index, np.zeros(()))}


def maxima(s: MaxPoolShape, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest values of the windows, in the type of x, and their places in the plane, int64."""
    y = np.full(s.y_shape, -np.inf, x.dtype)
    place, first = places(s), np.zeros((s.P, s.Q), np.int64)
    for rows, cols in reversed(list(taps(s))):
        at = place[rows, cols]
        np.copyto(first, at, where=at != NO_PIXEL)
    index = np.broadcast_to(first, s.y_shape).copy()
    has_nan = np.isnan(x).any()
    for part, largest, at in few_planes(s, x, y, index):
        planes = padded(s, part, -np.inf)
        for rows, cols in taps(s):
            value = planes[..., rows, cols]
            larger = value > largest
            if has_nan:
                larger |= np.isnan(value)
            np.copyto(largest, value, where=larger)
            np.copyto(at, place[rows, cols], where=larger)
    return y, index


def random_indices(s: MaxPoolShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the kept indices that the backward pass gets: those of the maxima of random numbers.

    The seed is a checksum of dy: the same dy has the same indices."""
    rng = np.random.default_rng(crc32(np.ascontiguousarray(inputs["dy"]).data))
    _, index = maxima(s, rng.standard_normal(s.x_shape, dtype=np.float32))
    return {"index": index.astype(np.int32)}


def max_pool_backward(s: MaxPoolShape, dy: np.ndarray, index: np.ndarray) -> Reference:
    """Returns dx, float64 [N, C, H, W]: each dy is added at the place of its maximum."""
    at = (np.arange(s.planes)[:, None] * (s.H * s.W) + index.reshape(s.planes, -1)).ravel().astype(np.intp)
    dy = dy.astype(np.float64).ravel()
    dx, scale = (np.bincount(at, values, s.pixels).reshape(s.x_shape) for values in (dy, np.abs(dy)))
    return dx, scale


# -- means -------------------------------------------------------------------------------------------
def divisors(s: AvgPoolShape) -> np.ndarray:
    """Returns the number of pixels that each window's sum is divided by, int64 [P, Q]."""

    def along(windows: int, window: int, stride: int, pad: int, extent: int) -> np.ndarray:
        start = np.arange(windows) * stride - pad
        stop = np.minimum(start + window, extent + pad)
        return stop - start if s.include_pad else np.minimum(stop, extent) - np.maximum(start, 0)

    return np.outer(along(s.P, s.R, s.u, s.pad_h, s.H), along(s.Q, s.S, s.v, s.pad_w, s.W))


def avg_pool(s: AvgPoolShape, x: np.ndarray) -> Reference:
    """Returns y, float64 [N, C, P, Q], and its scale."""
    y, scale = np.empty((2, *s.y_shape))
    for part, y_part, scale_part in few_planes(s, x, y, scale):
        part = part.astype(np.float64)
        y_part[...], scale_part[...] = _means(s, part), _means(s, np.abs(part))
    return y, scale


def _means(s: AvgPoolShape, x: np.ndarray) -> np.ndarray:
    planes, y = padded(s, x, 0), np.zeros((len(x), s.P, s.Q))
    for rows, cols in taps(s):
        y += planes[..., rows, cols]
    return y / divisors(s)


def avg_pool_backward(s: AvgPoolShape, dy: np.ndarray) -> Reference:
    """Returns dx, float64 [N, C, H, W], and its scale: each window adds dy / divisor to each of its pixels."""
    dx, scale = np.empty((2, *s.x_shape))
    by = divisors(s)
    for gradient, dx_part, scale_part in few_planes(s, dy, dx, scale):
        share = gradient.astype(np.float64) / by
        dx_part[...], scale_part[...] = _spread(s, share), _spread(s, np.abs(share))
    return dx, scale


def _spread(s: AvgPoolShape, share: np.ndarray) -> np.ndarray:
    planes = padded(s, np.zeros((len(share), s.H, s.W)), 0)
    for rows, cols in taps(s):
        planes[..., rows, cols] += share
    return planes[..., s.pad_h : s.pad_h + s.H, s.pad_w : s.pad_w + s.W]


def global_avg_pool(s: GlobalShape, x: np.ndarray) -> Reference:
    """Returns y, float64 [N, C], and its scale."""
    means = [
        (image.mean(axis=(1, 2), dtype=np.float64), np.abs(image).mean(axis=(1, 2), dtype=np.float64)) for image in x
    ]
    y, scale = (np.stack(column) for column in zip(*means, strict=True))
    return y, scale


def global_avg_pool_backward(s: GlobalShape, dy: np.ndarray) -> Reference:
    """Returns dx, float64 [N, C, H, W]: dy / (H*W) at each pixel."""
    dx = np.broadcast_to((dy.astype(np.float64) / s.area)[..., None, None], (s.N, s.C, s.H, s.W))
    return dx, np.abs(dx)
