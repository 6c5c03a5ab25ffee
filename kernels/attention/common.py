"""Buffers, arguments, cost and rules that all rungs of the attention ladder share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kernels.attention.reference import TOLERANCE as TOLERANCE
from kernels.attention.shape import SelfAttentionShape
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.launch import ceil
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Arg, Buffer, Program
from kernels.model.rules import MAX_GRID_YZ, broken, dtype_rules, index_rules, max_rules
from kernels.model.rung import Cost

MAX_D = 128
HALVES = ("fp16", "bf16")


def buffers(s: SelfAttentionShape) -> tuple[Buffer, ...]:
    """Returns the buffers of Q, K, V and O [B, H, N, d]."""
    inputs = (Buffer(name, INPUT, s.qkv_shape, INPUT_DTYPE[s.dtype]) for name in "QKV")
    return (*inputs, Buffer("O", OUTPUT, s.qkv_shape, INPUT_DTYPE[s.dtype]))


def square_buffers(s: SelfAttentionShape) -> tuple[Buffer, ...]:
    """Return S and P [B, H, N, N], which flash attention does not need.

    S is float32. P is multiplied with V and has V's type.
    """
    score_shape = s.B, s.H, s.N, s.N
    return Buffer("S", WORKSPACE, score_shape), Buffer("P", WORKSPACE, score_shape, INPUT_DTYPE[s.dtype])


def arguments(s: SelfAttentionShape) -> tuple[Arg, ...]:
    """Returns (Q, K, V, O, N, d, scale, causal), the arguments of every kernel that computes all of attention."""
    return ("Q", "K", "V", "O", np.int32(s.N), np.int32(s.d), np.float32(s.factor), np.int32(s.causal))


def cost(s: SelfAttentionShape, program: Program) -> Cost:
    """Returns the FLOPs of the visible pairs and the HBM bytes if caches are perfect.

    The inputs are read once and the output is written once. S and P, if used, are each written and read once.
    """
    workspace = program.nbytes(WORKSPACE)
    return Cost(s.flops, s.bytes + 2 * workspace, workspace)


def cost_of_all(s: SelfAttentionShape, program: Program) -> Cost:
    """Returns the cost if hidden pairs are multiplied too."""
    visible = cost(s, program)
    return Cost(s.with_(causal=0).flops, visible.bytes, visible.workspace_bytes)


# -- rules: each yields a sentence for each rule that a shape or a choice of tiles breaks ----------------
def common_rules(s: SelfAttentionShape, ahead: int = 1, dtypes: Sequence[str] = ("fp32",)) -> Iterator[str]:
    """Yields the rules of every rung for plain self-attention: its types, a grid of blocks for each head, and indices below
    2^31. A tile may extend beyond the matrix by up to `ahead` queries or keys.
    """
    yield from plain_rules(s)
    yield from dtype_rules(s, *dtypes)
    yield from max_rules("B*H (grid)", s.heads, MAX_GRID_YZ)
    yield from index_rules({"N": s.N, "d": s.d}, ahead)


def plain_rules(s: SelfAttentionShape) -> Iterator[str]:
    """Yields a rule for each field that is not that of plain self-attention."""
    rules = {
        "M": "M == N",
        "kv_heads": "kv_heads == H",
        "window": "window == 0 (none)",
        "softcap": "softcap == 0 (none)",
        "mask": "mask == none",
    }
    for name, value in s.variants.items():
        yield broken(rules[name], f"{value:g}" if isinstance(value, float) else value)


def head_rules(s: SelfAttentionShape) -> Iterator[str]:
    """Yields a rule if a row of a head does not fit a thread block's tiles."""
    yield from max_rules("d", s.d, MAX_D)


def row_rules(s: SelfAttentionShape, ahead: int) -> Iterator[str]:
    """Yields a rule if the rows of all heads, numbered `ahead` at a time, exceed an int."""
    yield from index_rules({"B*H*N": s.heads * s.N}, ahead)


def square_rules(s: SelfAttentionShape, tile: int, name: str) -> Iterator[str]:
    """Yields the rules for blocks of `tile` queries along grid.y."""
    if ceil(s.N, tile) > MAX_GRID_YZ:
        yield broken(f"N <= {MAX_GRID_YZ}*{name} (grid.y)", s.N)
    yield from row_rules(s, tile)
