"""A chain of blocks in PyTorch, eager: one PyTorch function per block, on CuPy arrays, on the current stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.fusion.shape import TENSORS, Block, blocks
from kernels.libraries import torch as torch_library


class Chain:
    """A call that applies the blocks of a chain to x and their tensors, in order.

    The last argument is the chain's text, as bytes. PyTorch allocates the last block's maps. deliver() copies them to
    y, outside of the timed part.

    `own_bytes`: peak bytes allocated besides those maps, from PyTorch's allocator at the first call.
    """

    def __init__(self, x, *rest):
        *tensors, y, chain = rest
        self.torch = torch_library.load()
        self._x, self._y = (torch_library.as_tensor(self.torch, array) for array in (x, y))
        remaining = iter([torch_library.as_tensor(self.torch, array) for array in tensors])
        self._calls = [
            _call(self.torch, block, [next(remaining) for _ in TENSORS.get(block.kind, ())])
            for block in blocks(bytes(chain).decode())
        ]
        self._result: Any = None
        self.workspace_bytes: int | None = None

    def __call__(self) -> None:
        with torch_library.on_current_stream(self.torch), self.torch.inference_mode():
            self._run() if self.workspace_bytes is not None else self._first()

    def _run(self) -> None:
        self._result = None  # its memory can be reused by the next
        maps = self._x
        for call in self._calls:
            maps = call(maps)
        self._result = maps

    def _first(self) -> None:
        cuda = self.torch.cuda
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
        self._run()
        self.workspace_bytes = cuda.max_memory_allocated() - before - self._y.nbytes

    def copy_result(self) -> None:
        with torch_library.on_current_stream(self.torch), self.torch.inference_mode():
            self._y.copy_(self._result)


def _call(torch: Any, b: Block, tensors: list) -> Callable[[Any], Any]:
    """Returns a block as a function of its maps."""
    F = torch.nn.functional
    if b.kind == "bn":
        gamma, beta, mean, var = tensors
        return lambda x: F.batch_norm(x, mean, var, gamma, beta, eps=b.eps)
    if b.kind == "bias":
        offset = tensors[0][:, None, None]
        return lambda x: x + offset
    return {
        "conv": lambda x: F.conv2d(x, tensors[0], stride=b.stride, padding=b.pad),
        "relu": F.relu,
        "add": lambda x: x + tensors[0],
        "maxpool": lambda x: F.max_pool2d(x, b.R, b.stride, b.pad),
        "avgpool": lambda x: F.avg_pool2d(x, b.R, b.stride, b.pad),
        "gap": lambda x: x.mean((2, 3), keepdim=True),
    }[b.kind]
