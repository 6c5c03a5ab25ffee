"""Winograd's tiles, and what each number of its kernels is a sum of.

Workspaces have the layout of the kernels: the rows of one position are below those of the position before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.conv import winograd_matrices
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import shape_rules
from kernels.conv.winograd_cpu import R, round_up_to_4
from kernels.model.launch import ceil
from visuals.scene.parts import Sum

NONFUSED = "conv/winograd-nonfused"
Terms = tuple[np.ndarray, np.ndarray]  # cells, factors
EMPTY: Terms = (np.zeros(0, int), np.zeros(0, np.float32))


def why_not(s: ConvShape, m: int) -> str:
    """Returns the rules that forbid Winograd for a shape; "" if there are none."""
    return "; ".join(shape_rules(s, m))


def reads_per_pixel(s: ConvShape, m: int) -> float:
    """Returns how many tiles of F(m×m, 3×3) read a pixel, on average over a map."""

    def axis(extent: int, outputs: int, pad: int) -> float:
        start = np.arange(0, outputs, m) - pad
        end = np.minimum(start + m + R - 1, extent)
        return np.maximum(end - np.maximum(start, 0), 0).sum() / extent

    return axis(s.H, s.P, s.pad_h) * axis(s.W, s.Q, s.pad_w)


@dataclass(frozen=True)
class Tiles:
    """The tiles of one image of a convolution: `windows` the pixel of H x W under each of T*T positions, `outputs` the pixel
    of P x Q under each of m*m. -1: outside."""

    m: int
    windows: np.ndarray  # int64[tiles, T*T]
    outputs: np.ndarray  # int64[tiles, m*m]

    @property
    def positions(self) -> int:
        return (self.m + R - 1) ** 2

    def __len__(self) -> int:
        return len(self.windows)


def tiles_of(s: ConvShape, m: int) -> Tiles:
    """Returns the tiles of m x m outputs of one image, row by row."""
    corners = m * np.stack(np.divmod(np.arange(ceil(s.P, m) * ceil(s.Q, m)), ceil(s.Q, m)), axis=1)
    windows = _inside(corners - np.array(s.pad), m + R - 1, (s.H, s.W))
    return Tiles(m, windows, _inside(corners, m, (s.P, s.Q)))


def _inside(corners: np.ndarray, side: int, size: tuple[int, int]) -> np.ndarray:
    """Returns int64[corners, side*side]: the pixels of squares in an image of a size, -1 outside."""
    rows, columns = (corners[:, axis, None] + np.arange(side) for axis in (0, 1))
    inside = ((rows >= 0) & (rows < size[0]))[:, :, None] & ((columns >= 0) & (columns < size[1]))[:, None]
    return np.where(inside, rows[:, :, None] * size[1] + columns[:, None], -1).reshape(len(corners), -1)


# -- sums ------------------------------------------------------------------------------------------------
def sums(s: ConvShape, m: int, row: int = 0) -> tuple[Sum, ...]:
    """Returns the sums of a convolution of one image. `row`: the columns of V and Z, if not the tiles rounded up to 4."""
    of, t = tiles_of(s, m), winograd_matrices.derive(m, R)
    row = row or round_up_to_4(len(of))
    U, V, Z = (cells_of(of.positions, *size) for size in ((s.C, round_up_to_4(s.K)), (s.C, row), (s.K, row)))
    g, d, z = terms(t.G, s.flip), terms(t.BT), terms(t.AT)
    return (
        result("y", "Z", s.K, s.PQ, of, z, lambda positions, k, tile: Z[positions, k, tile]),
        products(Z, s.C, lambda p, k, tile, c: (U[p, c, k], V[p, c, tile]), len(of)),
        sum_of_matrices("V", "x", V, lambda p, c, tile: pixels(of, d[p], tile, c * s.H * s.W)),
        sum_of_matrices("U", "w", U, lambda p, c, k: ((k * s.C + c) * 9 + g[p][0], g[p][1]) if k < s.K else EMPTY),
    )


def terms(X: winograd_matrices.Matrix, flip: bool = False) -> list[Terms]:
    """Returns, for each cell of X d X^T in flat order, the positions of d that it sums and their factors, without
    zeros. `flip` reads d from back to front."""
    matrix = np.array(X, object).astype(np.float64)
    both = np.kron(matrix, matrix)  # row (i, j), column (a, b): X[i, a] * X[j, b]
    found = []
    for row in both:
        cells = np.flatnonzero(row)
        found.append((both.shape[1] - 1 - cells if flip else cells, row[cells].astype(np.float32)))
    return found


def sum_of(out: str, right: str, entries: Sequence[Terms], left: str = "") -> Sum:
    """Returns the Sum whose cell i has the terms entries[i]."""
    start = np.cumsum([0, *(len(cells) for cells, _ in entries)])
    cells, factors = (np.concatenate(column) for column in zip(*entries, strict=True))
    return Sum(out, right, start, cells.astype(int), factors.astype(int) if left else factors, left)


def cells_of(positions: int, rows: int, columns: int) -> np.ndarray:
    """Returns the cells of a workspace, int64[positions, rows, columns]."""
    return np.arange(positions * rows * columns).reshape(positions, rows, columns)


def pixels(of: Tiles, transform: Terms, tile: int, first: int, squares: np.ndarray | None = None) -> Terms:
    """Returns the pixels, from cell `first` of a plane on, and the factors of one number of a transformed tile."""
    if tile >= len(of):
        return EMPTY
    cells = (of.windows if squares is None else squares)[tile][transform[0]]
    return first + cells[cells >= 0], transform[1][cells >= 0]


def sum_of_matrices(out: str, right: str, matrices: np.ndarray, entry: Callable[[int, int, int], Terms]) -> Sum:
    """Returns the sums of a workspace: entry(position, row, column) are the terms of a cell."""
    return sum_of(out, right, [entry(*at) for at in np.ndindex(matrices.shape)])


def products(Z: np.ndarray, depth: int, pair: Callable[..., tuple[np.ndarray, np.ndarray]], tiles: int) -> Sum:
    """Returns the sums of Z over `depth` rows of U and V: pair(position, row, column, k) are their cells."""
    inner = np.arange(depth)

    def entry(p: int, i: int, j: int) -> Terms:
        left, right = pair(p, i, j, inner) if j < tiles else EMPTY
        return right, left

    return sum_of("Z", "V", [entry(*at) for at in np.ndindex(Z.shape)], "U")


def result(
    out: str, right: str, maps: int, size: int, of: Tiles, inverse: Sequence[Terms], cells: Callable[..., np.ndarray]
) -> Sum:
    """Returns the sums of an image of tiles: cells(positions, map, tile) are those of Z."""
    found: list[Terms] = [EMPTY] * (maps * size)
    for tile, square in enumerate(of.outputs):
        for position, pixel in enumerate(square):
            for c in range(maps if pixel >= 0 else 0):
                found[c * size + pixel] = (cells(inverse[position][0], c, tile), inverse[position][1])
    return sum_of(out, right, found)
