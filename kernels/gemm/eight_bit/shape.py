"""The shape of a product of 8-bit numbers: M, N, K and the type of its elements."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.gemm.shape import MAX_INT8_K
from kernels.i18n import tr
from kernels.model.shape import Shape, ShapeError, element_type, integer, parse

FIELDS = "M N K dtype".split()
INT8, FP8 = "int8", "fp8"
INPUT = {INT8: "int8", FP8: "float8_e4m3fn"}  # NumPy's names, the second by ml_dtypes
RESULT = {INT8: "int32", FP8: "float32"}


@dataclass(frozen=True)
class EightBitShape(Shape):
    """A matrix product C = A Bᵀ of 8-bit numbers, row-major: A [M, K], B [N, K], C [M, N].

    B is given along K, as Hopper's tensor cores read 8-bit numbers. `dtype` is the type of A and B: "int8" (C is int32)
    or "fp8" (e4m3; C is float32).

    Rungs with wgmma need N in multiples of 4 and K in multiples of 16. PyTorch's need N and K in multiples of 8 (int8) or
    16 (fp8). The other rungs run every size.

    Raises ShapeError, which names the broken rule.
    """

    M: int
    N: int
    K: int
    dtype: str = INT8

    def __post_init__(self):
        self._check("MNK", integer, 1)
        self._check(("dtype",), element_type, INPUT)
        if self.dtype == INT8 and self.K > MAX_INT8_K:
            raise ShapeError(
                tr("K <= {limit} if dtype is int8 (sums stay in int32), got {got}", limit=MAX_INT8_K, got=self.K)
            )

    @property
    def macs(self) -> int:
        return self.M * self.N * self.K

    @property
    def flops(self) -> int:
        """Two per multiply-add."""
        return 2 * self.macs

    @property
    def elements(self) -> dict[str, int]:
        return {"A": self.M * self.K, "B": self.K * self.N, "C": self.M * self.N}

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: A and B read once, C written once."""
        n = self.elements
        return n["A"] + n["B"] + 4 * n["C"]

    def __str__(self) -> str:
        return f"M{self.M} N{self.N} K{self.K} {self.dtype}"


def parse_eight_bit(text: str) -> EightBitShape:
    """Parse "M=64,N=64,K=64,dtype=fp8" into an EightBitShape. Raises ShapeError if the text is malformed."""
    return EightBitShape(**parse(text, FIELDS, "MNK", text_fields=("dtype",)))
