"""What each number of Winograd's kernels for both gradients is a sum of."""

from __future__ import annotations

import numpy as np

from kernels.conv import winograd_matrices
from kernels.conv.backward.dinput_winograd import convolution
from kernels.conv.shape import ConvShape
from kernels.conv.winograd_cpu import R
from kernels.model.launch import ceil
from visuals.conv.winograd.part import (
    EMPTY,
    Terms,
    cells_of,
    pixels,
    products,
    result,
    sum_of,
    sum_of_matrices,
    terms,
    tiles_of,
)
from visuals.scene.parts import Sum


def of_input(s: ConvShape, m: int) -> tuple[Sum, ...]:
    """Returns the sums of the gradient of the input of one image, with tiles of m x m outputs."""
    of = tiles_of(convolution(s), m)
    row = 4 * ceil(len(of), 4)
    U, V, Z = (cells_of(of.positions, *size) for size in ((s.K, 4 * ceil(s.C, 4)), (s.K, row), (s.C, row)))
    t = winograd_matrices.derive(of.m, R)
    g, d, z = terms(t.G, flip=not s.flip), terms(t.BT), terms(t.AT)
    return (
        sum_of_matrices("U", "w", U, lambda p, k, c: ((k * s.C + c) * 9 + g[p][0], g[p][1]) if c < s.C else EMPTY),
        sum_of_matrices("V", "dy", V, lambda p, k, tile: pixels(of, d[p], tile, k * s.PQ)),
        products(Z, s.K, lambda p, c, tile, k: (U[p, k, c], V[p, k, tile]), len(of)),
        result("dx", "Z", s.C, s.H * s.W, of, z, lambda positions, c, tile: Z[positions, c, tile]),
    )


def of_filters(s: ConvShape, m: int, parts: int) -> tuple[Sum, ...]:
    """Returns the sums of the gradient of the filters, with tiles of m x m outputs. The sum over the tiles is cut into parts."""
    of = tiles_of(s, m)
    row = 4 * ceil(s.N * len(of), 4)
    U, V, Z = (
        cells_of(of.positions, s.K, row),
        cells_of(of.positions, s.C, row),
        cells_of(parts * of.positions, s.K, s.C),
    )
    t = winograd_matrices.derive(of.m, R)
    a, d, g = terms(tuple(zip(*t.AT, strict=True))), terms(t.BT), terms(tuple(zip(*t.G, strict=True)))
    count, per_image = s.N * len(of), len(of)

    def gradient(p: int, k: int, column: int) -> Terms:
        n, tile = divmod(column, per_image)
        return pixels(of, a[p], tile, (n * s.K + k) * s.PQ, of.outputs) if column < count else EMPTY

    def of_image(p: int, c: int, column: int) -> Terms:
        n, tile = divmod(column, per_image)
        return pixels(of, d[p], tile, (n * s.C + c) * s.H * s.W) if column < count else EMPTY

    def taps() -> list[Terms]:
        found = []
        for k in range(s.K):
            for c in range(s.C):
                for tap in range(9):
                    positions, factors = g[8 - tap if s.flip else tap]
                    cells = [Z[part * of.positions + positions, k, c] for part in range(parts)]
                    found.append((np.concatenate(cells), np.tile(factors, parts)))
        return found

    pairs = [(V[p % of.positions, c, :count], U[p % of.positions, k, :count]) for p, k, c in np.ndindex(Z.shape)]
    whole = () if parts > 1 else (sum_of("Z", "V", pairs, "U"),)
    return (
        sum_of_matrices("U", "dy", U, gradient),
        sum_of_matrices("V", "x", V, of_image),
        *whole,
        sum_of("dw", "Z", taps()),
    )
