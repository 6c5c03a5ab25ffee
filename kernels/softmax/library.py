"""PyTorch's softmax on arrays of CuPy, on the current stream."""

from __future__ import annotations

from kernels.libraries.torch import Call


class Softmax(Call):
    """torch.softmax along the rows of x [M, N] into y [M, N]."""

    def run(self) -> None:
        x, y = self.tensors
        self.torch.softmax(x, dim=1, out=y)
