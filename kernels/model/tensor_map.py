"""A tensor map: the description of a tensor in global memory from which the copy engine (TMA) copies boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass

ELEMENTS = {  # bytes of an element, by NumPy's name of its type
    "uint8": 1, "int8": 1, "float16": 2, "bfloat16": 2, "float32": 4,
}  # fmt: skip
SWIZZLES = (0, 32, 64, 128)  # bytes of a row in shared memory whose pieces are permuted; 0: none
MAX_RANK, MAX_BOX, MAX_EXTENT, MAX_STRIDE = 5, 256, 2**32, 2**40


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
