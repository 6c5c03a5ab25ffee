"""fusion/torch: PyTorch beside ours, eager: a call, and so a launch or more, for each block."""

from __future__ import annotations

import numpy as np

from kernels.fusion import common as parts
from kernels.fusion import torch_chain
from kernels.fusion.reference import TOLERANCE, library_scale
from kernels.fusion.shape import ChainShape
from kernels.libraries import torch as torch_library
from kernels.model.program import INPUT, LibraryCall, Program, Tiles
from kernels.model.rung import Cost, Rung

NAME = "fusion/torch"


def build(s: ChainShape, tiles: Tiles) -> Program:
    """One call for the chain, which is handed on as text: the maps between blocks are PyTorch's own."""
    held = parts.buffers(s)
    inputs = (b.name for b in held if b.role == INPUT)
    call = LibraryCall("torch_chain", (*inputs, "y", np.bytes_(s.chain.encode())), None, torch_chain.Chain)
    return Program(held, (call,))


def cost(s: ChainShape, program: Program) -> Cost:
    """FLOPs of the blocks, and bytes as they move block by block, eager; what it takes beside them it does not say
    ahead."""
    maps = sum(np.prod(stage.before) + np.prod(stage.after) for stage in s.stages)
    tensors = sum(np.prod(shape) for stage in s.stages for shape in stage.tensors.values())
    return Cost(s.flops, 4 * int(maps + tensors), None)


RUNGS = (
    Rung(
        name=NAME,
        title="PyTorch, eager",
        idea="PyTorch's own functions, a call a block, convolutions by cuDNN in FP32 (TF32 off).",
        build=build,
        cost=cost,
        rules=parts.rules,
        tolerance=TOLERANCE,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        scale=library_scale,
        engines=("cuda",),
    ),
)
