"""Buffers, cost and rules that the rungs of the FP16 convolution share."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.half.shape import HalfShape
from kernels.i18n import tr
from kernels.model.program import INPUT, OUTPUT, Buffer, Program, Tiles
from kernels.model.rules import extent_multiple_rules, index_rules
from kernels.model.rung import Cost

PIECE = 8  # channels in 16 bytes


def buffers(s: HalfShape) -> tuple[Buffer, ...]:
    """Returns x [N,H,W,C], w [K,R,S,C/groups] and y [N,P,Q,K], all float16."""
    return (
        Buffer("x", INPUT, s.x_shape, "float16"),
        Buffer("w", INPUT, s.w_shape, "float16"),
        Buffer("y", OUTPUT, s.y_shape, "float16"),
    )


def cost(s: HalfShape, program: Program) -> Cost:
    """Returns the FLOPs of the definition and the bytes of the tensors, each moved once."""
    return Cost(s.flops, s.bytes, 0)


def plain_rules(s: HalfShape) -> Iterator[str]:
    """Yields the rules on groups, bias and ReLU: this ladder is of the convolution alone."""
    if s.groups > 1:
        yield tr("groups must be 1, got {groups}", groups=s.groups)
    for name, value in (("bias", s.bias), ("relu", s.relu)):
        if value:
            yield tr("{name} must be 0 in FP16, got {got}", name=name, got=value)


def channel_rules(s: HalfShape) -> Iterator[str]:
    """Yields a rule if the channels of a pixel or of a filter do not begin at multiples of 16 bytes."""
    yield from extent_multiple_rules(PIECE, C=s.C, K=s.K)


def extent_rules(s: HalfShape, rows: int) -> Iterator[str]:
    """Yields the indices that leave an int. `rows`: output pixels of a block."""
    yield from index_rules({"N*H*W*C": s.elements["x"], "R*S*C": s.CRS}, 0)
    yield from index_rules({"N*P*Q": s.pixels}, rows, "BM")


def kernel_rules(s: HalfShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of every kernel of this project for FP16."""
    yield from plain_rules(s)
    yield from channel_rules(s)
    yield from extent_rules(s, tiles["BM"])
