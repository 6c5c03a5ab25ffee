"""The shape of a chain of blocks in FP16 with the channels last (NHWC)."""

from __future__ import annotations

from kernels.conv.half.shape import BYTES, HalfShape
from kernels.fusion.shape import FIELDS, ChainShape, Stage
from kernels.model.shape import parse

FLOAT = 4  # bytes of a parameter of bias and batch norm
HALVES = ("x", "w", "z", "y")  # tensors in FP16


class HalfChainShape(ChainShape):
    """A chain of blocks on maps x [N, H, W, C] in FP16. Parameters of bias and batch norm are FP32.

    The fields and errors are those of ChainShape. implicit-gemm needs C and K in multiples of 8.
    """

    @property
    def dtype(self) -> str:
        return "fp16"

    @property
    def planar(self) -> ChainShape:
        """The same chain with a plane for each map (NCHW)."""
        return ChainShape(**self.params())

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: every input read once, the output written once, nothing in between."""
        return sum(
            (BYTES if name.partition("_")[0] in HALVES else FLOAT) * count for name, count in self.elements.items()
        )

    def __str__(self) -> str:
        return f"{super().__str__()} NHWC fp16"


def conv_shape(stage: Stage) -> HalfShape:
    """Returns a block "conv" as a shape of the FP16 convolution."""
    N, C, H, W = stage.before
    b = stage.block
    return HalfShape(N, C, H, W, b.K, b.R, b.R, stride=b.stride, pad=b.pad)


def parse_half_chain(text: str) -> HalfChainShape:
    """Parse "N=1,C=8,H=8,W=8,chain=conv:K=8:R=3 relu" into a HalfChainShape. Raises ShapeError if the text is malformed."""
    return HalfChainShape(**parse(text, FIELDS, FIELDS, text_fields=("chain",)))
