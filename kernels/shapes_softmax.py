"""The shape of a softmax along the rows of a matrix, and the shapes that readers know."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.presets import Preset
from kernels.shapes_checks import Shape, integer, parse

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


SOFTMAX_PRESETS: dict[str, Preset] = {
    preset.key: preset
    for preset in (
        Preset("softmax-toy", "Toy 2×8", SoftmaxShape(2, 8), "small enough to follow every number"),
        Preset("softmax-40", "4×40", SoftmaxShape(4, 40), "a warp's width and a quarter: the second turn has 8 lanes"),
        Preset("softmax-128", "128×128", SoftmaxShape(128, 128), "one small head's scores: 64 KB"),
        Preset("softmax-ragged", "1,001×777", SoftmaxShape(1001, 777), "rows that begin anywhere within a sector"),
        Preset(
            "softmax-attention", "8192×1024", SoftmaxShape(8192, 1024),
            "as many scores as 8 heads of attention over 1,024 tokens have: 34 MB",
        ),
        Preset(
            "softmax-large", "32768×1024", SoftmaxShape(32768, 1024),
            "32 heads of 1,024 tokens: 134 MB, beyond the L2 of any GPU",
        ),
        Preset(
            "softmax-gpt2", "GPT-2 vocabulary", SoftmaxShape(64, 50257),
            "GPT-2 (Radford et al. 2019): the scores of its 50,257 tokens, for 64 positions",
        ),
        Preset("softmax-long", "4 long rows", SoftmaxShape(4, 2**20), "4 rows of 2^20: fewer rows than a GPU has SMs"),
    )
}  # fmt: skip
