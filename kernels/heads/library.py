"""PyTorch's copies between rows and heads on arrays of CuPy, on the current stream: one call for each part."""

from __future__ import annotations

from kernels.libraries.torch import Call, Tensor


def _pairs(rows: Tensor, heads: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Returns views [N, h, T, d] of the rows of each part, with its heads."""
    return [(rows[:, :, part].transpose(1, 2), of_part) for part, of_part in enumerate(heads)]


class Split(Call):
    def run(self) -> None:
        rows, *heads = self.tensors
        for of_rows, of_heads in _pairs(rows, heads):
            of_heads.copy_(of_rows)


class Merge(Call):
    def run(self) -> None:
        *heads, rows = self.tensors
        for of_rows, of_heads in _pairs(rows, heads):
            of_rows.copy_(of_heads)
