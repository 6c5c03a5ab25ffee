"""The three products of a fully connected layer as one plan: which element of which tensor is a factor of which result.

Forward and backward use the same tensors: what is the result of one product is a factor of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kernels.linear.ladder import DINPUT, DWEIGHT, LINEAR, extents
from kernels.linear.shape import LinearShape

Index = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Product:
    """result[row, col] = the sum over term of left(row, term) * right(term, col). `of_left`, `of_right` and `of_result` return
    flat elements of the tensors; a transposed factor has the term along its rows in memory."""

    left: str
    right: str
    result: str
    terms: str  # the index that is summed over: "k"
    rows: int
    cols: int
    depth: int
    of_left: Index
    of_right: Index
    of_result: Index
    left_transposed: bool  # while it is copied to shared memory
    right_transposed: bool


def product_of(ladder: str, s: LinearShape) -> Product:
    (_, rows), (_, cols), (_, depth) = extents(ladder, s)
    N, K = s.N, s.K
    (left, right, result, term), indices, transposed = {
        LINEAR: (
            ("x", "W", "y", "k"),
            (lambda m, k: m * K + k, lambda k, n: n * K + k, lambda m, n: m * N + n),
            (True, True),
        ),
        DINPUT: (
            ("dy", "W", "dx", "n"),
            (lambda m, n: m * N + n, lambda n, k: n * K + k, lambda m, k: m * K + k),
            (True, False),
        ),
        DWEIGHT: (
            ("dy", "x", "dW", "m"),
            (lambda n, m: m * N + n, lambda m, k: m * K + k, lambda n, k: n * K + k),
            (False, False),
        ),
    }[ladder]
    return Product(left, right, result, term, rows, cols, depth, *indices, *transposed)


def tile_of(of: Index, first: tuple[int, int], size: tuple[int, int], limit: tuple[int, int]) -> np.ndarray:
    """Returns the elements of a tile, int64[size]: of(a, b) for a, b from `first` on, -1 where a or b reaches `limit`."""
    a, b = (np.arange(start, start + count) for start, count in zip(first, size, strict=True))
    a, b = np.meshgrid(a, b, indexing="ij")
    inside = (a < limit[0]) & (b < limit[1])
    return np.where(inside, of(a, b), -1)


def thread_cells(tiles: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows and the columns of thread 0's results in the block's tile, as product.cuh says."""
    i, j = np.arange(tiles["TM"]), np.arange(tiles["TN"])
    rows = i // 4 * 4 * (tiles["WM"] // tiles["TM"]) + i % 4
    return rows, j // 4 * 4 * (tiles["WN"] // tiles["TN"]) + j % 4


def add_products(sums: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns sums + left right, float32, term after term with one rounding each, as the kernel's multiply-adds."""
    for k in range(left.shape[1]):
        products = np.multiply.outer(left[:, k].astype(np.float64), right[k].astype(np.float64))
        sums = (sums.astype(np.float64) + products).astype(np.float32)
    return sums
