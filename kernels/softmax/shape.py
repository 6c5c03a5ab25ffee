"""The shape of a softmax along the rows of a matrix."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.model.shape import Shape, integer, parse

FIELDS = ("M", "N")
FLOPS = 5  # per element: comparison, subtraction of the maximum, exp (counted as one), addition, division


@dataclass(frozen=True)
class SoftmaxShape(Shape):
    """y[i, :] = softmax(x[i, :]), x and y [M, N], row-major, float32: y[i, j] = exp(x[i, j] - m) / l with m the
    maximum of row i and l the sum of exp(x[i, :] - m).

    Raises ShapeError, which names the broken rule.
    """

    M: int
    N: int

    def __post_init__(self):
        self._check(FIELDS, integer, 1)

    @property
    def elements(self) -> int:
        return self.M * self.N

    @property
    def macs(self) -> int:
        """Measure of the work."""
        return self.elements

    @property
    def flops(self) -> int:
        """Operations of the definition. Every safe rung needs at least these."""
        return FLOPS * self.elements

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: x read once, y written once."""
        return 2 * 4 * self.elements

    def __str__(self) -> str:
        return f"{self.M}x{self.N}"


def parse_softmax(text: str) -> SoftmaxShape:
    """Parse "M=8192,N=1024" into a SoftmaxShape. Raises ShapeError if the text is malformed."""
    return SoftmaxShape(**parse(text, FIELDS, FIELDS))
