"""PyTorch's optimisers on CuPy's arrays, on the current stream: its foreach and its fused implementation.

The tensors are parts of the given arrays, which PyTorch updates in place.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Generic

from kernels.libraries.torch import Call
from kernels.optimizer.shape import AdamShape, Parsed, SgdShape, parser


class _Optimizer(Call, Generic[Parsed]):
    """A call that updates every tensor of the arrays. The last argument is the shape of the tensors, as text."""

    SHAPE: type[Parsed]
    ARRAYS: int

    def __init__(self, *args: Any):
        super().__init__(*args[: self.ARRAYS])
        self.shape = parser(self.SHAPE)(bytes(args[-1]).decode())
        self.lists = [[array[first : first + count] for first, count in self.shape.tensors] for array in self.tensors]


class SgdForeach(_Optimizer[SgdShape]):
    """The operations of torch.optim.SGD(foreach=True), each over all tensors."""

    SHAPE, ARRAYS = SgdShape, 3

    def run(self) -> None:
        s, torch, (w, g, v) = self.shape, self.torch, self.lists
        if s.weight_decay:
            g = torch._foreach_add(g, w, alpha=s.weight_decay)
        torch._foreach_mul_(v, s.momentum)
        torch._foreach_add_(v, g, alpha=1.0)
        torch._foreach_add_(w, v, alpha=-s.lr)


class SgdFused(_Optimizer):
    """torch.optim.SGD(fused=True)."""

    SHAPE, ARRAYS = SgdShape, 3

    def run(self) -> None:
        s, (w, g, v) = self.shape, self.lists
        self.torch._fused_sgd_(
            w,
            g,
            v,
            weight_decay=s.weight_decay,
            momentum=s.momentum,
            lr=s.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )


def functional_adam() -> Callable[..., None]:
    """Returns the function that Adam.step() calls. Its module is no attribute of torch.optim, which deletes the name."""
    return importlib.import_module("torch.optim.adam").adam


class AdamForeach(_Optimizer[AdamShape]):
    """torch.optim.Adam(foreach=True): the function that its step() calls, at the same step each time."""

    SHAPE, ARRAYS = AdamShape, 4

    def __init__(self, *args: object):
        super().__init__(*args)
        self.steps = [self.torch.tensor(0.0) for _ in self.shape.counts]  # on the host, as step() keeps them

    def run(self) -> None:
        s, (w, g, m, v) = self.shape, self.lists
        for step in self.steps:
            step.fill_(s.step - 1)
        functional_adam()(
            w,
            g,
            m,
            v,
            [],
            self.steps,
            foreach=True,
            amsgrad=False,
            beta1=s.beta1,
            beta2=s.beta2,
            lr=s.lr,
            weight_decay=s.weight_decay,
            eps=s.eps,
            maximize=False,
        )


class AdamFused(_Optimizer[AdamShape]):
    """torch.optim.Adam(fused=True): the function that its step() calls, at the same step each time."""

    SHAPE, ARRAYS = AdamShape, 4

    def __init__(self, *args: object):
        super().__init__(*args)
        count = float(self.shape.step)
        self.steps = [self.torch.full((), count, device="cuda") for _ in self.shape.counts]

    def run(self) -> None:
        s, (w, g, m, v) = self.shape, self.lists
        self.torch._fused_adam_(
            w,
            g,
            m,
            v,
            [],
            self.steps,
            lr=s.lr,
            beta1=s.beta1,
            beta2=s.beta2,
            weight_decay=s.weight_decay,
            eps=s.eps,
            amsgrad=False,
            maximize=False,
        )
