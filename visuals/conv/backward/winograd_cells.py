"""What each number of Winograd's kernels for both gradients is a sum of.

Workspaces have the layout of the kernels: the rows of one position are below those of the position before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.conv import winograd_matrices
from kernels.conv.backward.dinput_winograd import convolution
from kernels.conv.shape import ConvShape
from kernels.conv.winograd_cpu import R
from kernels.model.launch import ceil
from visuals.conv.winograd.part import Terms, sum_of, terms
from visuals.scene.parts import Sum

EMPTY: Terms = (np.zeros(0, int), np.zeros(0, np.float32))


@dataclass(frozen=True)
class Tiles:
    """The tiles of one image of a convolution: `windows` the pixel of H x W under each of T*T positions, `outputs` the pixel
    of P x Q under each of m*m. -1: outside."""

    m: int
    windows: np.ndarray  # int64[tiles, T*T]
    outputs: np.ndarray  # int64[tiles, m*m]
    corners: np.ndarray  # int64[tiles, 2]: the first output of a tile

    @property
    def T(self) -> int:
        return self.m + R - 1

    @property
    def positions(self) -> int:
        return self.T**2

    def __len__(self) -> int:
        return len(self.corners)


def tiles_of(s: ConvShape, m: int) -> Tiles:
    """Returns the tiles of m x m outputs of one image, row by row."""
    corners = m * np.stack(np.divmod(np.arange(ceil(s.P, m) * ceil(s.Q, m)), ceil(s.Q, m)), axis=1)
    windows = _inside(corners - np.array(s.pad), m + R - 1, (s.H, s.W))
    return Tiles(m, windows, _inside(corners, m, (s.P, s.Q)), corners)


def _inside(corners: np.ndarray, side: int, size: tuple[int, int]) -> np.ndarray:
    """Returns int64[corners, side*side]: the pixels of squares in an image of a size, -1 outside."""
    rows, columns = (corners[:, axis, None] + np.arange(side) for axis in (0, 1))
    inside = ((rows >= 0) & (rows < size[0]))[:, :, None] & ((columns >= 0) & (columns < size[1]))[:, None]
    return np.where(inside, rows[:, :, None] * size[1] + columns[:, None], -1).reshape(len(corners), -1)


def _cells(positions: int, rows: int, columns: int) -> np.ndarray:
    """Returns the cells of a workspace, int64[positions, rows, columns]."""
    return np.arange(positions * rows * columns).reshape(positions, rows, columns)


def of_input(s: ConvShape, m: int) -> tuple[Sum, ...]:
    """Returns the sums of the gradient of the input of one image, with tiles of m x m outputs."""
    of = tiles_of(convolution(s), m)
    row = 4 * ceil(len(of), 4)
    U, V, Z = (_cells(of.positions, *size) for size in ((s.K, 4 * ceil(s.C, 4)), (s.K, row), (s.C, row)))
    t = winograd_matrices.derive(of.m, R)
    g, d, z = terms(t.G, flip=not s.flip), terms(t.BT), terms(t.AT)
    return (
        _sum("U", "w", U, lambda p, k, c: ((k * s.C + c) * 9 + g[p][0], g[p][1]) if c < s.C else EMPTY),
        _sum("V", "dy", V, lambda p, k, tile: _pixels(of, d[p], tile, k * s.PQ)),
        _products(Z, s.K, lambda p, c, tile, k: (U[p, k, c], V[p, k, tile]), len(of)),
        _result("dx", "Z", s.C, s.H * s.W, of, z, lambda positions, c, tile: Z[positions, c, tile]),
    )


def of_filters(s: ConvShape, m: int, parts: int) -> tuple[Sum, ...]:
    """Returns the sums of the gradient of the filters, with tiles of m x m outputs. The sum over the tiles is cut into parts."""
    of = tiles_of(s, m)
    row = 4 * ceil(s.N * len(of), 4)
    U, V, Z = _cells(of.positions, s.K, row), _cells(of.positions, s.C, row), _cells(parts * of.positions, s.K, s.C)
    t = winograd_matrices.derive(of.m, R)
    a, d, g = terms(tuple(zip(*t.AT, strict=True))), terms(t.BT), terms(tuple(zip(*t.G, strict=True)))
    count, per_image = s.N * len(of), len(of)

    def gradient(p: int, k: int, column: int) -> Terms:
        n, tile = divmod(column, per_image)
        return _pixels(of, a[p], tile, (n * s.K + k) * s.PQ, of.outputs) if column < count else EMPTY

    def pixels(p: int, c: int, column: int) -> Terms:
        n, tile = divmod(column, per_image)
        return _pixels(of, d[p], tile, (n * s.C + c) * s.H * s.W) if column < count else EMPTY

    def taps() -> list[Terms]:
        found = []
        for k in range(s.K):
            for c in range(s.C):
                for tap in range(9):
                    positions, factors = g[8 - tap if s.flip else tap]
                    cells = [Z[part * of.positions + positions, k, c] for part in range(parts)]
                    found.append((np.concatenate(cells), np.tile(factors, parts)))
        return found

    products = [
        (V[p % of.positions, c, :count], U[p % of.positions, k, :count])
        for p in range(len(Z))
        for k in range(s.K)
        for c in range(s.C)
    ]
    whole = () if parts > 1 else (sum_of("Z", "V", products, "U"),)
    return (_sum("U", "dy", U, gradient), _sum("V", "x", V, pixels), *whole, sum_of("dw", "Z", taps()))


def _pixels(of: Tiles, transform: Terms, tile: int, first: int, squares: np.ndarray | None = None) -> Terms:
    """Returns the pixels, from cell `first` of a plane on, and the factors of one number of a transformed tile."""
    if tile >= len(of):
        return EMPTY
    cells = (of.windows if squares is None else squares)[tile][transform[0]]
    return first + cells[cells >= 0], transform[1][cells >= 0]


def _sum(out: str, right: str, matrices: np.ndarray, entry) -> Sum:
    """Returns the sums of a workspace: entry(position, row, column) are the terms of a cell."""
    positions, rows, columns = matrices.shape
    every = ((p, i, j) for p in range(positions) for i in range(rows) for j in range(columns))
    return sum_of(out, right, [entry(*at) for at in every])


def _products(Z: np.ndarray, depth: int, pair, tiles: int) -> Sum:
    """Returns the sums of Z over `depth` rows of U and V: pair(position, row, column, k) are their cells."""
    positions, rows, columns = Z.shape
    inner = np.arange(depth)

    def entry(p: int, i: int, j: int) -> Terms:
        if j >= tiles:
            return EMPTY
        left, right = pair(p, i, j, inner)
        return right, left

    every = ((p, i, j) for p in range(positions) for i in range(rows) for j in range(columns))
    return sum_of("Z", "V", [entry(*at) for at in every], "U")


def _result(out: str, right: str, maps: int, size: int, of: Tiles, inverse: Sequence[Terms], cells) -> Sum:
    """Returns the sums of an image of tiles: cells(positions, map, tile) are those of Z."""
    found: list[Terms] = [EMPTY] * (maps * size)
    for tile, square in enumerate(of.outputs):
        for position, pixel in enumerate(square):
            for c in range(maps if pixel >= 0 else 0):
                found[c * size + pixel] = (cells(inverse[position][0], c, tile), inverse[position][1])
    return sum_of(out, right, found)
