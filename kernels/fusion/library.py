"""fusion/torch: PyTorch, eager: one call, with one or more launches, for each block."""

from __future__ import annotations

import math

import numpy as np

from kernels.fusion import common, torch_chain
from kernels.fusion.reference import TOLERANCE, library_scale
from kernels.fusion.shape import ChainShape
from kernels.i18n import mark
from kernels.libraries import torch as torch_library
from kernels.model.program import INPUT, LibraryCall, Program, Tiles
from kernels.model.rung import Cost, Rung

NAME = "fusion/torch"


def build(s: ChainShape, tiles: Tiles) -> Program:
    """Returns a program with one call for the chain, passed as text. PyTorch allocates the maps between blocks."""
    buffers = common.buffers(s)
    inputs = (b.name for b in buffers if b.role == INPUT)
    call = LibraryCall("torch_chain", (*inputs, "y", np.bytes_(s.chain.encode())), None, torch_chain.Chain)
    return Program(buffers, (call,))


def cost(s: ChainShape, program: Program) -> Cost:
    """Returns the FLOPs of the blocks and the bytes that they move one by one. The workspace is not known ahead."""
    maps = sum(math.prod(stage.before) + math.prod(stage.after) for stage in s.stages)
    tensors = sum(math.prod(shape) for stage in s.stages for shape in stage.tensors.values())
    return Cost(s.flops, 4 * int(maps + tensors), None)


RUNGS = (
    Rung(
        name=NAME,
        title=mark("PyTorch, eager"),
        idea=mark("PyTorch's own functions, one call per block. cuDNN computes convolutions in FP32 (TF32 off)."),
        build=build,
        cost=cost,
        rules=common.rules,
        tolerance=TOLERANCE,
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        scale=library_scale,
        engines=("cuda",),
    ),
)
