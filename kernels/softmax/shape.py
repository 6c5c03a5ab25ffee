"""The shape of a softmax along the rows of a matrix, and the shapes that readers know."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.model.shape import Shape, integer, parse

FIELDS = ("M", "N")
FLOPS = 5  # of an element: compared, the maximum taken off, exp (counted as one), summed, divided


@dataclass(frozen=True)
class SoftmaxShape(Shape):
    """y[i, :] = softmax(x[i, :]), x and y [M, N], row-major, float32: y[i, j] = exp(x[i, j] - m) / l with m the
    maximum of row i and l the sum of exp(x[i, :] - m).

    Raises ShapeError naming the rule that is broken.
    """

    M: int
    N: int

    def __post_init__(self):
        self._check(FIELDS, integer, 1)

    @property
    def elements(self) -> int:
        return self.M * self.N

    macs = elements  # what the work grows with

    @property
    def flops(self) -> int:
        """Operations of the definition, of which every safe rung needs these."""
        return FLOPS * self.elements

    @property
    def bytes(self) -> int:
        """Least traffic in bytes: x read once, y written once."""
        return 2 * 4 * self.elements

    def __str__(self) -> str:
        return f"{self.M}x{self.N}"


def parse_softmax(text: str) -> SoftmaxShape:
    """SoftmaxShape from "M=8192,N=1024"; ShapeError where it is malformed."""
    return SoftmaxShape(**parse(text, FIELDS, FIELDS))
