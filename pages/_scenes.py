"""The scenes of the lessons as pages ask for them: built once for equal inputs, for all readers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import ModuleType

import numpy as np

from kernels.engines import emulator
from kernels.ladders import find
from kernels.ladders.gemm_parts import buffers
from kernels.program import RuleError
from kernels.shapes import GemmShape
from visuals.inputs import Inputs, outputs
from visuals.scene import Scene
from visuals.scenes import direct_warps, fragment, im2col_warps
from visuals.scenes.direct import direct_scene, part_shown
from visuals.scenes.fragment import fragment_scene
from visuals.scenes.gemm import gemm_scene
from visuals.scenes.gemm_plan import why_not as gemm_why_not
from visuals.scenes.gemm_warps import warps_scene
from visuals.scenes.im2col import Part, im2col_scene, part_of

MOST_KEPT = 64  # scenes of a megabyte at most, most of them a hundredth of that
Ordered = tuple[Scene, str]  # a scene, and why it is not in the order asked for: "" where it is
IM2COL_ORDERS = {
    "explaining": "one column after the other, copied and multiplied at once",
    "warps": "store by store as the emulator executed block 0 of the CUDA kernel",
}
DIRECT_ORDERS = {
    "explaining": "one thread after the other, the first of them product by product",
    "warps": "request by request as the emulator executed block 0 of the CUDA kernel",
}


@lru_cache(maxsize=MOST_KEPT)
def im2col(inputs: Inputs, order: str) -> Ordered:
    """The scene in one of IM2COL_ORDERS."""
    part = part_of(inputs.shape, inputs.planes()[0])
    return _in_order(order, inputs, part, im2col_scene, "conv/im2col-gemm", im2col_warps)


@lru_cache(maxsize=MOST_KEPT)
def direct(inputs: Inputs, order: str) -> Ordered:
    """The scene in one of DIRECT_ORDERS."""
    part = part_shown(inputs.shape, inputs.planes()[0])
    return _in_order(order, inputs, part, direct_scene, "conv/direct", direct_warps)


def _in_order(
    order: str, inputs: Inputs, part: Part, draw: Callable[..., Scene], name: str, warps: ModuleType
) -> Ordered:
    """The part of a convolution as `draw` plays it, or in the order in which the warps of the rung `name` ran."""
    shape = inputs.shape
    y = outputs(inputs, part.K, part.P, part.Q, part.p, part.q)
    explained = draw(shape, part, inputs.x(1, part.C), inputs.w(part.K, part.C), y)
    if order == "explaining":
        return explained, ""
    if reason := warps.why_not(shape, part):
        return explained, reason
    rung = find(name)
    program = rung.build(shape, rung.default_tiles)
    trace, counters = emulator.trace_launch(program, 0, {"x": inputs.x(), "w": inputs.w()})
    return warps.in_warp_order(explained, shape, trace, counters, program.steps[0].grid[0]), ""


GEMM_ORDERS = {
    "explaining": "one block, what it loads and then the terms of its sums one after the other",
    "warps": "what one warp of block 0 asks of memory, request by request, as the emulator executed it",
}
FRAGMENTS = {"fragments": "which lane of a warp holds what in the first mma.sync m16n8k16 of block 0"}
NEAR = 512  # rows of A and columns of B, of which block 0 has the first


def gemm_orders(rung: str) -> dict[str, str]:
    """The orders in which a rung of the GEMM ladder can be played, and what each is."""
    return GEMM_ORDERS | FRAGMENTS if rung == "gemm/mma-sync" else GEMM_ORDERS


@lru_cache(maxsize=MOST_KEPT)
def gemm(
    shape: GemmShape, rung: str, tiles: tuple[tuple[str, int], ...], order: str
) -> tuple[Scene | None, str]:
    """The scene of a rung in one of its gemm_orders(), None where it has none; and why it is not what was asked for."""
    if reason := gemm_why_not(shape, rung, dict(tiles)):
        return None, reason
    given = _matrices(shape)
    if order == "fragments":
        A, B, *_ = given
        return fragment_scene(_corner(A, fragment.M, fragment.K), _corner(B, fragment.K, fragment.N)), ""
    if order == "warps":
        try:
            return warps_scene(shape, rung, dict(tiles), *given), ""
        except RuleError as error:  # no compiler here for these tile sizes
            return gemm_scene(shape, rung, dict(tiles), *given), f"{error}. Until then: the explaining order."
    return gemm_scene(shape, rung, dict(tiles), *given), ""


def _corner(matrix: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """Its first rows and columns; zeros where it has none, as the kernel puts them."""
    there = matrix[:rows, :cols]
    return np.pad(there, ((0, rows - there.shape[0]), (0, cols - there.shape[1])))


def _matrices(shape: GemmShape) -> list[np.ndarray]:
    """A, B and, where beta is not 0, C0: small whole numbers in all that block 0 reads, and beyond that zeros, for
    which no memory is taken."""
    random, found = np.random.default_rng(0), []
    read = {"A": np.s_[:NEAR], "B": np.s_[:, :NEAR], "C0": np.s_[:NEAR, :NEAR]}
    for buffer in buffers(shape):
        if buffer.name in read:
            matrix = np.zeros(buffer.shape, buffer.dtype)
            near = matrix[read[buffer.name]]
            near[:] = random.integers(-4, 5, near.shape, np.int8)
            found.append(matrix)
    return found
