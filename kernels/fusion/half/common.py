"""Buffers, cost and rules that the rungs of fused FP16 chains share."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.half.common import channel_rules, extent_rules
from kernels.fusion.half.shape import HALVES, HalfChainShape, conv_shape
from kernels.i18n import tr
from kernels.model.program import INPUT, OUTPUT, Buffer, Program
from kernels.model.rung import Cost


def buffers(s: HalfChainShape) -> tuple[Buffer, ...]:
    """Returns x [N,H,W,C], the tensors of every block (ChainShape.tensors; maps and weights with the channels last), y
    [N,P,Q,K]. Parameters of bias and batch norm are float32 [K]. A variance is positive."""
    tensors = (
        Buffer(
            name,
            INPUT,
            last(stage.tensors[tensor]),
            "float16" if tensor in HALVES else "float32",
            positive=tensor == "var",
        )
        for stage, names in zip(s.stages, s.tensors, strict=True)
        for tensor, name in names.items()
    )
    return (Buffer("x", INPUT, last(s.x_shape), "float16"), *tensors, Buffer("y", OUTPUT, last(s.y_shape), "float16"))


def last(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Returns extents [N, C, H, W] with the channels last; others unchanged."""
    return (extents[0], *extents[2:], extents[1]) if len(extents) == 4 else extents


def cost(s: HalfChainShape, program: Program) -> Cost:
    """Returns the FLOPs of the blocks and the bytes of the tensors, each moved once."""
    return Cost(s.flops, s.bytes, 0)


def chain_rules(s: HalfChainShape) -> Iterator[str]:
    """Yields the rules on the blocks: one convolution and what is applied to each of its sums."""
    if s.blocks[0].kind != "conv" or any(not block.pointwise for block in s.blocks[1:]):
        yield tr("the chain must be a convolution and pointwise blocks after it (bias, bn, relu, add)")


def kernel_rules(s: HalfChainShape, rows: int) -> Iterator[str]:
    """Yields the rules of our kernels on channels and extents. `rows`: output pixels of a block."""
    yield from chain_rules(s)
    conv = conv_shape(s.stages[0]) if s.blocks[0].kind == "conv" else None
    if conv:
        yield from channel_rules(conv)
        yield from extent_rules(conv, rows)
