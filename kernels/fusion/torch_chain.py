"""A chain of blocks in PyTorch, eager: one PyTorch function per block, on CuPy arrays, on the current stream."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from kernels.fusion.shape import TENSORS, Block, blocks
from kernels.libraries.torch import Call, Tensor


class Chain(Call):
    """A call that applies the blocks of a chain to x and their tensors, in order.

    The last argument is the chain's text, as bytes. PyTorch allocates the last block's maps.
    """

    def __init__(self, x, *rest):
        *tensors, y, chain = rest
        super().__init__(x, *tensors, y)
        remaining = iter(self.tensors[1:-1])
        self._blocks = [
            _call(self.torch, block, [next(remaining) for _ in TENSORS.get(block.kind, ())])
            for block in blocks(bytes(chain).decode())
        ]

    def run(self) -> Tensor:
        maps = self.tensors[0]
        for block in self._blocks:
            maps = block(maps)
        return maps

    def copy(self) -> None:
        self.tensors[-1].copy_(self.results)


def _call(torch: ModuleType, b: Block, tensors: list) -> Callable[[Tensor], Tensor]:
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
