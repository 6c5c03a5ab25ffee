"""Structs, buffers, bias and ReLU, cost and rules that all rungs of the convolution ladder share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.conv import cpu
from kernels.conv.shape import ConvShape, padded_text
from kernels.i18n import tr
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, Launch, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, broken, index_rules, max_rules
from kernels.model.rung import Cost

CONV_STRUCT = np.dtype(
    [(name, np.int32) for name in "N C H W K R S P Q u v pad_h pad_w dilation_h dilation_w flip".split()]
)
LAYER_STRUCT = np.dtype([(name, np.int32) for name in ("groups", "bias", "relu")])
FINISH_BLOCK = 256

# The error of a float32 sum grows at worst with its length. 1e-5 of the sum of absolute products is
# above the errors measured at C*R*S = 4,608 terms and below the smallest share of one lost tap.
TOLERANCE = 1e-5


def struct(s: ConvShape) -> np.void:
    """Convert a ConvShape to the kernels' `struct Conv` (kernels/conv/cuda/conv.cuh)."""
    return np.array([tuple(int(getattr(s, name)) for name in CONV_STRUCT.fields or ())], CONV_STRUCT)[0]


def layer(s: ConvShape) -> np.void:
    """Returns groups, bias and relu as the kernels' `struct Layer` (kernels/conv/cuda/layer.cuh)."""
    return np.array([tuple(getattr(s, name) for name in LAYER_STRUCT.fields or ())], LAYER_STRUCT)[0]


def buffers(s: ConvShape) -> tuple[Buffer, ...]:
    """Returns x [N,C,H,W], w [K,C/groups,R,S], y [N,K,P,Q], and b [K] if there is a bias."""
    b = (Buffer("b", INPUT, (s.K,)),) if s.bias else ()
    return Buffer("x", INPUT, s.x_shape), Buffer("w", INPUT, s.w_shape), *b, Buffer("y", OUTPUT, s.y_shape)


def bias_name(s: ConvShape) -> str:
    """Returns the name of the buffer passed to a kernel as b: w if no b is read."""
    return "b" if s.bias else "w"


def finish(s: ConvShape) -> tuple[Launch, ...]:
    """Returns the step that adds the bias and applies ReLU to y in place, after kernels that do neither.

    Empty if the shape has neither bias nor ReLU.
    """
    if not (s.bias or s.relu):
        return ()
    grid, args = (ceil(s.K * s.PQ, FINISH_BLOCK), s.N), (bias_name(s), "y", struct(s), layer(s))
    return (launch("conv/11_bias_relu.cu", grid, FINISH_BLOCK, args, cpu.bias_relu),)


def finish_rules(s: ConvShape) -> Iterator[str]:
    """Yields the rules of the step that `finish` adds, if it adds one."""
    if s.bias or s.relu:
        yield from max_rules(tr("N (grid.y, with bias or ReLU)"), s.N, MAX_GRID_YZ)
        yield from index_rules({"K*P*Q": s.K * s.PQ}, FINISH_BLOCK)


def cost(s: ConvShape, program: Program) -> Cost:
    """Returns the FLOPs of direct convolution and the HBM bytes if caches are perfect.

    The inputs are read once and the output is written once. The workspace is written and read once. If a step adds
    bias or ReLU, the output is read and written once more.
    """
    workspace = program.nbytes(WORKSPACE)
    output_again = 2 * program.nbytes(OUTPUT) * any(step.name == "bias_relu" for step in program.steps)
    return Cost(s.flops, s.bytes + 2 * workspace + output_again, workspace)


# -- rules: each yields a sentence for each rule that a shape or a choice of tiles breaks ----------------
def ungrouped_rules(s: ConvShape) -> Iterator[str]:
    if s.groups > 1:
        yield tr("groups must be 1, got {groups}", groups=s.groups)


def equal_padding_rules(s: ConvShape) -> Iterator[str]:
    """Yields the rule of cuDNN, which pads both ends of an axis equally and derives the output's size from that.

    A stride may leave the output as it is with equal padding. Then cuDNN computes the same convolution.
    """
    for axis, name, size, equal in (
        ("h", "P", s.P, (s.padded_h - s.extra_h - s.span_h) // s.u + 1),
        ("w", "Q", s.Q, (s.padded_w - s.extra_w - s.span_w) // s.v + 1),
    ):
        if size != equal:
            yield tr(
                "cuDNN pads both ends equally: extra_{axis} must leave {name} = {equal}, got {name} = {size}",
                axis=axis,
                name=name,
                equal=equal,
                size=size,
            )


def padded_sides(s: ConvShape) -> tuple[tuple[str, int], tuple[str, int]]:
    """Returns (formula, size) of the padded input's rows and columns."""
    return (padded_text("H", "h", s.extra_h), s.padded_h), (padded_text("W", "w", s.extra_w), s.padded_w)


def multiple_rules(tiles: Tiles, *pairs: tuple[str, int]) -> Iterator[str]:
    for name, divisor in pairs:
        if tiles[name] % divisor:
            yield broken(f"{name} % {divisor} == 0", tiles[name])
