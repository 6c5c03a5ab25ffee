"""The steps of the FFT scene: the visible part, and the writes of each kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from visuals.conv.fft import captions
from visuals.conv.fft.arrays import Arrays, degrees, snap_to_integers
from visuals.scene.parts import Read, Write
from visuals.scene.recorder import Recorder

MAX_CELLS = 1_024  # of a padded array with all its maps: of a larger one a part is shown


PART_SIDE, PART_MAPS = 16, 2  # rows and columns of that part, and maps


@dataclass(frozen=True)
class Part:
    """The visible part of the arrays: transform (down, across), of its padded arrays `rows` x `columns` from
    (row, column) on, of its spectra as many from frequency 0 on."""

    down: int
    across: int
    row: int
    column: int
    rows: int
    columns: int
    maps: int

    @property
    def block(self) -> tuple:
        """Returns its index into the padded arrays of all transforms."""
        rows, columns = slice(self.row, self.row + self.rows), slice(self.column, self.column + self.columns)
        return self.down, self.across, ..., rows, columns


def part_of(a: Arrays) -> Part:
    """Returns all of a transform if it is small enough. Otherwise returns the block in which the input varies
    most, of those from which an output is taken."""
    is_whole = len(a.x) * a.rows * a.columns <= MAX_CELLS
    rows, columns = (a.rows, a.columns) if is_whole else (min(a.rows, PART_SIDE), min(a.columns, PART_SIDE))
    maps = len(a.x) if is_whole else min(len(a.x), PART_MAPS)
    candidates = []
    for i, j in np.ndindex(a.tiles):
        for row in range(0, a.rows - rows + 1, rows):
            for column in range(0, a.columns - columns + 1, columns):
                part = Part(i, j, row, column, rows, columns, maps)
                if all(len(axis) for axis in picked(a, part)):
                    candidates.append((float(a.x_padded[part.block][0].std()), part))
    return max(candidates, key=lambda pair: pair[0])[1]


def picked(a: Arrays, part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Returns (rows, columns) of the output that are taken from the visible part."""
    s, cut = a.shape, a.cut
    axes = (
        (s.P, s.u, int(cut["step_h"]), part.down, part.row, part.rows),
        (s.Q, s.v, int(cut["step_w"]), part.across, part.column, part.columns),
    )
    picked_axes = []
    for count, stride, step, tile, first, length in axes:
        positions = np.arange(count) * stride
        inside = (positions // step == tile) & (first <= positions % step) & (positions % step < first + length)
        picked_axes.append(np.flatnonzero(inside))
    return picked_axes[0], picked_axes[1]


def input_range(a: Arrays, part: Part) -> tuple[range, range]:
    """Returns the rows and columns of the input in the visible part of the padded input. If it has only padding,
    returns the nearest row or column."""
    s, ranges = a.shape, []
    for size, pad, first, length in (
        (s.H, s.pad_h, part.down * int(a.cut["step_h"]) + part.row, part.rows),
        (s.W, s.pad_w, part.across * int(a.cut["step_w"]) + part.column, part.columns),
    ):
        start, stop = max(first - pad, 0), min(first - pad + length, size)
        ranges.append(range(start, stop) if start < stop else range(min(start, size - 1), min(start, size - 1) + 1))
    return ranges[0], ranges[1]


class FftSteps:
    """The steps in their order, in the recorder `r`. They count floats written to the workspace (`floats`), complex
    multiply-adds (`macs`) and outputs from windows that ran over the end (`wrong`). With `phases`, cells of a spectrum are
    phases in degrees, else magnitudes."""

    def __init__(self, a: Arrays, part: Part, expected: np.ndarray, padding: str, phases: bool = False):
        self.a, self.part, self.expected, self.padding, self.phases = a, part, expected, padding, phases
        self.r = Recorder()
        self.whole_copies: list[Write] = []  # into all cells of a tensor: no list of cells is needed
        self.frequencies = part.rows, part.columns // 2 + 1
        self.h, self.w = input_range(a, part)
        self.p, self.q = picked(a, part)
        cut = a.cut  # positions of those outputs in the transform
        self.picked_positions = (
            self.p * a.shape.u - part.down * int(cut["step_h"]),
            self.q * a.shape.v - part.across * int(cut["step_w"]),
        )
        transform = part.down, part.across
        self.X, self.W = (self.visible_part(spectrum, np.abs(spectrum).max()) for spectrum in (a.X[transform], a.W))
        self.Y = self.visible_part(a.Y[transform], a.max_product)
        self.dense = snap_to_integers(a.dense[part.block], a.max_output * a.rows * a.columns)
        self.y = snap_to_integers(a.y[self.p[:, None], self.q], a.max_output)
        self._pad()
        self._forward("X", a.x_padded[transform], self.X)
        self._forward("W", a.w_padded, self.W)
        self._multiply()
        self._inverse()
        self._pick()

    @property
    def spectrum(self) -> np.ndarray:
        """Returns int [maps, rows, frequencies]: the cells of a spectrum on the stage."""
        maps = self.part.maps
        return np.arange(maps * np.prod(self.frequencies)).reshape(maps, *self.frequencies)

    def visible_part(self, spectrum: np.ndarray, largest: float) -> np.ndarray:
        """Returns the visible part of a spectrum [..., rows, half], for the visible maps."""
        rows, columns = self.frequencies
        part = snap_to_integers(spectrum[..., :rows, :columns], largest)
        return part[: self.part.maps] if part.ndim == 3 else part

    def _pad(self) -> None:
        a, p, s = self.a, self.part, self.a.shape
        h = p.down * int(a.cut["step_h"]) + p.row + np.arange(p.rows) - s.pad_h
        w = p.across * int(a.cut["step_w"]) + p.column + np.arange(p.columns) - s.pad_w
        inside = ((h >= 0) & (h < s.H))[:, None] & ((w >= 0) & (w < s.W))
        c = np.arange(p.maps)[:, None, None] * len(self.h)
        index = (c + h[:, None] - self.h.start) * len(self.w) + w - self.w.start
        index = np.where(inside, index, -1)
        t = self.r.step(captions.PAD_INPUT, a.rows, a.columns, np.count_nonzero(~inside), floats=index.size)
        self.whole_copies.append(Write("xp", np.array([t]), source="x", index=index.ravel()))
        r, column = np.arange(p.rows), np.arange(p.columns)
        tap_r, tap_s = r // s.dilation_h, column // s.dilation_w
        tap = ((r % s.dilation_h == 0) & (tap_r < s.R))[:, None] & ((column % s.dilation_w == 0) & (tap_s < s.S))
        if s.flip:
            tap_r, tap_s = s.R - 1 - tap_r, s.S - 1 - tap_s
        index = (np.arange(p.maps)[:, None, None] * s.R + tap_r[:, None]) * s.S + tap_s
        index = np.where(tap, index, -1)
        size = a.rows * a.columns
        t = self.r.step(captions.PAD_FILTER, s.R * s.S, size, size / (s.R * s.S), floats=index.size)
        self.whole_copies.append(Write("wp", np.array([t]), source="w", index=index.ravel()))

    def _forward(self, name: str, padded: np.ndarray, done: np.ndarray) -> None:
        """Add the steps that transform rows, then columns. The first pass writes numbers that only cuFFT uses.
        The second writes those of the array, `done`."""
        a, p, cells = self.a, self.part, self.spectrum
        first = np.fft.rfft(padded.astype(np.float64), axis=-1)
        first = self.visible_part(first, np.abs(first).max())
        source, row = ("xp", p.row) if name == "X" else ("wp", 0)
        read = np.arange(p.maps * p.rows * p.columns).reshape(p.maps, p.rows, -1)
        for i in range(p.rows):
            kind = captions.ROW_KINDS[name][int(not padded[:, i].any())]
            total = float(padded[0, i].sum(dtype=np.float64))
            self.r.step(kind, i, a.columns, a.columns // 2 + 1, total)
            if row <= i < row + p.rows:
                self.r.look(source, read[:, i - row])
            self._put(name, first[:, i], cells[:, i])
        for j in range(self.frequencies[1]):
            value = done[0, 0, j]
            floats = 2 * p.maps * p.rows
            self.r.step(captions.COLUMN_KIND[name], j, a.rows, value.real, value.imag, floats=floats)
            self._put(name, done[:, :, j], cells[:, :, j])

    def _put(self, name: str, values: np.ndarray, cells: np.ndarray) -> None:
        """Records that the step writes numbers; of complex numbers, the magnitude or the phase."""
        if np.iscomplexobj(values):
            values = degrees(values) if self.phases else np.abs(values)
        self.r.put(name, values, cells)

    def writes(self) -> tuple[Write, ...]:
        return (*self.whole_copies, *self.r.writes())

    def _multiply(self) -> None:
        X, W, Y, (rows, columns) = self.X, self.W, self.Y, self.frequencies
        f = min(1, columns - 1)  # the frequency that the caption follows
        for i in range(rows):
            numbers = [part for n in (X[0, i, f], W[0, i, f], Y[i, f]) for part in (n.real, n.imag)]
            counts = {"floats": 2 * columns, "macs": columns * self.part.maps}
            self.r.step(captions.MULTIPLY, i, f, *numbers, self.a.columns // 2 + 1, **counts)
            self.r.look("X", self.spectrum[:, i])
            self._put("Y", Y[i], self.spectrum[0, i])

    def _inverse(self) -> None:
        p = self.part
        for i in range(p.rows):
            self.r.step(captions.INVERSE, p.row + i, self.a.rows * self.a.columns, floats=p.columns)
            self._put("d", self.dense[i], i * p.columns + np.arange(p.columns))

    def _pick(self) -> None:
        a, p, (down, w) = self.a, self.part, self.picked_positions
        size = a.rows * a.columns
        for n, (row, h) in enumerate(zip(self.p, down, strict=True)):
            wrong = int(a.wrapped_output[row, self.q].sum())
            kind = captions.PICK_WRONG if wrong else captions.PICK
            self.r.step(kind, row, h, size, len(self.q), wrong, wrong=wrong)
            self.r.look("d", (h - p.row) * p.columns + w - p.column)
            self._put("y", self.y[n], n * len(self.q) + np.arange(len(self.q)))

    def reads(self) -> tuple[Read, ...]:
        """Returns the reads. A product reads the same cells of both spectra."""
        reads = sorted(self.r.reads(), key=lambda read: read.source)
        return (*reads, *(replace(read, source="W") for read in reads if read.source == "X"))
