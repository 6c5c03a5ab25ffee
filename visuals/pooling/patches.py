"""The steps of the pooling kernels in which a thread has a patch: its registers are a tensor of the scene.

Thread 0 is recorded in detail, each further thread as one step. The registers shown are those of the thread of the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.model.launch import ceil
from kernels.model.program import Tiles
from kernels.pooling import common, reference
from kernels.pooling.shape import AvgPoolShape, MaxPoolShape, PoolShape
from visuals.pooling.links import kept
from visuals.pooling.steps import divisors, lane, sum_in_order
from visuals.scene.recorder import Recorder


@dataclass(frozen=True)
class Patch:
    """The patch of one thread: `rows` and `cols` of x [H, W] in its registers, of which some are outside; its plane."""

    thread: int
    plane: int
    p: int  # first row and column of its outputs
    q: int
    rows: np.ndarray
    cols: np.ndarray

    def cells(self, s: PoolShape) -> np.ndarray:
        """Returns int64[rows, cols]: the cells of x; -1 outside of the plane."""
        inside = ((self.rows >= 0) & (self.rows < s.H))[:, None] & ((self.cols >= 0) & (self.cols < s.W))
        cells = self.plane * s.H * s.W + self.rows[:, None] * s.W + self.cols
        return np.where(inside, cells, -1)


def patches(s: PoolShape, tiles: Tiles, of_pixels: bool) -> Iterator[Patch]:
    """Yields the patch of every thread: the pixels under its outputs, or the pixels that it owns."""
    down, across = common.strides_of(s, tiles)
    height, width = (down * s.u, across * s.v) if of_pixels else common.patch_of(s, tiles)
    pad_h, pad_w = (0, 0) if of_pixels else (s.pad_h, s.pad_w)
    rows, cols = common.patches_of(s, tiles, of_pixels)
    for thread in range(s.planes * rows * cols):
        row, col = divmod(thread, cols)
        plane, row = divmod(row, rows)
        p, q = row * down, col * across
        yield Patch(thread, plane, p, q, p * s.u - pad_h + np.arange(height), q * s.v - pad_w + np.arange(width))


# -- forward -----------------------------------------------------------------------------------------
def loaded(s: PoolShape, tiles: Tiles) -> np.ndarray:
    """Returns bool[PATCH_H, PATCH_W]: the pixels of a patch that its windows need, and those loaded with them as float4."""
    down, across = common.strides_of(s, tiles)
    height, width = common.patch_of(s, tiles)

    def needed(outputs: int, stride: int, taps: int, dilation: int, extent: int) -> np.ndarray:
        used = np.zeros(extent, bool)
        for i in range(outputs):
            used[i * stride + np.arange(taps) * dilation] = True
        return used

    rows = needed(down, s.u, s.R, s.dilation_h, height)
    cols = needed(across, s.v, s.S, s.dilation_w, width)
    if common.window_defines(s, tiles)["VECTOR"] == 4:
        for first in range(s.pad_w % 4, width - 3, 4):
            cols[first : first + 4] |= cols[first : first + 4].any()
    return rows[:, None] & cols


def max_patch(r: Recorder, s: MaxPoolShape, tiles: Tiles, x: np.ndarray) -> None:
    """Record max pooling of x with one thread per patch."""
    y, index = (a.ravel() for a in reference.maxima(s, x))
    _forward(r, s, tiles, {"y": y, "index": index}, -np.inf)


def avg_patch(r: Recorder, s: AvgPoolShape, tiles: Tiles, x: np.ndarray) -> None:
    """Record average pooling of x with one thread per patch: rows of a window are added up first."""
    planes, by = reference.padded(s, x, np.float32(0)), divisors(s)
    y = np.zeros(s.outputs, np.float32)
    for o, (n, c, p, q) in enumerate(np.ndindex(s.y_shape)):
        window = planes[n, c, p * s.u : p * s.u + s.R, q * s.v : q * s.v + s.S]
        y[o] = sum_in_order(np.array([sum_in_order(row) for row in window])) / by[o]
    _forward(r, s, tiles, {"y": y}, 0.0)


def _forward(r: Recorder, s: PoolShape, tiles: Tiles, outputs: dict, outside: float) -> None:
    down, across = common.strides_of(s, tiles)
    mask = loaded(s, tiles).ravel()
    for patch in patches(s, tiles, of_pixels=False):
        cells = patch.cells(s).ravel()
        pixels = cells[mask & (cells >= 0)]
        rows = range(patch.p, min(patch.p + down, s.P))
        cols = np.arange(patch.q, min(patch.q + across, s.Q))
        count = len(rows) * len(cols)
        if patch.thread == 0:
            r.step("load", 0, len(pixels), count, **lane(0), loads=len(pixels))
            r.look("x", pixels)
            _fill(r, cells, outside)
            for p in rows:
                _rows_of_outputs(r, s, patch, p, cols, outputs)
        else:
            r.step("thread", patch.thread, len(pixels), count, **lane(patch.thread), loads=len(pixels))
            r.look("x", pixels)
            _fill(r, cells, outside)
            at = ((patch.plane * s.P + np.array(rows))[:, None] * s.Q + cols).ravel()
            for name, value in outputs.items():
                r.put(name, value[at], at)


def _fill(r: Recorder, cells: np.ndarray, outside: float) -> None:
    """Record that registers get copies of these cells of x, and `outside` where there is none (-1)."""
    inside = cells >= 0
    r.copy("patch", "x", cells[inside], np.flatnonzero(inside))
    if not inside.all():
        r.put("patch", np.full(int((~inside).sum()), outside, np.float32), np.flatnonzero(~inside))


def _rows_of_outputs(r: Recorder, s: PoolShape, patch: Patch, p: int, cols: np.ndarray, outputs: dict) -> None:
    """Record the windows of one row of outputs of a thread, and their store."""
    at = (patch.plane * s.P + p) * s.Q + cols
    width = len(patch.cols)
    for q, o in zip(cols, at, strict=True):
        r.step("window", p, q, outputs["y"][o], **lane(patch.thread))
        rows = (p - patch.p) * s.u + np.arange(s.R) * s.dilation_h
        r.look("patch", rows[:, None] * width + (q - patch.q) * s.v + np.arange(s.S) * s.dilation_w)
    r.step("store", patch.thread, p, len(cols), **lane(patch.thread))
    for name, value in outputs.items():
        r.put(name, value[at], at)


# -- backward ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Window:
    """A window that reaches a patch: its output, its row and column, and the registers of the patch that it has."""

    output: int
    p: int
    q: int
    cells: np.ndarray


def windows_at(s: PoolShape, tiles: Tiles, patch: Patch) -> list[Window]:
    """Returns the windows that a thread of a gather reads, in its order. Those outside of y are left out."""
    height, width = common.windows_of(s, tiles)
    first_p = patch.p + ceil(s.pad_h - (s.R - 1) * s.dilation_h, s.u)
    first_q = patch.q + ceil(s.pad_w - (s.S - 1) * s.dilation_w, s.v)
    out = []
    for p in range(max(0, first_p), min(first_p + height, s.P)):
        for q in range(max(0, first_q), min(first_q + width, s.Q)):
            rows = _taps(patch.rows - (p * s.u - s.pad_h), s.R, s.dilation_h)
            cols = _taps(patch.cols - (q * s.v - s.pad_w), s.S, s.dilation_w)
            cells = (rows[:, None] * len(patch.cols) + cols).ravel()
            out.append(Window((patch.plane * s.P + p) * s.Q + q, p, q, cells))
    return out


def _taps(distance: np.ndarray, taps: int, dilation: int) -> np.ndarray:
    """Returns which of these distances from a window's start a tap has."""
    return np.flatnonzero((distance >= 0) & (distance % dilation == 0) & (distance // dilation < taps))


def max_gather_patch(r: Recorder, s: MaxPoolShape, tiles: Tiles, dy: np.ndarray, index: np.ndarray) -> None:
    """Record the gather of dy with one thread per patch of pixels."""
    links = kept(s, index)
    _gather(r, s, tiles, dy.ravel(), lambda w, cells: w.cells[cells[w.cells] == links.cells[w.output]], ("dy", "index"))


def avg_gather_patch(r: Recorder, s: AvgPoolShape, tiles: Tiles, dy: np.ndarray) -> None:
    """Record the gather of the shares of dy with one thread per patch of pixels."""
    _gather(r, s, tiles, dy.ravel() / divisors(s), lambda w, cells: w.cells, ("dy",))


def _gather(r: Recorder, s: PoolShape, tiles: Tiles, share: np.ndarray, taken, reads: tuple[str, ...]) -> None:
    """Record each thread. taken(window, cells) returns the registers that a window adds to."""
    for patch in patches(s, tiles, of_pixels=True):
        cells = patch.cells(s).ravel()
        found = windows_at(s, tiles, patch)
        sums = np.zeros(len(cells), np.float32)
        detailed = patch.thread == 0
        if not detailed:
            r.step("thread", patch.thread, int((cells >= 0).sum()), len(found), **lane(patch.thread))
            for name in reads:
                r.look(name, np.array([w.output for w in found], int))
        for n, window in enumerate(found):
            at = taken(window, cells)
            sums[at] += share[window.output]
            if detailed:
                _one_window(r, window, at, sums, share, reads, n == 0)
        if not detailed:
            r.put("sums", sums)
        else:
            r.step("store", 0, int((cells >= 0).sum()), **lane(0))
            if not found:
                r.put("sums", sums)
            r.look("sums", np.arange(len(cells)))
        r.put("dx", sums[cells >= 0], cells[cells >= 0])


def _one_window(r: Recorder, w: Window, at: np.ndarray, sums, share, reads: tuple[str, ...], first: bool) -> None:
    """Record that thread 0 adds a window to its sums. At the first, all sums are set."""
    if "index" in reads:
        args = (0, w.p, w.q, sums[at[0]] if len(at) else 0)
        r.step("took" if len(at) else "other", *args, **lane(0))
    else:
        r.step("share", 0, w.p, w.q, share[w.output], len(at), **lane(0))
    for name in reads:
        r.look(name, np.array([w.output]))
    if first:
        r.put("sums", sums)
    elif len(at):
        r.put("sums", sums[at], at)
