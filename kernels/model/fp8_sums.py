"""Sums of FP8 products (e4m3) as Hopper's tensor cores add them: with fewer bits than FP32.

An instruction adds 32 products to a sum. The exponent of a product is the sum of its factors' exponents. All 33 numbers are
cut off FRACTION bits below the largest exponent, and added. The result keeps FRACTION bits after its first.

arXiv 2412.19437 (section 3.3.2) describes the few bits. The rest was found by comparison with an H200: 5,760 of 5,760 sums
of 16 to 1,024 products were equal in every bit (tests/fixtures/fp8_sums_h200.npz has a part of them).
"""

from __future__ import annotations

import numpy as np

DEPTH = 32  # products that one wgmma adds to a sum
FRACTION = 13  # bits after the first that a sum keeps
MIN_EXPONENT = -6  # of a factor, e4m3; smaller ones are subnormal
_ZERO = -1000  # exponent of 0, below that of any product
_MIN_SUM = -300  # any exponent that ldexp takes


def exponents(x: np.ndarray) -> np.ndarray:
    """Returns floor(log2 |x|) of float64 numbers as integers, far below all others of 0."""
    return np.where(x == 0, _ZERO, np.frexp(x)[1] - 1)


def added(sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns sums [...] plus the products of a and b along their last axis of at most DEPTH, as one instruction adds
    them. All are float64 and broadcast."""
    of_a, of_b = (np.where(x == 0, _ZERO, np.maximum(exponents(x), MIN_EXPONENT)) for x in (a, b))
    largest = np.maximum((of_a + of_b).max(axis=-1), exponents(sums))
    unit = np.ldexp(1.0, np.maximum(largest, _MIN_SUM) - FRACTION)
    whole = np.trunc(a * b / unit[..., None]).sum(axis=-1) + np.trunc(sums / unit)
    return cut(whole * unit)


def cut(sums: np.ndarray) -> np.ndarray:
    """Returns float64 numbers with FRACTION bits after the first; the others become 0."""
    unit = np.ldexp(1.0, np.maximum(exponents(sums), _MIN_SUM) - FRACTION)
    return np.trunc(sums / unit) * unit


def product(A: np.ndarray, B: np.ndarray, depth: int = 0) -> np.ndarray:
    """Returns A [M, K] times B [N, K] transposed, float32, as tensor cores add it: all of K, or `depth` products (a multiple
    of DEPTH), whose sums FP32 adds."""
    A, B = (x.astype(np.float64) for x in (A, B))
    shape, total = (A.shape[0], B.shape[0]), None
    piece = np.zeros(shape)
    for k in range(0, A.shape[1], DEPTH):
        if depth and k % depth == 0 and k:
            total = piece.astype(np.float32) if total is None else total + piece.astype(np.float32)
            piece = np.zeros(shape)
        piece = added(piece, A[:, None, k : k + DEPTH], B[None, :, k : k + DEPTH])
    return piece.astype(np.float32) if total is None else total + piece.astype(np.float32)
