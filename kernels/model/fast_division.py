"""Division by a number known in advance, as a multiplication and a shift. The GPU has no instruction to divide whole
numbers; this takes it three instructions.

T. Granlund, P. L. Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994 (theorem 4.2);
H. S. Warren, "Hacker's Delight", chapter 10.
"""

from __future__ import annotations

from dataclasses import dataclass

BITS = 31  # of the dividend: 0 <= n < 2^31


@dataclass(frozen=True)
class Magic:
    """n // divisor == (2 n * multiplier >> 32) >> shift for every 0 <= n < 2^31.

    multiplier is 2^(31 + shift) / divisor rounded up, by e / divisor with e < divisor <= 2^shift. So the
    multiplication gives n / divisor + n e / (divisor 2^(31 + shift)). This is too large by less than
    1 / divisor: not enough to reach the next whole number.
    """

    divisor: int
    multiplier: int  # below 2^32
    shift: int  # the smallest with divisor <= 2^shift

    def divide(self, n):
        """Returns n // divisor, computed as in kernels/cuda/magic.cuh; n is an int or an array of uint64."""
        return ((n << 1) * self.multiplier >> 32) >> self.shift


def magic(divisor: int) -> Magic:
    """Returns multiplier and shift for a divisor in 1 .. 2^31 - 1; ValueError for others."""
    if not 1 <= divisor < 1 << BITS:
        raise ValueError(f"a divisor must lie in 1 .. 2^31 - 1, got {divisor}")
    shift = (divisor - 1).bit_length()
    return Magic(divisor, -(-(1 << (BITS + shift)) // divisor), shift)
