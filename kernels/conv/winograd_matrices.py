"""Winograd's minimal filtering: A, G and B of F(m, r), derived exactly from interpolation points.

F(m, r) gives m outputs of a filter with r taps from n = m + r - 1 inputs by n multiplications instead of
m*r: y = A^T [(G g) * (B^T d)], y[i] = sum_k g[k] d[i + k]. In two dimensions the same matrices stand on both
sides: Y = A^T [(G g G^T) * (B^T d B)] A. (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and
Gray, arXiv 1509.09308.)

Derivation (Toom-Cook, transposed). A polynomial of degree n - 1, the product of a filter's polynomial of
degree r - 1 and another of degree m - 1, is known from its values at n - 1 points a_i and "at infinity", which
is its leading coefficient. Evaluating both factors takes the powers of a_i: rows of G, columns of A^T.
Interpolation takes the coefficients of L_i(x) = prod_{j != i} (x - a_j) / N_i, N_i = prod_{j != i} (a_i - a_j):
they become row i of B^T, and those of prod_j (x - a_j) its last row. Read backwards (the transposition
principle) the algorithm computes correlation instead of a product.

Scaling. Position i may be scaled at will as long as A^T, G and B^T undo one another there. All of 1 / N_i goes
to G, its sign to B^T: with points that are powers of two (and 0) A^T and B^T then hold whole numbers and binary
fractions, which float32 holds exactly, so rounding enters by G's thirds alone, once a filter; and the transforms
that run for every tile have the fewest multiplications. Other powers of two in the scaling would change no
float32 result: they move exponents only. What does grow the error is the number of points, as their powers
grow apart: that is why M stops at 6.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np

Matrix = tuple[tuple[Fraction, ...], ...]

# Taken from the front: m + r - 2 of them, infinity beside. 0 and +-1 cost no multiplication; then powers of
# two, each with its negative (their rows differ in signs only) and its inverse, so that no power grows alone.
POINTS = tuple(map(Fraction, "0 1 -1 2 -2 1/2 -1/2 4 -4 1/4 -1/4".split()))
TILES = (2, 4, 6)  # m of the kernels
HEADER = Path(__file__).parent / "cuda" / "winograd_matrices.cuh"


@dataclass(frozen=True)
class Transforms:
    """A^T [m, n], G [n, r], B^T [n, n] of F(m, r), exact; n = m + r - 1."""

    m: int
    r: int
    AT: Matrix
    G: Matrix
    BT: Matrix

    @property
    def n(self) -> int:
        return self.m + self.r - 1

    def arrays(self, dtype="float32") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(A^T, G, B^T), each entry rounded once to `dtype`; dtype object keeps the fractions."""
        return tuple(np.array(X, object).astype(dtype) for X in (self.AT, self.G, self.BT))


@cache
def derive(m: int, r: int, points: tuple[Fraction, ...] = POINTS) -> Transforms:
    """The matrices of F(m, r) from the first m + r - 2 of `points` and infinity. ValueError where they do not
    suffice or coincide."""
    if m < 1 or r < 1:
        raise ValueError(f"F(m, r) needs m >= 1 and r >= 1, got F({m}, {r})")
    a = points[: m + r - 2]
    if len(a) < m + r - 2 or len(set(a)) < len(a):
        raise ValueError(f"F({m}, {r}) needs {m + r - 2} different points beside infinity, got {len(set(a))}")
    others = [[b for b in a if b != x] for x in a]
    scales = [_product(x - b for b in rest) for x, rest in zip(a, others, strict=True)]
    signs = [1 if scale > 0 else -1 for scale in scales]
    n = m + r - 1
    columns = [_powers(x, m) for x in a] + [_infinity(m)]
    return Transforms(
        m,
        r,
        AT=tuple(zip(*columns, strict=True)),
        G=(*(tuple(p / abs(N) for p in _powers(x, r)) for x, N in zip(a, scales, strict=True)), _infinity(r)),
        BT=(
            *(
                tuple(sign * c for c in _coefficients(rest, n))
                for sign, rest in zip(signs, others, strict=True)
            ),
            _coefficients(a, n),
        ),
    )


