"""Buffers that all rungs of attention with L share."""

from __future__ import annotations

from kernels.attention.lse.shape import LseShape
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.program import INPUT, OUTPUT, Buffer

TENSORS = "Q", "K", "V", "O", "L"


def buffers(s: LseShape) -> tuple[Buffer, ...]:
    """Returns the buffers of Q, K, V and O [B, H, N, d], and of L [B, H, N]."""
    inputs = (Buffer(name, INPUT, s.qkv_shape, INPUT_DTYPE[s.dtype]) for name in "QKV")
    return (*inputs, Buffer("O", OUTPUT, s.qkv_shape, INPUT_DTYPE[s.dtype]), Buffer("L", OUTPUT, s.row_shape))
