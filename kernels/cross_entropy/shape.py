"""The shapes of cross-entropy: logits of M rows over N classes, forward, backward, and both in one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kernels.model.shape import Shape, integer, parse

FIELDS = ("M", "N")
FORWARD_FLOPS = 4  # per logit: comparison, subtraction of the maximum, exp (counted as one), addition
BACKWARD_FLOPS = 3  # per logit: subtraction of the log-sum-exp, exp, product with g


@dataclass(frozen=True)
class CrossEntropyShape(Shape):
    """loss[i] = lse[i] - x[i, labels[i]], lse[i] the logarithm of the sum of exp(x[i, :]). x [M, N] float32, row-major;
    labels [M] int32 in 0 .. N - 1; loss and lse [M] float32.

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
        """Operations of the definition per logit. The few per row are not counted."""
        return FORWARD_FLOPS * self.elements

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: x and labels read once, loss and lse written once."""
        return 4 * (self.elements + 3 * self.M)

    def __str__(self) -> str:
        return f"{self.M}x{self.N}"


@dataclass(frozen=True)
class CrossEntropyBackwardShape(CrossEntropyShape):
    """dx[i, j] = (exp(x[i, j] - lse[i]) - (1 if j == labels[i] else 0)) * g[i]; dx [M, N], g [M] float32."""

    @property
    def flops(self) -> int:
        return BACKWARD_FLOPS * self.elements

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: x, labels, lse and g read once, dx written once."""
        return 4 * (2 * self.elements + 3 * self.M)


@dataclass(frozen=True)
class CrossEntropyStepShape(CrossEntropyShape):
    """Loss and gradient from x, labels and g: loss [M] and dx [M, N], as the two shapes above define them."""

    @property
    def flops(self) -> int:
        return (FORWARD_FLOPS + BACKWARD_FLOPS) * self.elements

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: x, labels and g read once, loss and dx written once."""
        return 4 * (2 * self.elements + 3 * self.M)


Parsed = TypeVar("Parsed", bound=CrossEntropyShape)


def parser(shape: type[Parsed]) -> Callable[[str], Parsed]:
    """Returns a function that parses "M=1024,N=50257" into this shape. It raises ShapeError if the text is malformed."""
    return lambda text: shape(**parse(text, FIELDS, FIELDS))
