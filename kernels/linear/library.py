"""cuBLAS and PyTorch on the arrays of a fully connected layer, on the current stream. FP32, TF32 off."""

from __future__ import annotations

from collections.abc import Callable

from kernels.libraries import cublas
from kernels.libraries.torch import Call


def linear(x, W, y, M, N, K) -> Callable[[], None]:
    """Bind y = x W^T + y."""
    return cublas.product(x, W, y, (M, N, K), transposed=(False, True), add=True)


def dinput(dy, W, dx, M, N, K) -> Callable[[], None]:
    """Bind dx = dy W."""
    return cublas.product(dy, W, dx, (M, K, N))


def dweight(dy, x, dW, M, N, K) -> Callable[[], None]:
    """Bind dW = dy^T x."""
    return cublas.product(dy, x, dW, (N, K, M), transposed=(True, False))


def column_sums(dy, db, M, N) -> Callable[[], None]:
    """Bind db = dy^T times a vector of ones."""
    return cublas.column_sums(dy, db, M, N)


class Linear(Call):
    """torch.addmm, which torch.nn.functional.linear calls."""

    def run(self) -> None:
        x, W, b, y = self.tensors
        self.torch.addmm(b, x, W.t(), out=y)


class InputGradient(Call):
    """torch.mm, as the backward pass of a linear layer calls it."""

    def run(self) -> None:
        dy, W, dx = self.tensors
        self.torch.mm(dy, W, out=dx)


class WeightGradient(Call):
    """torch.mm and torch.sum, as the backward pass of a linear layer calls them."""

    def run(self) -> None:
        dy, x, dW, db = self.tensors
        self.torch.mm(dy.t(), x, out=dW)
        self.torch.sum(dy, 0, out=db)
