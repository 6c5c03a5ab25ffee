"""PyTorch on FP16 chains with the channels last: eager, one call for each block, and compiled (torch.compile)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np

from kernels.conv.half.reference import TOLERANCE
from kernels.fusion.half import common
from kernels.fusion.half.reference import rounded_scale
from kernels.fusion.half.shape import HalfChainShape
from kernels.fusion.shape import TENSORS, Block, blocks
from kernels.i18n import mark
from kernels.libraries import torch as torch_library
from kernels.libraries.torch import Call, Tensor
from kernels.model.program import INPUT, LibraryCall, Program, Tiles
from kernels.model.rung import TENSOR_CORES, Cost, Rung


class Chain(Call):
    """A call that applies the blocks of a chain to x and their tensors, in order, with the channels last.

    The last argument is the chain's text, as bytes. cuDNN tries its algorithms before the first run and keeps the fastest
    (torch.backends.cudnn.benchmark).
    """

    def __init__(self, x, *rest):
        *tensors, y, chain = rest
        super().__init__(x, *tensors, y)
        # Of the same memory, with the extents in PyTorch's order: its layout channels_last.
        self._maps = [t.permute(0, 3, 1, 2) if t.ndim == 4 else t for t in self.tensors]
        self._function = self.function(blocks(bytes(chain).decode()))

    def function(self, chain: Sequence[Block]) -> Callable[..., Tensor]:
        return _function(self.torch, chain)

    def prepare(self) -> None:
        self.run()  # tries the algorithms, compiles

    def run(self) -> Tensor:
        with self.torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            return self._function(*self._maps[:-1])

    def copy(self) -> None:
        self._maps[-1].copy_(self.results)


class CompiledChain(Chain):
    """The same call, compiled by torch.compile for these shapes."""

    def function(self, chain: Sequence[Block]) -> Callable[..., Tensor]:
        self.torch.compiler.reset()  # it would not compile more than eight chains
        return self.torch.compile(_function(self.torch, chain), dynamic=False)


def _function(torch: ModuleType, chain: Sequence[Block]) -> Callable[..., Tensor]:
    """Returns the chain as a function of x and the tensors of its blocks."""
    F = torch.nn.functional

    def apply(x, *tensors):
        remaining = iter(tensors)
        for b in chain:
            given = [next(remaining) for _ in TENSORS.get(b.kind, ())]
            if b.kind == "conv":
                x = F.conv2d(x, given[0], stride=b.stride, padding=b.pad)
            elif b.kind == "bn":
                gamma, beta, mean, var = given
                x = F.batch_norm(x, mean, var, gamma, beta, eps=b.eps)
            elif b.kind == "bias":
                x = x + given[0].to(x.dtype)[:, None, None]
            elif b.kind == "add":
                x = x + given[0]
            else:
                x = F.relu(x)
        return x

    return apply


def _build(call: type[Chain]) -> Callable[[HalfChainShape, Tiles], Program]:
    def build(s: HalfChainShape, tiles: Tiles) -> Program:
        buffers = common.buffers(s)
        inputs = (b.name for b in buffers if b.role == INPUT)
        step = LibraryCall("torch_chain", (*inputs, "y", np.bytes_(s.chain.encode())), None, call)
        return Program(buffers, (step,))

    return build


def rules(s: HalfChainShape, tiles: Tiles):
    yield from common.chain_rules(s)


def cost(s: HalfChainShape, program: Program) -> Cost:
    """Returns the FLOPs of the blocks and the bytes of the tensors. PyTorch's workspace is not known ahead."""
    return Cost(s.flops, s.bytes, None)


def _rung(name: str, title: str, idea: str, call: type[Chain]) -> Rung:
    return Rung(
        name=f"fusion-fp16/{name}",
        title=title,
        idea=idea,
        build=_build(call),
        cost=cost,
        rules=rules,
        tolerance=TOLERANCE,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        scale=rounded_scale,
        engines=("cuda",),
        units=TENSOR_CORES,
    )


RUNGS = (
    _rung(
        "torch",
        mark("PyTorch, eager, channels last"),
        mark("PyTorch's own functions, one call per block. cuDNN's fastest algorithm computes the convolution."),
        Chain,
    ),
    _rung(
        "torch-compile",
        mark("PyTorch, compiled, channels last"),
        mark("torch.compile merges the pointwise blocks. cuDNN's fastest algorithm computes the convolution."),
        CompiledChain,
    ),
)
