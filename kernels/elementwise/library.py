"""PyTorch's elementwise functions on CuPy's arrays, on the current stream. Each writes to the given arrays."""

from __future__ import annotations

from typing import Any

from kernels.libraries import torch as torch_library


class _Call:
    """A call of PyTorch on tensors that share memory with CuPy arrays."""

    def __init__(self, *arrays: Any):
        self.torch = torch_library.load()
        self.tensors = [torch_library.as_tensor(self.torch, array) for array in arrays]

    def __call__(self) -> None:
        with torch_library.on_current_stream(self.torch), self.torch.inference_mode():
            self.run(*self.tensors)

    def run(self, *tensors: Any) -> None:
        raise NotImplementedError


class Relu(_Call):
    """torch.clamp_min(x, 0), the function that torch.relu calls: it can write to y."""

    def run(self, x, y) -> None:
        self.torch.clamp_min(x, 0, out=y)


class ReluBackward(_Call):
    """The function that PyTorch's autograd calls for the gradient of ReLU, from y."""

    def run(self, dy, y, dx) -> None:
        self.torch.ops.aten.threshold_backward.grad_input(dy, y, 0, grad_input=dx)


class Bias(_Call):
    """x + b with b broadcast over the maps [N, C, P, Q] or [N, P, Q, C]."""

    def __init__(self, x, b, y, layout):
        super().__init__(x, b, y)
        if bytes(layout) == b"nchw":
            self.tensors[1] = self.tensors[1][:, None, None]

    def run(self, x, b, y) -> None:
        self.torch.add(x, b, out=y)


class BiasBackward(_Call):
    """The sum of dy over every axis but the channel's."""

    def __init__(self, dy, db, layout):
        super().__init__(dy, db)
        self.axes = (0, 2, 3) if bytes(layout) == b"nchw" else (0, 1, 2)

    def run(self, dy, db) -> None:
        self.torch.sum(dy, dim=self.axes, out=db)


class Residual(_Call):
    """a + b, then ReLU in place: two calls, as in eager mode."""

    def run(self, a, b, y) -> None:
        self.torch.add(a, b, out=y)
        y.clamp_min_(0)


class ResidualBackward(_Call):
    """The gradient of ReLU, then its addition to db: two calls, as in eager mode."""

    def run(self, dy, y, da, db) -> None:
        self.torch.ops.aten.threshold_backward.grad_input(dy, y, 0, grad_input=da)
        db.add_(da)
