"""A tensor map: the description of a tensor in global memory from which the copy engine (TMA) copies boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass

ELEMENTS = {  # bytes of an element, by NumPy's name of its type
    "uint8": 1,
    "int8": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
}
SWIZZLES = (0, 32, 64, 128)  # bytes of a row in shared memory whose pieces are permuted; 0: none
MAX_RANK, MAX_BOX, MAX_EXTENT, MAX_STRIDE = 5, 256, 2**32, 2**40
MAX_STEP, MAX_PIXELS = 8, 1024
CORNERS = range(-128, 128)  # of an im2col map with two dimensions of pixels
MAX_OFFSET = 255  # of a tap from the first one, likewise


@dataclass(frozen=True)
class TensorMap:
    """An argument of a kernel: a tensor in `buffer`, and the box that one copy moves.

    Dimensions are innermost first. `strides` are the bytes between neighbours along each dimension but the first, whose
    elements are adjacent. Elements of a box outside the tensor are read as zero and are not written.
    """

    buffer: str
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0

    def check(self) -> None:
        """Raises ValueError about a rule of CUDA that is broken (cuTensorMapEncodeTiled)."""
        for rule, holds in self._rules().items():
            if not holds:
                raise ValueError(f"a tensor map needs {rule}, got {self}")

    def _rules(self) -> dict[str, bool]:
        rank, row = len(self.extents), self.box[0] * ELEMENTS[self.dtype]
        return {
            f"1 to {MAX_RANK} dimensions": 1 <= rank <= MAX_RANK,
            "a box and strides of the tensor's rank": len(self.box) == rank == len(self.strides) + 1,
            "positive extents below 2^32": all(0 < n < MAX_EXTENT for n in self.extents),
            "strides in multiples of 16 bytes below 2^40": all(
                0 < n < MAX_STRIDE and n % 16 == 0 for n in self.strides
            ),
            f"a box of 1 to {MAX_BOX} along each dimension": all(0 < n <= MAX_BOX for n in self.box),
            "a box whose rows are multiples of 16 bytes": row % 16 == 0,
            "a box whose rows are no longer than the swizzle": not self.swizzle or row <= self.swizzle,
            "a swizzle of 0, 32, 64 or 128 bytes": self.swizzle in SWIZZLES,
        }

    @property
    def box_bytes(self) -> int:
        """Bytes of a box in shared memory, which every copy reports to its barrier."""
        return math.prod(self.box) * ELEMENTS[self.dtype]


@dataclass(frozen=True)
class StridedMap(TensorMap):
    """A map whose boxes leave elements out: neighbours in a box are `steps` elements apart, along each dimension."""

    steps: tuple[int, ...] = ()

    @property
    def span(self) -> tuple[int, ...]:
        """Elements of the tensor that a box covers, with those that are left out after each, as the driver takes them."""
        return tuple(count * step for count, step in zip(self.box, self.steps, strict=True))

    def _rules(self) -> dict[str, bool]:
        return super()._rules() | {
            "a step for each dimension": len(self.steps) == len(self.extents),
            f"steps of 1 to {MAX_STEP}": all(0 < n <= MAX_STEP for n in self.steps),
            f"a box that covers 1 to {MAX_BOX}": len(self.steps) != len(self.box)
            or all(n <= MAX_BOX for n in self.span),
        }


@dataclass(frozen=True)
class Im2colMap(TensorMap):
    """A map of pixels with their channels: extents (C, W, H, N). A copy takes box[0] channels of box[1] pixels.

    The first pixel is the corner of a window. The next ones follow along W, then H, then N, `steps` (W, H) apart. Corners
    of windows are `lower` (W, H) to extent - 1 + `upper`. Each copy adds an offset of a filter tap to them. Pixels
    outside the tensor are read as zero (cuTensorMapEncodeIm2col; PTX ISA, "Im2col mode").
    """

    steps: tuple[int, int] = (1, 1)
    lower: tuple[int, int] = (0, 0)
    upper: tuple[int, int] = (0, 0)

    @property
    def corners(self) -> tuple[int, int]:
        """Corners of windows along W and along H."""
        across, down = (
            (extent - 1 + upper - lower) // step + 1
            for extent, upper, lower, step in zip(self.extents[1:3], self.upper, self.lower, self.steps, strict=True)
        )
        return across, down

    def _rules(self) -> dict[str, bool]:
        rules = super()._rules()
        rules.pop("a box and strides of the tensor's rank")
        rules.pop(f"a box of 1 to {MAX_BOX} along each dimension")
        return rules | {
            "extents (C, W, H, N) and their strides": len(self.extents) == len(self.strides) + 1 == 4,
            f"1 to {MAX_BOX} channels and 1 to {MAX_PIXELS} pixels": len(self.box) == 2
            and 0 < self.box[0] <= MAX_BOX
            and 0 < self.box[1] <= MAX_PIXELS,
            f"steps of 1 to {MAX_STEP}": all(0 < n <= MAX_STEP for n in self.steps),
            f"corners in {CORNERS[0]} .. {CORNERS[-1]}": all(n in CORNERS for n in self.lower + self.upper),
            "a corner of a window": len(self.extents) == 4 and all(n > 0 for n in self.corners),
        }
