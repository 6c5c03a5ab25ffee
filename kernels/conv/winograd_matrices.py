"""Winograd's minimal filtering: A, G and B of F(m, r), derived exactly from interpolation points.

F(m, r) computes m outputs of a filter with r taps from n = m + r - 1 inputs with n multiplications instead of
m*r: y = A^T [(G g) * (B^T d)], y[i] = sum_k g[k] d[i + k]. In two dimensions the same matrices are on both
sides: Y = A^T [(G g G^T) * (B^T d B)] A. (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and
Gray, arXiv 1509.09308.)

Derivation (Toom-Cook, transposed). A polynomial of degree n - 1, the product of a filter's polynomial of
degree r - 1 and another of degree m - 1, is determined by its values at n - 1 points a_i and "at infinity", which
is its leading coefficient. To evaluate both factors, the powers of a_i are needed: rows of G, columns of A^T.
Interpolation needs the coefficients of L_i(x) = prod_{j != i} (x - a_j) / N_i, N_i = prod_{j != i} (a_i - a_j).
They become row i of B^T, and those of prod_j (x - a_j) its last row. By the transposition principle, the
transposed algorithm computes correlation instead of a product.

Scaling. Position i may be scaled by any factors in A^T, G and B^T whose product is 1. All of 1 / N_i goes
to G, its sign to B^T. With points that are powers of two (and 0), A^T and B^T then have whole numbers and binary
fractions, which are exact in float32. So only G's thirds are rounded, once per filter. And the transforms
that run for every tile have the fewest multiplications. Other powers of two in the scaling would change no
float32 result: they change exponents only. The error grows with the number of points, because their powers
differ more and more: that is why M stops at 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np

Matrix = tuple[tuple[Fraction, ...], ...]

# The first m + r - 2 of them are used, and infinity. 0 and +-1 cost no multiplication. Then come powers of two,
# each with its negative (their rows differ in signs only) and its inverse, to balance large and small powers.
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

    def arrays(self, dtype: np.dtype | str = "float32") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (A^T, G, B^T), each entry rounded once to `dtype`. dtype object keeps the fractions."""
        AT, G, BT = (np.array(X, object).astype(dtype) for X in (self.AT, self.G, self.BT))
        return AT, G, BT


@cache
def derive(m: int, r: int, points: tuple[Fraction, ...] = POINTS) -> Transforms:
    """Returns the matrices of F(m, r) from the first m + r - 2 of `points` and infinity.

    Raises ValueError if there are too few points or two are equal.
    """
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
            *(tuple(sign * c for c in _coefficients(rest, n)) for sign, rest in zip(signs, others, strict=True)),
            _coefficients(a, n),
        ),
    )


def _powers(x: Fraction, count: int) -> tuple[Fraction, ...]:
    return tuple(x**k for k in range(count))


def _infinity(count: int) -> tuple[Fraction, ...]:
    """Returns the row that selects the leading one of `count` coefficients."""
    return (Fraction(0),) * (count - 1) + (Fraction(1),)


def _coefficients(roots: Sequence[Fraction], count: int) -> tuple[Fraction, ...]:
    """Returns the coefficients of prod (x - root), from the constant one on, padded with zeros to `count`."""
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
    """Returns y[i] = sum_k g[k] d[i + k] for g [r], d [n], y [m], or in two dimensions g [r, r], d [n, n], y [m, m].

    Computes in the type of d: exact for arrays of fractions (dtype object).
    """
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
    """Count the operations of X times one vector, row by row.

    Zeros cost nothing, and a factor of 1 or -1 no multiplication.
    """
    entries = [e for row in X for e in row if e]
    return Count(len(entries) - len(X), sum(abs(e) != 1 for e in entries))


def operations_2d(X: Matrix) -> Count:
    """Count the operations of X d X^T: X on each column of d, then on each row of that."""
    per_vector, times = operations(X), len(X[0]) + len(X)
    return Count(per_vector.additions * times, per_vector.multiplications * times)


def multiplications_2d(m: int, r: int) -> tuple[int, int]:
    """Returns (direct, Winograd) multiplications of one tile and channel: F(2x2, 3x3) 36 and 16."""
    return (m * r) ** 2, (m + r - 1) ** 2


# -- as CUDA C++ ----------------------------------------------------------------------------------------
def header() -> str:
    """Returns the text of kernels/conv/cuda/winograd_matrices.cuh: the matrices of F(m, 3) for each m of TILES."""
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
    """Returns a quotient that the compiler rounds once."""
    is_whole = value.denominator == 1
    return f"{value.numerator}" if is_whole else f"{value.numerator}.f/{value.denominator}"


def main() -> None:
    import argparse

    argparse.ArgumentParser(
        prog="python -m kernels.conv.winograd_matrices", description=f"Write {HEADER.name}."
    ).parse_args()
    HEADER.write_text(header(), encoding="utf-8")


if __name__ == "__main__":
    main()
