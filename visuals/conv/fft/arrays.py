"""The arrays of the steps of conv/fft, from one image and one filter to a map of the output.

The functions are those of the rung's own steps (kernels/conv/fft_cpu.py, with the same arguments as the CUDA
kernels and cuFFT). The stage, the pictures and the tests therefore show what runs. Maps repeat on a page (channel
c is plane c mod 3): equal ones are transformed once and counted `times` in the product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kernels.conv import common, fft, fft_cpu
from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from kernels.model.launch import ceil

PAD, TOO_SMALL = mark("pad"), mark("too small")  # as the URL has them


def cut_of(s: ConvShape, tile: int, padding: str = PAD) -> np.void:
    """Returns how the padded input is cut into transforms of `tile` rows and columns (0: whole)."""
    cut = fft.cut(s, {"FFT_TILE": tile})
    return cut if padding == PAD else small_cut(s, cut, bool(tile))


def small_cut(s: ConvShape, cut: np.void, tiled: bool) -> np.void:
    """Returns a cut with the mistake of ignoring that a transform wraps around. Whole, it is only as large as the dense output (as large
    as the map, if padding preserves the size). In tiles, each begins where the last one ends, without overlap."""
    small: np.void = cut.copy()
    if not tiled:
        small["rows"] = max(s.padded_h - s.span_h + 1, s.span_h)
        small["columns"] = max(s.padded_w - s.span_w + 1, s.span_w)
    small["step_h"], small["step_w"] = small["rows"], small["columns"]
    small["down"] = ceil((s.P - 1) * s.u + 1, int(small["step_h"]))
    small["across"] = ceil((s.Q - 1) * s.v + 1, int(small["step_w"]))
    return small


@dataclass(frozen=True)
class Arrays:
    """All arrays of one image and one filter, as in the steps of conv/fft: float32, spectra complex64."""

    shape: ConvShape  # N = K = 1, C the number of different maps; no bias, no ReLU: they come later
    cut: np.void
    times: np.ndarray  # how often each map counts in the product
    x: np.ndarray  # [C, H, W]
    w: np.ndarray  # [C, R, S]
    x_padded: np.ndarray  # [down, across, C, rows, columns]
    w_padded: np.ndarray  # [C, rows, columns]
    X: np.ndarray  # [down, across, C, rows, columns // 2 + 1]
    W: np.ndarray  # [C, rows, columns // 2 + 1]
    Y: np.ndarray  # [down, across, rows, columns // 2 + 1]
    dense: np.ndarray  # [down, across, rows, columns], rows * columns times the sums
    y: np.ndarray  # [P, Q]

    @property
    def rows(self) -> int:
        return int(self.cut["rows"])

    @property
    def columns(self) -> int:
        return int(self.cut["columns"])

    @property
    def tiles(self) -> tuple[int, int]:
        """Returns the number of transforms down and across an image."""
        return int(self.cut["down"]), int(self.cut["across"])

    @property
    def max_output(self) -> float:
        """Returns an upper limit of every output pixel. The rounding of a whole transform is relative to it."""
        largest, sums = np.abs(self.x).max(axis=(1, 2)), np.abs(self.w).sum(axis=(1, 2))
        return float((self.times * largest * sums).sum())

    @property
    def max_product(self) -> float:
        """Returns the same limit for a product of spectra."""
        X, W = (np.abs(a).max(axis=(-2, -1)) for a in (self.X, self.W))
        return float((self.times * X * W).sum(axis=-1).max())

    @cached_property
    def wrapped(self) -> np.ndarray:
        """Returns bool [rows, columns]: pixels of a transform whose window extends over its end."""
        s = self.shape
        over_h = np.arange(self.rows) + s.span_h > self.rows
        over_w = np.arange(self.columns) + s.span_w > self.columns
        return over_h[:, None] | over_w

    @cached_property
    def wrapped_output(self) -> np.ndarray:
        """Returns bool [P, Q]: output pixels that are taken from such positions; none if the padding is large
        enough."""
        s = self.shape
        h, w = np.arange(s.P) * s.u % self.cut["step_h"], np.arange(s.Q) * s.v % self.cut["step_w"]
        return self.wrapped[h[:, None], w]


def arrays_of(
    s: ConvShape, x: np.ndarray, w: np.ndarray, tile: int, padding: str = PAD, times: np.ndarray | None = None
) -> Arrays:
    """Returns the arrays of x [C, H, W] and w [C, R, S]. Their maps are all different, each counted `times`
    (default 1). Of `s`, only the extents of a map and of a filter are used. ValueError if a filter does not
    fit a transform."""
    maps = len(x)
    s = replace(s, N=1, C=maps, K=1, groups=1, bias=0, relu=0)
    times = np.ones(maps, np.float32) if times is None else np.asarray(times, np.float32)
    if 0 < tile < max(s.span_h, s.span_w):
        raise ValueError(f"a filter that covers {s.span_h} x {s.span_w} does not fit a transform of {tile} x {tile}")
    tiling = cut_of(s, tile, padding)
    rows, columns, down, across = (int(tiling[name]) for name in ("rows", "columns", "down", "across"))
    conv, half = common.struct(s), columns // 2 + 1

    def empty(*extents: int) -> np.ndarray:
        return np.full(extents, np.nan, np.float32)

    x_padded, w_padded = empty(1, down, across, maps, rows, columns), empty(1, maps, rows, columns)
    X, W = empty(1, down, across, maps, rows, half, 2), empty(1, maps, rows, half, 2)
    Y, dense = empty(1, down, across, 1, rows, half, 2), empty(1, down, across, 1, rows, columns)
    y = empty(1, 1, s.P, s.Q)
    fft_cpu.pad_input(np.ascontiguousarray(x[None]), x_padded, conv, tiling)
    fft_cpu.pad_filter(np.ascontiguousarray(w[None]), w_padded, conv, tiling)
    fft_cpu.forward(x_padded, X)
    fft_cpu.forward(w_padded, W)
    counted = np.ascontiguousarray(X * times[:, None, None, None])
    fft_cpu.multiply(counted, W, Y, down * across, 1, maps, rows * half)
    fft_cpu.inverse(Y, dense)
    fft_cpu.pick(dense, w, y, conv, tiling, common.layer(s))
    spectra = (a.view(np.complex64)[..., 0] for a in (X, W, Y))
    X, W, Y = spectra
    return Arrays(
        s, tiling, times, x, w, x_padded[0], w_padded[0], X[0], W[0], Y[0, :, :, 0], dense[0, :, :, 0], y[0, 0]
    )


ROUNDING = 1e-6  # of the largest number: a smaller difference is rounding


def snap_to_integers(values: np.ndarray, largest: float) -> np.ndarray:
    """Returns the numbers with each one replaced by the nearest integer if they differ by no more than the
    rounding of float32 among numbers up to `largest`. Real and imaginary parts are handled separately."""
    if np.iscomplexobj(values):
        return snap_to_integers(np.real(values), largest) + 1j * snap_to_integers(np.imag(values), largest)
    rounded = np.rint(values) + 0.0
    return np.where(np.abs(values - rounded) <= ROUNDING * largest, rounded, values)


def degrees(values: np.ndarray) -> np.ndarray:
    """Returns the phases of complex numbers in degrees, from −180 to 180; 0 where a number is 0."""
    return np.degrees(np.angle(values + 0.0))


# -- the part of large arrays ----------------------------------------------------------------------------
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
