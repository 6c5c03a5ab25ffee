"""Shapes of the norms: feature maps for batch norm, rows of a matrix for layer norm and RMS norm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from kernels.model.shape import Shape, integer, one_of, parse

MAPS_FIELDS = ("N", "C", "H", "W", "layout")
ROWS_FIELDS = ("M", "N")
LAYOUTS = NCHW, NHWC = "nchw", "nhwc"
EPS = 1e-5  # added to a variance; PyTorch's default
FLOAT = 4  # bytes


@dataclass(frozen=True)
class MapsShape(Shape):
    """N images of C channels of H x W pixels, float32, stored as [N, C, H, W] or, with layout "nhwc", as [N, H, W, C].

    Raises ShapeError, which names the broken rule.
    """

    N: int
    C: int
    H: int
    W: int
    layout: str = NCHW

    FLOPS: ClassVar[int]  # of an element, by the definition
    TENSORS: ClassVar[int]  # that are read or written once, at least

    def __post_init__(self):
        self._check(MAPS_FIELDS[:-1], integer, 1)
        self._check(("layout",), one_of, LAYOUTS)

    @property
    def elements(self) -> int:
        return self.N * self.C * self.HW

    @property
    def macs(self) -> int:
        """Measure of the work."""
        return self.elements

    @property
    def HW(self) -> int:
        return self.H * self.W

    @property
    def count(self) -> int:
        """Numbers of a channel."""
        return self.N * self.HW

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """Extents of x in memory."""
        if self.layout == NHWC:
            return self.N, self.H, self.W, self.C
        return self.N, self.C, self.H, self.W

    @property
    def channel_axis(self) -> int:
        return 3 if self.layout == NHWC else 1

    @property
    def flops(self) -> int:
        """Operations of the definition."""
        return self.FLOPS * self.elements

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: each tensor of the size of x once. Vectors of C numbers are left out."""
        return FLOAT * self.TENSORS * self.elements

    def __str__(self) -> str:
        return f"{self.N}x{self.C}x{self.H}x{self.W} {self.layout}"


class BatchNormShape(MapsShape):
    """Batch norm in training. Of each channel: sum (1), squared distances (3), result (3 operations)."""

    FLOPS, TENSORS = 7, 2


class BatchNormInferenceShape(MapsShape):
    """Batch norm in inference: subtraction, two multiplications, addition."""

    FLOPS, TENSORS = 4, 2


class BatchNormBackwardShape(MapsShape):
    """The gradients of batch norm: xhat (2), dbeta (1), dgamma (2), dx (4 operations)."""

    FLOPS, TENSORS = 9, 3


@dataclass(frozen=True)
class RowsShape(Shape):
    """M rows of N numbers, float32, row-major. Raises ShapeError, which names the broken rule."""

    M: int
    N: int

    FLOPS: ClassVar[int]
    TENSORS: ClassVar[int]

    def __post_init__(self):
        self._check(ROWS_FIELDS, integer, 1)

    @property
    def elements(self) -> int:
        return self.M * self.N

    @property
    def macs(self) -> int:
        """Measure of the work."""
        return self.elements

    @property
    def flops(self) -> int:
        """Operations of the definition."""
        return self.FLOPS * self.elements

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: each tensor of the size of x once. Vectors of M or N numbers are left out."""
        return FLOAT * self.TENSORS * self.elements

    def __str__(self) -> str:
        return f"{self.M}x{self.N}"


class LayerNormShape(RowsShape):
    """Layer norm: sum (1), squared distances (3), result (4 operations)."""

    FLOPS, TENSORS = 8, 2


class LayerNormBackwardShape(RowsShape):
    """The gradients of layer norm: xhat (2), g (1), two sums (3), dgamma (2), dbeta (1), dx (4 operations)."""

    FLOPS, TENSORS = 13, 3


class RmsNormShape(RowsShape):
    """RMS norm: sum of squares (2), result (2 operations)."""

    FLOPS, TENSORS = 4, 2


class RmsNormBackwardShape(RowsShape):
    """The gradients of RMS norm: xhat (1), g (1), one sum (2), dgamma (2), dx (3 operations)."""

    FLOPS, TENSORS = 9, 3


Maps = TypeVar("Maps", bound=MapsShape)
Rows = TypeVar("Rows", bound=RowsShape)


def maps_parser(shape: type[Maps]) -> Callable[[str], Maps]:
    """Returns a function that parses "N=32,C=64,H=56,W=56,layout=nhwc". It raises ShapeError if the text is malformed."""
    return lambda text: shape(**parse(text, MAPS_FIELDS, MAPS_FIELDS[:-1], text_fields=("layout",)))


def rows_parser(shape: type[Rows]) -> Callable[[str], Rows]:
    """Returns a function that parses "M=8192,N=768". It raises ShapeError if the text is malformed."""
    return lambda text: shape(**parse(text, ROWS_FIELDS, ROWS_FIELDS))
