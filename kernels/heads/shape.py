"""The shape of a split into heads, and of its inverse: sequences of tokens whose rows hold h heads of d numbers."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.i18n import tr
from kernels.model.shape import INT_MAX, Shape, ShapeError, integer, parse

FIELDS = ("N", "T", "h", "d", "parts")
PARTS = {1: ("O",), 3: ("Q", "K", "V")}  # the names of the heads' tensors


@dataclass(frozen=True)
class HeadsShape(Shape):
    """Rows [N, T, parts, h, d], and for each part heads [N, h, T, d], float32, row-major.

    N sequences of T tokens. `parts` is 3 if a row holds queries, keys and values, else 1. Raises ShapeError, which names
    the broken rule.
    """

    N: int
    T: int
    h: int
    d: int
    parts: int = 1

    def __post_init__(self):
        self._check(FIELDS, integer, 1)
        if self.parts not in PARTS:
            raise ShapeError(tr("parts must be 1 or 3, got {parts}", parts=self.parts))
        if self.elements > INT_MAX:
            raise ShapeError(tr("N*T*parts*h*d must stay below 2^31, got {count}", count=f"{self.elements:,}"))

    @property
    def elements(self) -> int:
        return self.N * self.T * self.parts * self.h * self.d

    @property
    def macs(self) -> int:
        """Measure of the work."""
        return self.elements

    @property
    def rows_shape(self) -> tuple[int, int, int, int, int]:
        return self.N, self.T, self.parts, self.h, self.d

    @property
    def heads_shape(self) -> tuple[int, int, int, int]:
        """Returns the extents of one part."""
        return self.N, self.h, self.T, self.d

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the heads' tensors, a part each."""
        return PARTS[self.parts]

    @property
    def flops(self) -> int:
        return 0

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: each number read once and written once."""
        return 2 * 4 * self.elements

    def __str__(self) -> str:
        return f"N{self.N} T{self.T} {self.parts}x{self.h}x{self.d}"


def parse_heads(text: str) -> HeadsShape:
    """Parse "N=8,T=1024,h=12,d=64,parts=3" into a HeadsShape. Raises ShapeError if the text is malformed."""
    return HeadsShape(**parse(text, FIELDS, FIELDS[:-1]))
