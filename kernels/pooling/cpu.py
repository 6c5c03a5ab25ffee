"""The pooling kernels in NumPy, with the same arguments: the cpu engine runs these.

A tap (r, s) of all windows is one strided slice of x and one slice of y: `along` returns both of an axis. Padding is in
neither. So nothing is padded and nothing is compared with a border.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

IN_CACHE = 2**16  # floats of whole planes at a time that stay in a cache: 256 KB
LANES = 32
Shape = np.void  # struct Pool of cuda/pool.cuh


def along(offset: int, stride: int, windows: int, extent: int) -> tuple[slice, slice]:
    """Returns the windows whose tap at `offset` from the first window's start is inside, and their pixels, as slices."""
    first = max(0, -(offset // stride))
    stop = max(first, min(windows, (extent - 1 - offset) // stride + 1))
    start = first * stride + offset
    return slice(first, stop), slice(start, start + (stop - first - 1) * stride + 1 if stop > first else start, stride)


def row_tap(s: Shape, r: int) -> tuple[slice, slice]:
    """Returns the rows of y and of x that tap row r joins."""
    return along(int(r * s["dilation_h"] - s["pad_h"]), int(s["u"]), int(s["P"]), int(s["H"]))


def col_tap(s: Shape, c: int) -> tuple[slice, slice]:
    return along(int(c * s["dilation_w"] - s["pad_w"]), int(s["v"]), int(s["Q"]), int(s["W"]))


def taps(s: Shape) -> Iterator[tuple[slice, slice, slice, slice]]:
    """Yields (rows of y, columns of y, rows of x, columns of x) of each tap, in window order."""
    for r in range(s["R"]):
        p, h = row_tap(s, r)
        for c in range(s["S"]):
            q, w = col_tap(s, c)
            yield p, q, h, w


def places(s: Shape) -> np.ndarray:
    """Returns h*W + w of each pixel, int32 [H, W]."""
    return np.arange(s["H"] * s["W"], dtype=np.int32).reshape(s["H"], s["W"])


def first_places(s: Shape) -> np.ndarray:
    """Returns the place of each window's first pixel, int32 [P, Q]."""

    def first(windows: int, stride: int, pad: int, dilation: int) -> np.ndarray:
        start = np.arange(windows) * stride - pad
        return np.where(start < 0, start % dilation, start)

    rows = first(s["P"], s["u"], s["pad_h"], s["dilation_h"])
    cols = first(s["Q"], s["v"], s["pad_w"], s["dilation_w"])
    return (rows[:, None] * s["W"] + cols).astype(np.int32)


# -- maxima ------------------------------------------------------------------------------------------
def max_window(x: np.ndarray, y: np.ndarray, index: np.ndarray, s: Shape, count) -> None:
    """Compare one tap of all windows after the other."""
    y[...], index[...] = -np.inf, first_places(s)
    place = places(s)
    for p, q, h, w in taps(s):
        _keep_larger(y[..., p, q], index[..., p, q], x[..., h, w], place[h, w])


def max_patch(x: np.ndarray, y: np.ndarray, index: np.ndarray, s: Shape, count) -> None:
    """Find the maximum of each row of a window first, then that of these rows."""
    y[...], index[...] = -np.inf, first_places(s)
    place = places(s)
    for r in range(s["R"]):
        p, h = row_tap(s, r)
        row_y = np.full(y[..., p, :].shape, -np.inf, np.float32)
        row_index = np.zeros(row_y.shape, np.int32)
        for c in range(s["S"]):
            q, w = col_tap(s, c)
            _keep_larger(row_y[..., q], row_index[..., q], x[..., h, w], place[h, w])
        _keep_larger(y[..., p, :], index[..., p, :], row_y, row_index)


def _keep_larger(best: np.ndarray, at: np.ndarray, value: np.ndarray, place: np.ndarray) -> None:
    """Replace in `best` and `at`, in place, what is smaller than `value`. A NaN counts as larger."""
    larger = (value > best) | np.isnan(value)
    np.copyto(best, value, where=larger)
    np.copyto(at, np.broadcast_to(place, at.shape), where=larger)


def max_scatter(dy: np.ndarray, index: np.ndarray, dx: np.ndarray, s: Shape, count) -> None:
    """Add each dy to its pixel, output after output."""
    planes = dx.reshape(-1, s["H"] * s["W"])
    at = index.reshape(len(planes), -1) + np.arange(len(planes), dtype=np.int64)[:, None] * planes.shape[1]
    np.add.at(dx.reshape(-1), at.ravel(), dy.ravel())


def max_gather(dy: np.ndarray, index: np.ndarray, dx: np.ndarray, s: Shape, count) -> None:
    """Add to each pixel the dy of the windows that took it, from the first window to the last."""
    dx[...] = 0
    place = places(s)
    for p, q, h, w in reversed(list(taps(s))):  # the last tap of a window is on the pixels of the first windows
        dx[..., h, w] += np.where(index[..., p, q] == place[h, w], dy[..., p, q], np.float32(0))


# -- means -------------------------------------------------------------------------------------------
def divisors(s: Shape) -> np.ndarray:
    """Returns what each window's sum is divided by, float32 [P, Q]."""

    def counted(windows: int, stride: int, window: int, pad: int, extent: int) -> np.ndarray:
        start = np.arange(windows) * stride - pad
        stop = np.minimum(start + window, extent + pad)
        return stop - start if s["include_pad"] else np.minimum(stop, extent) - np.maximum(start, 0)

    rows = counted(s["P"], s["u"], s["R"], s["pad_h"], s["H"])
    cols = counted(s["Q"], s["v"], s["S"], s["pad_w"], s["W"])
    return np.outer(rows.astype(np.float32), cols.astype(np.float32))


def avg_window(x: np.ndarray, y: np.ndarray, s: Shape, count) -> None:
    """Add one tap of all windows after the other."""
    y[...] = 0
    for p, q, h, w in taps(s):
        y[..., p, q] += x[..., h, w]
    y /= divisors(s)


def avg_patch(x: np.ndarray, y: np.ndarray, s: Shape, count) -> None:
    """Add up each row of a window first, then these rows."""
    y[...] = 0
    for r in range(s["R"]):
        p, h = row_tap(s, r)
        row = np.zeros(y[..., p, :].shape, np.float32)
        for c in range(s["S"]):
            q, w = col_tap(s, c)
            row[..., q] += x[..., h, w]
        y[..., p, :] += row
    y /= divisors(s)


def avg_scatter(dy: np.ndarray, dx: np.ndarray, s: Shape, count) -> None:
    """Add the shares of all windows to one tap of theirs after the other."""
    share = dy / divisors(s)
    for p, q, h, w in taps(s):
        dx[..., h, w] += share[..., p, q]


def avg_gather(dy: np.ndarray, dx: np.ndarray, s: Shape, count) -> None:
    """Add to each pixel the share of its first window, then that of its second, and so on."""
    share = dy / divisors(s)
    rows = _windows_of(s["H"], s["pad_h"], s["R"], s["u"], s["P"])
    cols = _windows_of(s["W"], s["pad_w"], s["S"], s["v"], s["Q"])
    dx[...] = 0
    for p, in_p in rows:
        for q, in_q in cols:
            dx += np.where(np.outer(in_p, in_q), share[..., p[:, None], q], np.float32(0))


def _windows_of(extent, pad, window, stride, windows) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns for each k the k-th window of every pixel along an axis, and whether it has one."""
    last = np.arange(extent) + pad
    first = np.maximum(0, -((window - 1 - last) // stride))
    kth = (first + k for k in range(-(-int(window) // int(stride))))
    return [(np.minimum(i, windows - 1), (i < windows) & (i * stride <= last)) for i in kth]


# -- whole planes ------------------------------------------------------------------------------------
def global_plane(x: np.ndarray, y: np.ndarray, planes, area) -> None:
    """Add one pixel of all planes after the other."""
    pixels, sums = x.reshape(planes, area), y.reshape(planes)
    sums[:] = 0
    for pixel in range(area):
        sums += pixels[:, pixel]
    sums /= np.float32(area)


def global_warp(x: np.ndarray, y: np.ndarray, planes, area) -> None:
    """Add up a few planes at a time: 32 sums of each, then their sum in pairs."""
    pixels, means = x.reshape(planes, area), y.reshape(planes)
    at_a_time, whole = max(1, IN_CACHE // int(area)), area // LANES * LANES
    for first in range(0, planes, at_a_time):
        part = pixels[first : first + at_a_time]
        sums = part[:, :whole].reshape(len(part), -1, LANES).sum(axis=1, dtype=np.float32)
        sums[:, : area - whole] += part[:, whole:]
        while sums.shape[1] > 1:
            half = sums.shape[1] // 2
            sums = sums[:, :half] + sums[:, half:]
        means[first : first + at_a_time] = sums[:, 0] / np.float32(area)


def global_spread(dy: np.ndarray, dx: np.ndarray, by_area, area, count) -> None:
    """Divide at each pixel."""
    np.divide(dy.reshape(-1, 1), np.float32(area), out=dx.reshape(-1, area))


def global_spread_four(dy: np.ndarray, dx: np.ndarray, by_area, area, count) -> None:
    """Divide once per plane, then fill the planes."""
    dx.reshape(-1, area)[...] = (dy.ravel() / np.float32(area))[:, None]
