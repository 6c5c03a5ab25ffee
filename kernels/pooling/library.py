"""PyTorch's pooling on arrays of CuPy, on the current stream. It writes to our arrays directly.

PyTorch keeps 64-bit indices. They are in memory of its own; copies to and from our 32-bit ones are outside of the timing.
"""

from __future__ import annotations

from kernels.libraries.torch import Call


def settings(s) -> tuple[list[int], ...]:
    """Returns window, stride and padding of `struct Pool`, each [vertical, horizontal]."""
    return tuple([int(s[a]), int(s[b])] for a, b in (("R", "S"), ("u", "v"), ("pad_h", "pad_w")))


def dilation(s) -> list[int]:
    return [int(s["dilation_h"]), int(s["dilation_w"])]


class MaxPool(Call):
    """aten::max_pool2d_with_indices of x into y; copy_result() copies the indices to ours, int32."""

    def __init__(self, x, y, index, s, ceil):
        super().__init__(x, y, index)
        self._settings = (*settings(s), dilation(s), bool(ceil))
        self._wide = self.torch.empty_like(self.tensors[2], dtype=self.torch.int64)
        self.kept_bytes = self._wide.nbytes

    def run(self) -> None:
        x, y, _ = self.tensors
        self.torch.ops.aten.max_pool2d_with_indices.out(x, *self._settings, out=y, indices=self._wide)

    def copy(self) -> None:
        self.tensors[2].copy_(self._wide)


class MaxPoolBackward(Call):
    """aten::max_pool2d_with_indices_backward of dy and the indices into dx.

    PyTorch takes x too, but reads only its size. The 64-bit indices are made from ours before the first run."""

    def __init__(self, dy, index, dx, s, ceil):
        super().__init__(dy, index, dx)
        self._settings = (*settings(s), dilation(s), bool(ceil))
        self._x = self.torch.empty_like(self.tensors[2])
        self._wide = self.torch.empty_like(self.tensors[1], dtype=self.torch.int64)
        self.kept_bytes = self._x.nbytes + self._wide.nbytes

    def prepare(self) -> None:
        self._wide.copy_(self.tensors[1])

    def run(self) -> None:
        dy, _, dx = self.tensors
        self.torch.ops.aten.max_pool2d_with_indices_backward.grad_input(
            dy, self._x, *self._settings, self._wide, grad_input=dx
        )


class AvgPool(Call):
    """aten::avg_pool2d of x into y."""

    def __init__(self, x, y, s, ceil):
        super().__init__(x, y)
        self._settings = (*settings(s), bool(ceil), bool(s["include_pad"]), None)

    def run(self) -> None:
        x, y = self.tensors
        self.torch.ops.aten.avg_pool2d.out(x, *self._settings, out=y)


class AvgPoolBackward(Call):
    """aten::avg_pool2d_backward of dy into dx. PyTorch takes x too, but reads only its size."""

    def __init__(self, dy, dx, s, ceil):
        super().__init__(dy, dx)
        self._settings = (*settings(s), bool(ceil), bool(s["include_pad"]), None)
        self._x = self.torch.empty_like(self.tensors[1])
        self.kept_bytes = self._x.nbytes

    def run(self) -> None:
        dy, dx = self.tensors
        self.torch.ops.aten.avg_pool2d_backward.grad_input(dy, self._x, *self._settings, grad_input=dx)


class GlobalAvgPool(Call):
    """torch.mean of x over the pixels of a plane, into y: what adaptive_avg_pool2d to 1 x 1 calls."""

    def run(self) -> None:
        x, y = self.tensors
        self.torch.mean(x, dim=(2, 3), out=y)


class GlobalAvgPoolBackward(Call):
    """torch.div of dy, expanded to the planes, into dx: what the gradient of torch.mean is."""

    def run(self) -> None:
        dy, dx = self.tensors
        area = dx.shape[2] * dx.shape[3]
        self.torch.div(dy[:, :, None, None].expand(dx.shape), area, out=dx)
