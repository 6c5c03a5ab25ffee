"""The shape of a convolution in FP16 with the channels last (NHWC)."""

from __future__ import annotations

from kernels.conv.shape import FIELDS, ConvShape
from kernels.model.shape import parse

BYTES = 2  # of an element


class HalfShape(ConvShape):
    """A 2-D convolution in FP16: x [N,H,W,C], filters [K,R,S,C/groups], y [N,P,Q,K].

    The fields and errors are those of ConvShape. All rungs but cuDNN's need C and K in multiples of 8.
    """

    @property
    def dtype(self) -> str:
        return "fp16"

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.H, self.W, self.C

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return self.K, self.R, self.S, self.maps

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.P, self.Q, self.K

    @property
    def pixels(self) -> int:
        """Output pixels of all images: the rows of the matrix product."""
        return self.N * self.PQ

    @property
    def planar(self) -> ConvShape:
        """The same convolution with a plane for each channel (NCHW)."""
        return ConvShape(**self.params())

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes at FP16: each input read once, the output written once."""
        return BYTES * sum(self.elements.values())

    def __str__(self) -> str:
        return f"{super().__str__()} NHWC fp16"


def parse_half(text: str) -> HalfShape:
    """Parse "N=1,C=8,H=8,W=8,K=8,R=3,S=3,pad=1" into a HalfShape. Raises ShapeError if the text is malformed."""
    return HalfShape(**parse(text, FIELDS, "NCHWKRS", text_fields=("mode",)))
