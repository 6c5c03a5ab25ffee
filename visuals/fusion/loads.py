"""The sectors that the warps of a pointwise kernel load: bias, batch norm, ReLU, add, and any of them in one kernel.

A lane loads four neighbouring values as one float4, so a warp loads 128 neighbours, and the next 128 after a stride of the
whole grid (kernels/fusion/cuda/02_bias.cu; kernels.fusion.codegen writes the others). A vector with a number for each map
is loaded once for four values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kernels.fusion.common import Part
from kernels.fusion.shape import ChainShape
from kernels.model.launch import ceil
from kernels.model.program import Program

FOUR, LANES = 4, 32
SECTOR = 32  # bytes
PER_SECTOR = SECTOR // 4  # floats


@dataclass(frozen=True)
class Loads:
    """The bytes of the sectors that a launch loads, and those of its block 0."""

    bytes: int
    bytes_of_block: int


def loads_of(s: ChainShape, part: Part, program: Program) -> Loads | None:
    """Returns the loads of a launch; None for one with a convolution or a pool, or with maps of a size that 4 does not
    divide: there a lane may load the numbers of four maps."""
    stages = [s.stages[n] for n in part.blocks]
    _, maps, *extents = stages[-1].after
    plane = math.prod(extents)
    if not all(stage.block.pointwise for stage in stages) or plane % FOUR:
        return None
    count = math.prod(stages[-1].after)
    shapes = {b.name: b.shape for b in program.buffers}
    *inputs, _ = [shapes[a] for a in part.launch.args if isinstance(a, str)]
    full = sum(len(shape) > 1 for shape in inputs)
    vectors = len(inputs) - full
    (block, *_), (grid, *_) = part.launch.block, part.launch.grid
    in_block, in_grid = block // LANES, grid * block // LANES
    warps = ceil(count, FOUR * LANES)
    of_block = np.arange(0, warps, in_grid)[:, None] + np.arange(in_block)
    of_block = of_block[of_block < warps]
    return Loads(
        SECTOR * (full * ceil(count, PER_SECTOR) + vectors * _of_all(count, plane, maps)),
        SECTOR * (full * _neighbours(of_block, count) + vectors * _maps(of_block, count, plane, maps)),
    )


@lru_cache(maxsize=64)
def _of_all(count: int, plane: int, maps: int) -> int:
    """Returns `_maps` of all warps."""
    return _maps(np.arange(ceil(count, FOUR * LANES)), count, plane, maps)


def _neighbours(warps: np.ndarray, count: int) -> int:
    """Returns the sectors of the values that warps load, of `count` in all."""
    first = FOUR * LANES * warps
    return int((-(-np.minimum(first + FOUR * LANES, count) // PER_SECTOR) - first // PER_SECTOR).sum())


def _maps(warps: np.ndarray, count: int, plane: int, maps: int) -> int:
    """Returns the sectors of a vector [maps] that warps load, each lane the number of the map of its four values."""
    first = FOUR * LANES * warps
    last = np.minimum(first + FOUR * (LANES - 1), count - FOUR)
    a, b = first // plane, last // plane  # planes of all images
    all_sectors = ceil(maps, PER_SECTOR)
    from_, to = a % maps // PER_SECTOR, b % maps // PER_SECTOR
    wraps = b % maps < a % maps
    found = np.where(wraps, all_sectors - from_ + to + 1, to - from_ + 1)
    return int(np.minimum(np.where(b - a >= maps, all_sectors, found), all_sectors).sum())
