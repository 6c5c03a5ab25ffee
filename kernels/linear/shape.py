"""The shapes of a fully connected layer: M rows of K inputs and N outputs, forward and both backward products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernels.model.shape import Shape, integer, parse

FIELDS = ("M", "N", "K")


@dataclass(frozen=True)
class LinearShape(Shape):
    """y = x W^T + b: x [M, K], W [N, K], b [N], y [M, N], row-major, float32, as PyTorch's Linear.

    Raises ShapeError, which names the broken rule.
    """

    M: int
    N: int
    K: int

    def __post_init__(self):
        self._check(FIELDS, integer, 1)

    @property
    def macs(self) -> int:
        return self.M * self.N * self.K

    @property
    def flops(self) -> int:
        """Multiply-adds count twice; one addition of b per output."""
        return 2 * self.macs + self.M * self.N

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: x, W and b read once, y written once."""
        return 4 * (self.M * self.K + self.N * self.K + self.N + self.M * self.N)

    def __str__(self) -> str:
        return f"{self.M}x{self.N}x{self.K}"


@dataclass(frozen=True)
class InputGradientShape(LinearShape):
    """dx = dy W: dy [M, N], W [N, K], dx [M, K], row-major, float32."""

    @property
    def flops(self) -> int:
        return 2 * self.macs

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: dy and W read once, dx written once."""
        return 4 * (self.M * self.N + self.N * self.K + self.M * self.K)


@dataclass(frozen=True)
class WeightGradientShape(LinearShape):
    """dW = dy^T x and db, the column sums of dy: dy [M, N], x [M, K], dW [N, K], db [N], row-major, float32."""

    @property
    def flops(self) -> int:
        """Multiply-adds count twice; one addition per element of dy."""
        return 2 * self.macs + self.M * self.N

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: dy and x read once, dW and db written once."""
        return 4 * (self.M * self.N + self.M * self.K + self.N * self.K + self.N)


def parser(shape: type[LinearShape]) -> Callable[[str], LinearShape]:
    """Returns a function that parses "M=1024,N=2304,K=768" into this shape. It raises ShapeError if the text is malformed."""
    return lambda text: shape(**parse(text, FIELDS, FIELDS))
