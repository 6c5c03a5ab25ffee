"""F(m, 3) from its points, one row at a time: the polynomials behind each row of Aᵀ, G and Bᵀ, exact, and as text.

This is a derivation of its own, by polynomials. The tests compare it with the matrices of the kernels
(kernels/conv/winograd_matrices.py). The points and their order are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from kernels.conv.winograd_cpu import R
from kernels.conv.winograd_matrices import POINTS

POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
Row = tuple[Fraction, ...]


@dataclass(frozen=True)
class Point:
    """One interpolation point of F(m, 3), with `others`, the finite points beside it. `at` is None for infinity."""

    m: int
    at: Fraction | None
    others: Row

    @property
    def name(self) -> str:
        return "∞" if self.at is None else fraction(self.at)

    @property
    def column_of_AT(self) -> Row:
        """Returns the factors of the weights' polynomial p0 + p1·x + ... at the point."""
        return self._powers(self.m)

    @property
    def row_of_G(self) -> Row:
        """Returns the factors of the filter's polynomial g0 + g1·x + g2·x² at the point, divided by N."""
        return tuple(power / self.N for power in self._powers(R))

    @property
    def row_of_BT(self) -> Row:
        """Returns the coefficients of a polynomial that is 0 at the other points and N at this one."""
        return tuple(self.sign * c for c in _product(self.others, self.m + R - 1))

    @property
    def N(self) -> Fraction:
        """Returns the product of the distances to the other points; 1 for infinity."""
        return abs(self._divisor)

    @property
    def sign(self) -> int:
        return 1 if self._divisor > 0 else -1

    @cached_property
    def _divisor(self) -> Fraction:
        if self.at is None:
            return Fraction(1)
        product = Fraction(1)
        for other in self.others:
            product *= self.at - other
        return product

    def _powers(self, count: int) -> Row:
        if self.at is None:  # the highest coefficient
            return (Fraction(0),) * (count - 1) + (Fraction(1),)
        return tuple(self.at**k for k in range(count))

    def factors(self) -> str:
        """Returns the polynomial of `row_of_BT` as a product: "−(x − 1)·(x + 1)"."""
        return ("−" if self.sign < 0 else "") + "·".join(_root(other) for other in self.others)


def points_of(m: int) -> list[Point]:
    """Returns the m + 2 points of F(m, 3) in the kernels' order, infinity last."""
    finite = POINTS[: m + R - 2]
    return [Point(m, a, tuple(b for b in finite if b != a)) for a in finite] + [Point(m, None, finite)]


def _product(roots: Iterable[Fraction], count: int) -> list[Fraction]:
    """Returns the coefficients of the product of all (x - root), the constant first, padded with zeros to `count`."""
    found = [Fraction(1)] + [Fraction(0)] * (count - 1)
    for root in roots:
        found = [below - root * here for below, here in zip([Fraction(0), *found[:-1]], found, strict=True)]
    return found


# -- as text -------------------------------------------------------------------------------------------
def fraction(value: Fraction) -> str:
    """Returns an exact fraction with a minus sign: "−5/4"."""
    return str(Fraction(value)).replace("-", "−")


def listed(row: Sequence[Fraction]) -> str:
    return ", ".join(map(fraction, row))


def total(factors: Sequence[Fraction], names: Sequence[str]) -> str:
    """Returns a sum without its zeros: "g0 − g1 + 1/2·g2"."""
    text = ""
    for factor, name in zip(factors, names, strict=True):
        if factor:
            size = "" if abs(factor) == 1 and name != "1" else fraction(abs(factor))
            term = size if name == "1" else "·".join(filter(None, (size, name)))
            sign = "−" if factor < 0 else "+"
            text += f" {sign} {term}" if text else f"{'−' * (factor < 0)}{term}"
    return text or "0"


def polynomial(coefficients: Sequence[Fraction]) -> str:
    """Returns a polynomial in x, the constant first: "1 − x²"."""
    return total(coefficients, [_power(k) for k in range(len(coefficients))])


def symbolic(letter: str, count: int) -> str:
    """Returns a polynomial in x whose coefficients have names: "g0 + g1·x + g2·x²"."""
    return " + ".join("·".join([f"{letter}{k}", *[_power(k)] * (k > 0)]) for k in range(count))


def _power(k: int) -> str:
    return "1" if k == 0 else "x" if k == 1 else f"x{POWERS[k]}"


def _root(a: Fraction) -> str:
    return "x" if not a else f"(x {'−' if a > 0 else '+'} {fraction(abs(a))})"
