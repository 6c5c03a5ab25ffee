"""PyTorch's 8-bit products on arrays of CuPy, on the current stream. It calls cuBLASLt and writes to C directly."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.libraries.torch import Call, reasons


class _Product(Call):
    def __init__(self, A, B, C, M, N, K):
        super().__init__(A, B, C)

    def refusal(self, error: Exception, messages: Sequence[str]) -> str | None:
        """Returns PyTorch's reason if it supports no such product here: the GPU, the shape, or its cuBLAS."""
        return f"this product: {reasons([str(error)])}" if isinstance(error, RuntimeError) else None


class Int8(_Product):
    """torch._int_mm of A [M, K] and B [N, K], transposed."""

    def run(self) -> None:
        a, b, c = self.tensors
        self.torch._int_mm(a, b.t(), out=c)


class Fp8(_Product):
    """torch._scaled_mm of A [M, K] and B [N, K], transposed, with scales of 1. If `fast`, sums stay in the tensor cores."""

    def __init__(self, A, B, C, M, N, K, fast: bool = False):
        super().__init__(A, B, C, M, N, K)
        a, b, c = self.tensors
        self.tensors = [a.view(self.torch.float8_e4m3fn), b.view(self.torch.float8_e4m3fn), c]
        self._one = self.torch.ones((), device=c.device)
        self._fast = fast
        self.kept_bytes = self._one.nbytes

    def run(self) -> None:
        a, b, c = self.tensors
        self.torch._scaled_mm(
            a, b.t(), self._one, self._one, out_dtype=self.torch.float32, use_fast_accum=self._fast, out=c
        )


class FastFp8(Fp8):
    """The same, with sums that stay in the tensor cores."""

    def __init__(self, *args):
        super().__init__(*args, fast=True)
