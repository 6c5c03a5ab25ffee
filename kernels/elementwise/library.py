"""PyTorch's elementwise functions on CuPy's arrays, on the current stream. Each writes to the given arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kernels.libraries.torch import Call


class Relu(Call):
    """torch.clamp_min(x, 0), the function that torch.relu calls: it can write to y."""

    def run(self) -> None:
        x, y = self.tensors
        self.torch.clamp_min(x, 0, out=y)


class ReluBackward(Call):
    """The function that PyTorch's autograd calls for the gradient of ReLU, from y."""

    def run(self) -> None:
        dy, y, dx = self.tensors
        self.torch.ops.aten.threshold_backward.grad_input(dy, y, 0, grad_input=dx)


class Gelu(Call):
    """torch.nn.functional.gelu in the form of the last argument. It can write to y."""

    APPROXIMATE: ClassVar[Mapping[str, str]] = {"erf": "none", "tanh": "tanh"}

    def __init__(self, *args):
        super().__init__(*args[:-1])
        self.approximate = self.APPROXIMATE[bytes(args[-1]).decode()]

    def run(self) -> None:
        x, y = self.tensors
        self.torch.ops.aten.gelu.out(x, approximate=self.approximate, out=y)


class GeluBackward(Gelu):
    """The function that PyTorch's autograd calls for the gradient of GELU, from x."""

    def run(self) -> None:
        dy, x, dx = self.tensors
        self.torch.ops.aten.gelu_backward.grad_input(dy, x, approximate=self.approximate, grad_input=dx)


class Bias(Call):
    """x + b with b broadcast over the maps [N, C, P, Q] or [N, P, Q, C]."""

    def __init__(self, x, b, y, layout):
        super().__init__(x, b, y)
        if bytes(layout) == b"nchw":
            self.tensors[1] = self.tensors[1][:, None, None]

    def run(self) -> None:
        x, b, y = self.tensors
        self.torch.add(x, b, out=y)


class BiasBackward(Call):
    """The sum of dy over every axis but the channel's."""

    def __init__(self, dy, db, layout):
        super().__init__(dy, db)
        self.axes = (0, 2, 3) if bytes(layout) == b"nchw" else (0, 1, 2)

    def run(self) -> None:
        dy, db = self.tensors
        self.torch.sum(dy, dim=self.axes, out=db)


class Residual(Call):
    """a + b, then ReLU in place: two calls, as in eager mode."""

    def run(self) -> None:
        a, b, y = self.tensors
        self.torch.add(a, b, out=y)
        y.clamp_min_(0)


class ResidualBackward(Call):
    """The gradient of ReLU, then its addition to db: two calls, as in eager mode."""

    def run(self) -> None:
        dy, y, da, db = self.tensors
        self.torch.ops.aten.threshold_backward.grad_input(dy, y, 0, grad_input=da)
        db.add_(da)
