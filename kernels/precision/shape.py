"""The shape of the ladder on instructions: how many warps multiply, how often."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.i18n import tr
from kernels.model.shape import Shape, ShapeError, integer, parse

FIELDS = ("warps", "turns")
M, N, K = 16, 8, 32  # of the product of one turn
MAX_VALUE = 2  # of A and B
MAX_TURNS = 2**24 // (K * MAX_VALUE**2)  # a larger sum is no whole number of FP32 for sure


@dataclass(frozen=True)
class RateShape(Shape):
    """C[w] = turns · A B for each of `warps` warps: A [16, 32] and B [32, 8] int8 in 0 .. 2, C [warps, 16, 8] float32.

    Every number is a small whole one, so each format computes the same result exactly. Raises ShapeError naming the rule
    that is broken.
    """

    warps: int
    turns: int

    def __post_init__(self):
        self._check(FIELDS, integer, 1)
        if self.turns > MAX_TURNS:
            raise ShapeError(tr("turns must be at most {most}, got {got}", most=MAX_TURNS, got=self.turns))

    @property
    def macs(self) -> int:
        return self.warps * self.turns * M * N * K

    @property
    def flops(self) -> int:
        return 2 * self.macs

    @property
    def bytes(self) -> int:
        """Returns the least traffic in bytes: A and B read once, C written once."""
        return M * K + K * N + 4 * self.warps * M * N

    def __str__(self) -> str:
        return f"{self.warps} warps {self.turns} turns"


def parse_rate(text: str) -> RateShape:
    """Returns the shape of "warps=4,turns=16". ShapeError if the text is malformed."""
    return RateShape(**parse(text, FIELDS, FIELDS))