def _powers(x: Fraction, count: int) -> tuple[Fraction, ...]:
    return tuple(x**k for k in range(count))


def _infinity(count: int) -> tuple[Fraction, ...]:
    """The leading coefficient of a polynomial with `count` of them."""
    return (Fraction(0),) * (count - 1) + (Fraction(1),)


def _coefficients(roots: Sequence[Fraction], count: int) -> tuple[Fraction, ...]:
    """Of prod (x - root), from the constant one on, filled up with zeros to `count`."""
    c = [Fraction(1)]
    for root in roots:
        c = [low - root * high for low, high in zip([Fraction(0), *c], [*c, Fraction(0)], strict=True)]
    return tuple(c) + (Fraction(0),) * (count - len(c))


def _product(values) -> Fraction:
    result = Fraction(1)
    for value in values:
        result *= value
    return result


# -- applied --------------------------------------------------------------------------------------------
def correlate(t: Transforms, g: np.ndarray, d: np.ndarray) -> np.ndarray:
    """y[i] = sum_k g[k] d[i + k] for g [r], d [n], y [m]; or in two dimensions for g [r, r], d [n, n], y [m, m].
    In the type given: exact for arrays of fractions (dtype object)."""
    AT, G, BT = t.arrays(np.asarray(d).dtype)
    if np.ndim(d) == 1:
        return AT @ ((G @ g) * (BT @ d))
    return AT @ ((G @ g @ G.T) * (BT @ d @ BT.T)) @ AT.T


# -- counted ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Count:
    additions: int
    multiplications: int

    @property
    def flops(self) -> int:
        return self.additions + self.multiplications


def operations(X: Matrix) -> Count:
    """Of X times one vector, row by row: zeros cost nothing, and a factor of 1 or -1 no multiplication."""
    entries = [e for row in X for e in row if e]
    return Count(len(entries) - len(X), sum(abs(e) != 1 for e in entries))


def operations_2d(X: Matrix) -> Count:
    """Of X d X^T: X on each column of d, then on each row of that."""
    one, times = operations(X), len(X[0]) + len(X)
    return Count(one.additions * times, one.multiplications * times)


def multiplications_2d(m: int, r: int) -> tuple[int, int]:
    """(direct, Winograd) multiplications of one tile and channel: F(2x2, 3x3) 36 and 16."""
    return (m * r) ** 2, (m + r - 1) ** 2


# -- as CUDA C++ ----------------------------------------------------------------------------------------
def header() -> str:
    """kernels/conv/cuda/winograd_matrices.cuh: the three matrices of F(m, 3) for each m of TILES."""
    points = ", ".join(map(str, POINTS[: max(TILES) + 1]))
    parts = [
        "// A^T, G and B^T of F(M, 3) in one dimension: M outputs of 3 taps from\n"
        "// M + 2 inputs. kernels/conv/winograd_matrices.py derives them from the\n"
        f"// first M + 1 of the points {points}, and infinity.\n"
        "// `python -m kernels.conv.winograd_matrices` writes it: do not edit it.\n"
    ]
    for i, m in enumerate(TILES):
        t = derive(m, 3)
        parts.append(f"#{'el' if i else ''}if M == {m}")
        parts += [_table(name, X) for name, X in (("AT", t.AT), ("G", t.G), ("BT", t.BT))]
    return "\n".join([*parts, "#endif", ""])


def _table(name: str, X: Matrix) -> str:
    rows = ",\n".join(f"    {{{', '.join(map(_literal, row))}}}" for row in X)
    return f"__device__ constexpr float {name}[{len(X)}][{len(X[0])}] = {{\n{rows}}};"


def _literal(value: Fraction) -> str:
    """A quotient that the compiler rounds once."""
    whole = value.denominator == 1
    return f"{value.numerator}" if whole else f"{value.numerator}.f/{value.denominator}"


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m kernels.conv.winograd_matrices", description=f"Write {HEADER.name}."
    ).parse_args()
    HEADER.write_text(header(), encoding="utf-8")


if __name__ == "__main__":
    main()
