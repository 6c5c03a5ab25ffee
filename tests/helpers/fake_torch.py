"""The parts of PyTorch that every call of it uses, for tests without PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace

import numpy as np

no_context = contextlib.nullcontext


def fake_cuda(
    stream: Callable[..., AbstractContextManager] = lambda stream: no_context(), peak: int = 0, now: int = 0
) -> SimpleNamespace:
    """Returns a torch.cuda whose allocator reports these bytes, and whose streams are entered by `stream(name)`."""
    return SimpleNamespace(
        stream=stream,
        ExternalStream=lambda pointer: f"stream {pointer}",
        reset_peak_memory_stats=lambda: None,
        max_memory_allocated=lambda: peak,
        memory_allocated=lambda: now,
    )


class FakeTensor:
    """A tensor of PyTorch as `kernels.model.values` reads it: NumPy reads none in bfloat16 or float8, none that has a
    gradient and none of a GPU."""

    def __init__(self, array: np.ndarray, requires_grad: bool = False, device: str = "cpu"):
        self.array, self.requires_grad, self.device = array, requires_grad, device
        self.dtype = f"torch.{array.dtype.name}"

    def detach(self) -> FakeTensor:
        return type(self)(self.array, device=self.device)

    def cpu(self) -> FakeTensor:
        return type(self)(self.array, self.requires_grad)

    def float(self) -> FakeTensor:
        return FakeTensor(self.array.astype(np.float32), self.requires_grad, self.device)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.device != "cpu":
            raise TypeError(f"can't convert {self.device} device type tensor to numpy.")
        if self.array.dtype.name.startswith(("bfloat16", "float8")):
            raise TypeError("Got unsupported ScalarType")
        return self.array
