"""The shapes of an embedding: M tokens of a vocabulary of V, rows of d floats; forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernels.model.shape import Shape, integer, one_of, parse

FIELDS, REQUIRED = ("M", "V", "d", "tokens"), ("M", "V", "d")
UNIFORM, ZIPF, EQUAL = TOKENS = ("uniform", "zipf", "equal")


@dataclass(frozen=True)
class EmbeddingShape(Shape):
    """y[m] = table[tokens[m]]: tokens [M] int32 in 0 .. V - 1, table [V, d], y [M, d], row-major, float32.

    `tokens` says how random tokens are distributed: "uniform"; "zipf", token t about 1 / (t + 1) as often as token 0, as
    words of a text; "equal", one token M times. Raises ShapeError, which names the broken rule.
    """

    M: int
    V: int
    d: int
    tokens: str = UNIFORM

    def __post_init__(self):
        self._check(("M", "V", "d"), integer, 1)
        self._check(("tokens",), one_of, TOKENS)

    @property
    def macs(self) -> int:
        """Elements of y: the measure of the work."""
        return self.M * self.d

    @property
    def flops(self) -> int:
        return 0

    @property
    def bytes(self) -> int:
        """Traffic in bytes if no row of the table is read from a cache: tokens and rows read, y written."""
        return 4 * (self.M + 2 * self.M * self.d)

    def __str__(self) -> str:
        return f"{self.M}x{self.d} of {self.V}" + (f" {self.tokens}" if self.tokens != UNIFORM else "")


@dataclass(frozen=True)
class EmbeddingBackwardShape(EmbeddingShape):
    """dtable[v] = the sum of dy[m] over all m with tokens[m] == v: dy [M, d], dtable [V, d], float32."""

    @property
    def flops(self) -> int:
        return self.M * self.d

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: tokens and dy read once, dtable written once."""
        return 4 * (self.M + self.M * self.d + self.V * self.d)


def parser(shape: type[EmbeddingShape]) -> Callable[[str], EmbeddingShape]:
    """Returns a function that parses "M=1024,V=50257,d=768,tokens=zipf" into this shape. It raises ShapeError if the text is
    malformed."""
    return lambda text: shape(**parse(text, FIELDS, REQUIRED, ("tokens",)))
