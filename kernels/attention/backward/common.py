"""Buffers, arguments, cost and rules that all rungs of attention's backward pass share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from kernels.attention.backward import cpu
from kernels.attention.backward.shape import PRODUCTS, AttentionBackwardShape
from kernels.attention.common import HALVES, row_rules
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.launch import ceil, launch, rung_factory
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Arg, Buffer, Launch, Program
from kernels.model.rung import Cost

TOLERANCE = 5e-6  # as in the forward pass; the error scale holds what is particular to each gradient
RECOMPUTED = PRODUCTS + 2  # products of a rung with a kernel for dQ of its own: S and dP once more
ROW_WARPS = 4  # in a block of kernels/attention/cuda/07_row_dots.cu, one row per warp
SEQUENCE = "Q", "K", "V", "dO", "L", "D"  # the first arguments of every kernel that computes P and dS itself


def buffers(s: AttentionBackwardShape, *, dots: bool = True) -> tuple[Buffer, ...]:
    """Returns the buffers of the inputs, of the gradients and, if `dots`, of D."""
    element = INPUT_DTYPE[s.dtype]
    inputs = (Buffer(name, INPUT, s.qkv_shape, element) for name in ("Q", "K", "V", "dO", "O"))
    outputs = (Buffer(name, OUTPUT, s.qkv_shape, element) for name in ("dQ", "dK", "dV"))
    workspace = (Buffer("D", WORKSPACE, s.row_shape),) if dots else ()
    return (*inputs, Buffer("L", INPUT, s.row_shape), *outputs, *workspace)


def row_dots(s: AttentionBackwardShape) -> Launch:
    """Returns the launch that computes D, with which every program of ours begins."""
    rows = s.heads * s.N
    args = "dO", "O", "D", np.int32(rows), np.int32(s.d)
    defines = {"WARPS": ROW_WARPS} | ({"BF16": int(s.dtype == "bf16")} if s.dtype in HALVES else {})
    grid = (ceil(rows, ROW_WARPS),)
    return launch("attention/07_row_dots.cu", grid, 32 * ROW_WARPS, args, cpu.row_dots, defines)


def arguments(s: AttentionBackwardShape, *gradients: str) -> tuple[Arg, ...]:
    """Returns (Q, K, V, dO, L, D, gradients ..., N, d, scale, causal)."""
    return (*SEQUENCE, *gradients, np.int32(s.N), np.int32(s.d), np.float32(s.factor), np.int32(s.causal))


def cost(products: int, s: AttentionBackwardShape, program: Program) -> Cost:
    """Returns the FLOPs of so many products over the visible pairs, and the HBM bytes if caches are perfect.

    Inputs are read once and outputs are written once. The workspace is written and read once.
    """
    workspace = program.nbytes(WORKSPACE)
    return Cost(2 * products * s.pairs * s.d, s.bytes + 2 * workspace, workspace)


def library_cost(s: AttentionBackwardShape, program: Program) -> Cost:
    """Returns the FLOPs of the definition and the bytes of the tensors. PyTorch's workspace is not known ahead."""
    return Cost(s.flops, s.bytes, None)


def dot_rules(s: AttentionBackwardShape) -> Iterator[str]:
    """Yields the rule of the kernel that computes D: its rows are numbered by an int."""
    yield from row_rules(s, ROW_WARPS)


rung = rung_factory("attention-backward", partial(cost, PRODUCTS), TOLERANCE)
rung_of_two_passes = rung_factory("attention-backward", partial(cost, RECOMPUTED), TOLERANCE)
