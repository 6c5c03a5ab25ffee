"""The shape of a matrix product: M, N, K, alpha, beta and the type of its elements."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.i18n import tr
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.shape import INT_MAX, Shape, ShapeError, element_type, factor, integer, parse

FIELDS = "M N K alpha beta dtype".split()
MAX_INT8_K = INT_MAX // 128**2  # a longer sum of int8 products may leave int32


@dataclass(frozen=True)
class GemmShape(Shape):
    """A matrix product C = alpha * A x B + beta * C0, row-major: A [M, K], B [K, N], C and C0 [M, N].

    `dtype` is the type of A and B: "fp32", "fp16", "bf16" (C is float32 and sums are FP32) or "int8"
    (C is int32). If beta is 0, there is no C0.

    Rungs that load by the copy engine need N and K in multiples of 8 (fp16, bf16: gemm/wgmma and its successors) or of 4
    (fp32: gemm/transposed-ring, gemm/tf32x3). The other rungs run every size.

    Raises ShapeError, which names the broken rule.
    """

    M: int
    N: int
    K: int
    alpha: float = 1.0
    beta: float = 0.0
    dtype: str = "fp32"

    def __post_init__(self):
        self._check("MNK", integer, 1)
        self._check(("dtype",), element_type, ELEMENT_BYTES)
        self._check(("alpha", "beta"), factor, self.dtype == "int8")
        if self.dtype == "int8" and self.K * max(1, abs(self.alpha)) > MAX_INT8_K:
            raise ShapeError(
                tr(
                    "K*|alpha| <= {limit} if dtype is int8 (sums stay in int32), got {got}",
                    limit=MAX_INT8_K,
                    got=f"{self.K}*{abs(self.alpha):g}",
                )
            )

    @property
    def macs(self) -> int:
        return self.M * self.N * self.K

    @property
    def flops(self) -> int:
        """Two per multiply-add. Scaling by alpha and beta is not counted."""
        return 2 * self.macs

    @property
    def elements(self) -> dict[str, int]:
        return {"A": self.M * self.K, "B": self.K * self.N, "C": self.M * self.N}

    @property
    def bytes(self) -> int:
        """Minimum traffic in bytes: A, B (and C0 if beta is not 0) read once, C written once."""
        n = self.elements
        return ELEMENT_BYTES[self.dtype] * (n["A"] + n["B"]) + 4 * n["C"] * (2 if self.beta else 1)

    def __str__(self) -> str:
        text = f"M{self.M} N{self.N} K{self.K}"
        for name, default in (("alpha", 1), ("beta", 0)):
            if (value := getattr(self, name)) != default:
                text += f" {name} {value:g}"
        return text + (f" {self.dtype}" if self.dtype != "fp32" else "")


def parse_gemm(text: str) -> GemmShape:
    """Parse "M=64,N=64,K=64,beta=1,dtype=fp16" into a GemmShape. Raises ShapeError if the text is malformed."""
    return GemmShape(**parse(text, FIELDS, "MNK", text_fields=("dtype",), float_fields=("alpha", "beta")))
