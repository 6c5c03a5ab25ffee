"""The steps of the pooling kernels with one thread per window or per pixel, in the Recorder of a scene.

Each function records the steps of one kernel, plane 0 in detail, each further plane as one step. Sums are those of the
kernel, float32, in its order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.pooling import reference
from kernels.pooling.shape import AvgPoolShape, MaxPoolShape, PoolShape
from visuals.pooling.links import Links, kept, windows
from visuals.scene.recorder import Recorder

LANES = 32
FLOAT = 4  # bytes


def lane(thread: int) -> dict[str, int]:
    """Returns the warp and the mask of one thread."""
    return {"warp": thread // LANES, "mask": 1 << thread % LANES}


def divisors(s: AvgPoolShape) -> np.ndarray:
    """Returns what the sum of each output is divided by, float32, over all planes."""
    return np.tile(reference.divisors(s).ravel(), s.planes).astype(np.float32)


def sum_in_order(values: np.ndarray) -> np.float32:
    """Returns the sum of float32 numbers, added one after another to 0."""
    total = np.float32(0)
    for value in values:
        total = np.float32(total + value)
    return total


# -- forward -----------------------------------------------------------------------------------------
def max_window(r: Recorder, s: MaxPoolShape, x: np.ndarray) -> None:
    """Record max pooling of x, one thread per window."""
    y, index = (a.ravel() for a in reference.maxima(s, x))
    reads, x = windows(s), x.ravel()
    for o, p, q in _first_plane(s.P, s.Q):
        cells = reads.of(o)
        h, w = divmod(int(index[o]), s.W)
        args = (p, q, o, len(cells), y[o], h, w, s.W, index[o])
        values = x[cells]
        if o == 0:
            r.step("compare" if len(cells) == s.R * s.S else "compare_pad", *args, **lane(o), loads=len(cells))
            r.look("x", cells)
            r.step("store", *args, **lane(o))
            r.look("x", index[o : o + 1])
        else:
            tie = int((values == y[o]).sum()) > 1
            r.step("window_tie" if tie else "window", *args, **lane(o), loads=len(cells))
            r.look("x", cells)
        r.put("y", y[o], np.array([o]))
        r.put("index", index[o], np.array([o]))
    for plane, cells in _other_planes(r, s, s.P * s.Q):
        r.count(loads=_links(reads, cells))
        r.look("x", plane * s.H * s.W + np.arange(s.H * s.W))
        r.put("y", y[cells], cells)
        r.put("index", index[cells], cells)


def avg_window(r: Recorder, s: AvgPoolShape, x: np.ndarray) -> None:
    """Record average pooling of x, one thread per window."""
    reads, by, x = windows(s), divisors(s), x.ravel()
    sums = np.array([sum_in_order(x[reads.of(o)]) for o in range(s.outputs)], np.float32)
    y = sums / by
    for o, p, q in _first_plane(s.P, s.Q):
        cells = reads.of(o)
        args = (p, q, o, len(cells), sums[o], by[o], y[o])
        whole = len(cells) == s.R * s.S
        if o == 0:
            r.step("add" if whole else "add_pad", *args[:5], **lane(o), loads=len(cells))
            r.look("x", cells)
            r.step("store_pad" if by[o] > len(cells) else "store", *args, **lane(o))
        else:
            r.step("window", *args, **lane(o), loads=len(cells))
            r.look("x", cells)
        r.put("y", y[o], np.array([o]))
    for plane, cells in _other_planes(r, s, s.P * s.Q):
        r.count(loads=_links(reads, cells))
        r.look("x", plane * s.H * s.W + np.arange(s.H * s.W))
        r.put("y", y[cells], cells)


# -- backward by scatter -----------------------------------------------------------------------------
def max_scatter(r: Recorder, s: MaxPoolShape, dy: np.ndarray, index: np.ndarray) -> None:
    """Record the scatter of dy to the kept indices, output after output."""
    _scatter(r, s, dy.ravel(), kept(s, index), np.ones(s.outputs, np.float32), index.ravel())


def avg_scatter(r: Recorder, s: AvgPoolShape, dy: np.ndarray) -> None:
    """Record the scatter of the shares of dy to all pixels of each window, output after output."""
    _scatter(r, s, dy.ravel(), windows(s), divisors(s), None)


def _scatter(r: Recorder, s: PoolShape, dy: np.ndarray, links: Links, by: np.ndarray, index: np.ndarray | None) -> None:
    dx, additions = np.zeros(s.pixels, np.float32), np.zeros(s.pixels, int)
    r.step("zero", s.pixels)
    r.put("dx", dx)
    share = dy / by

    def add(o: int) -> int:
        """Adds the share of an output to its pixels. Returns how many of them had an addition before."""
        cells = links.of(o)
        again = int((additions[cells] > 0).sum())
        dx[cells] += share[o]
        additions[cells] += 1
        return again

    for o, p, q in _first_plane(s.P, s.Q):
        cells, before = links.of(o), dx[links.of(o)].copy()
        again = add(o)
        if index is None:
            args = (p, q, o, dy[o], by[o], share[o], len(cells), again)
        else:
            args = (p, q, o, *divmod(int(index[o]), s.W), dy[o], before[0], dx[cells[0]])
        r.step("collide" if again else "give", *args, **lane(o), atomics=len(cells), again=again)
        _look_at_outputs(r, np.array([o]), index is not None)
        r.put("dx", dx[cells], cells)
    for plane, cells in _other_planes(r, s, s.P * s.Q):
        again = sum(add(int(o)) for o in cells)
        r.count(atomics=_links(links, cells), again=again)
        _look_at_outputs(r, cells, index is not None)
        pixels = plane * s.H * s.W + np.arange(s.H * s.W)
        r.put("dx", dx[pixels], pixels)


# -- backward by gather ------------------------------------------------------------------------------
def max_gather(r: Recorder, s: MaxPoolShape, dy: np.ndarray, index: np.ndarray) -> None:
    """Record the gather of dy, pixel after pixel: each looks at the windows that contain it."""
    readers, takers = windows(s).reversed(s.pixels), kept(s, index).reversed(s.pixels)
    dx = np.array([sum_in_order(dy.ravel()[takers.of(i)]) for i in range(s.pixels)], np.float32)
    for i, h, w in _first_plane(s.H, s.W):
        outputs, took = readers.of(i), takers.of(i)
        kind = "outside" if not len(outputs) else "none" if not len(took) else "one" if len(outputs) == 1 else "taken"
        r.step(kind, h, w, i, len(outputs), len(took), i, dx[i], **lane(i))
        r.look("index", outputs)
        r.look("dy", took)
        r.put("dx", dx[i], np.array([i]))
    _gather_other_planes(r, s, dx, has_index=True)


def avg_gather(r: Recorder, s: AvgPoolShape, dy: np.ndarray) -> None:
    """Record the gather of the shares of dy, pixel after pixel."""
    readers, share = windows(s).reversed(s.pixels), dy.ravel() / divisors(s)
    dx = np.array([sum_in_order(share[readers.of(i)]) for i in range(s.pixels)], np.float32)
    for i, h, w in _first_plane(s.H, s.W):
        outputs = readers.of(i)
        kind = ("outside", "one")[len(outputs)] if len(outputs) < 2 else "shares"
        r.step(kind, h, w, i, len(outputs), dx[i], **lane(i))
        r.look("dy", outputs)
        r.put("dx", dx[i], np.array([i]))
    _gather_other_planes(r, s, dx, has_index=False)


def _gather_other_planes(r: Recorder, s: PoolShape, dx: np.ndarray, has_index: bool) -> None:
    for plane, cells in _other_planes(r, s, s.H * s.W):
        _look_at_outputs(r, plane * s.P * s.Q + np.arange(s.P * s.Q), has_index)
        r.put("dx", dx[cells], cells)


# -- helpers -----------------------------------------------------------------------------------------
def _first_plane(rows: int, cols: int) -> Iterator[tuple[int, int, int]]:
    """Yields (number, row, column) of the elements of plane 0."""
    yield from ((i, *divmod(i, cols)) for i in range(rows * cols))


def _other_planes(r: Recorder, s: PoolShape, size: int) -> Iterator[tuple[int, np.ndarray]]:
    """Adds a step for each plane but the first. Yields its number and its `size` cells."""
    for plane in range(1, s.planes):
        r.step("plane", plane, size)
        yield plane, plane * size + np.arange(size)


def _links(links: Links, cells: np.ndarray) -> int:
    return int(links.counts[cells].sum())


def _look_at_outputs(r: Recorder, cells: np.ndarray, has_index: bool) -> None:
    r.look("dy", cells)
    if has_index:
        r.look("index", cells)
