"""cuBLAS and PyTorch on the arrays of a fully connected layer, on the current stream. FP32, TF32 off."""

from __future__ import annotations

from collections.abc import Callable

from kernels.libraries import cublas
from kernels.libraries.torch import as_tensor, load, on_current_stream


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


class _Call:
    """A call of PyTorch that writes to our arrays."""

    def __init__(self, *arrays):
        self.torch = load()
        self._tensors = [as_tensor(self.torch, array) for array in arrays]

    def __call__(self) -> None:
        with on_current_stream(self.torch), self.torch.inference_mode():
            self._run(*self._tensors)

    def _run(self, *tensors) -> None:
        raise NotImplementedError


class Linear(_Call):
    """torch.addmm, which torch.nn.functional.linear calls."""

    def _run(self, x, W, b, y) -> None:
        self.torch.addmm(b, x, W.t(), out=y)


class InputGradient(_Call):
    """torch.mm, as the backward pass of a linear layer calls it."""

    def _run(self, dy, W, dx) -> None:
        self.torch.mm(dy, W, out=dx)


class WeightGradient(_Call):
    """torch.mm and torch.sum, as the backward pass of a linear layer calls them."""

    def _run(self, dy, x, dW, db) -> None:
        self.torch.mm(dy.t(), x, out=dW)
        self.torch.sum(dy, 0, out=db)
