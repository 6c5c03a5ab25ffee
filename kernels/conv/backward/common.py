"""Cost and rules that the ladders of convolution's two gradients share."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.common import equal_padding_rules
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.model.program import OUTPUT, WORKSPACE, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, index_rules, max_rules
from kernels.model.rung import Cost

BLOCKS = (256, 64, 128, 512)
TILES = (16, 8, 32)


def cost(s: ConvShape, program: Program) -> Cost:
    """Returns the FLOPs of the definition, which are those of the forward pass, and the bytes if caches are perfect.

    Each tensor moves once, the workspace twice. If a kernel adds to the output by atomics, the output is set to 0,
    read and written.
    """
    workspace = program.nbytes(WORKSPACE)
    zeroed = program.nbytes(OUTPUT) * any(step.name == "zero" for step in program.steps)
    return Cost(s.flops, s.bytes + 2 * workspace + 2 * zeroed, workspace)


def library_cost(s: ConvShape, program: Program) -> Cost:
    """Returns the FLOPs of the definition and the bytes of the tensors. cuDNN's workspace is not known ahead."""
    return Cost(s.flops, s.bytes, None)


def plain_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rule on bias and ReLU: their gradients are other operations."""
    for name, value in (("bias", s.bias), ("relu", s.relu)):
        if value:
            yield tr("{name} must be 0: its gradient is an operation of its own, got {got}", name=name, got=value)


def library_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of cuDNN's algorithms of both gradients."""
    yield from plain_rules(s, tiles)
    yield from equal_padding_rules(s)


def image_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of kernels with one thread per pixel of an image and one image per grid.y."""
    yield from plain_rules(s, tiles)
    yield from max_rules("N (grid.y)", s.N, MAX_GRID_YZ)
    yield from index_rules({"C*H*W": s.C * s.H * s.W, "R*S": s.R * s.S}, tiles["BLOCK"], "BLOCK")
