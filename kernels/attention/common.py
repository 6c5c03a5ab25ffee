"""What all rungs of the attention ladder share: buffers, arguments, cost, and the rules in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kernels.attention.reference import TOLERANCE as TOLERANCE
from kernels.attention.shape import AttentionShape
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.launch import ceil
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Arg, Buffer, Program
from kernels.model.rules import MOST_GRID_YZ, dtype_rules, most_rules
from kernels.model.rung import Cost
from kernels.model.shape import INT_MAX

MOST_D = 128
HALVES = ("fp16", "bf16")


def buffers(s: AttentionShape) -> tuple[Buffer, ...]:
    """Q, K, V and O [B, H, N, d]."""
    inputs = (Buffer(name, INPUT, s.qkv_shape, INPUT_DTYPE[s.dtype]) for name in "QKV")
    return (*inputs, Buffer("O", OUTPUT, s.qkv_shape, INPUT_DTYPE[s.dtype]))


def square_buffers(s: AttentionShape) -> tuple[Buffer, ...]:
    """What flash attention does without: S [B, H, N, N], float32, and P, which is multiplied with V and has its type."""
    square = s.B, s.H, s.N, s.N
    return Buffer("S", WORKSPACE, square), Buffer("P", WORKSPACE, square, INPUT_DTYPE[s.dtype])


def arguments(s: AttentionShape) -> tuple[Arg, ...]:
    """(Q, K, V, O, N, d, scale, causal) as every kernel takes them that does all of attention."""
    return ("Q", "K", "V", "O", np.int32(s.N), np.int32(s.d), np.float32(s.factor), np.int32(s.causal))


def cost(s: AttentionShape, program: Program) -> Cost:
    """FLOPs of the pairs that are seen; HBM bytes if caches are perfect: inputs in, output out, S and P each written
    and read where they are."""
    workspace = program.nbytes(WORKSPACE)
    return Cost(s.flops, s.bytes + 2 * workspace, workspace)


def cost_of_all(s: AttentionShape, program: Program) -> Cost:
    """The same where hidden pairs are multiplied too."""
    seen = cost(s, program)
    return Cost(s.with_(causal=0).flops, seen.bytes, seen.workspace_bytes)


# -- rules: each yields, in words, what a shape or a choice of tiles breaks -----------------------------
def common_rules(s: AttentionShape, ahead: int = 1, dtypes: Sequence[str] = ("fp32",)) -> Iterator[str]:
    """What holds for every rung: its types, a grid of blocks for each head, and no index of a tile that sticks out,
    of `ahead` queries or keys, may pass 2^31."""
    yield from dtype_rules(s, *dtypes)
    yield from most_rules("B*H (grid)", s.heads, MOST_GRID_YZ)
    for name, extent in (("N", s.N), ("d", s.d)):
        if extent > INT_MAX - ahead:
            yield f"{name} must stay below 2^31 - {ahead}, got {extent}"


def head_rules(s: AttentionShape) -> Iterator[str]:
    """A row of a head must fit a thread block's tiles."""
    yield from most_rules("d", s.d, MOST_D)


def row_rules(s: AttentionShape, ahead: int) -> Iterator[str]:
    """Rows of all heads are numbered by an int, `ahead` at a time."""
    if s.heads * s.N > INT_MAX - ahead:
        yield f"B*H*N must stay below 2^31 - {ahead}, got {s.heads * s.N}"


def square_rules(s: AttentionShape, tile: int, name: str) -> Iterator[str]:
    """Blocks of `tile` queries along grid.y."""
    if ceil(s.N, tile) > MOST_GRID_YZ:
        yield f"N <= {MOST_GRID_YZ}*{name} (grid.y), got {s.N}"
    yield from row_rules(s, tile)
