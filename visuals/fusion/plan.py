"""The data of a chain's scene: the shape that fits the stage, and small whole numbers as inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from kernels.fusion.shape import ChainShape
from kernels.model.shape import ShapeError

Arrays = Mapping[str, np.ndarray]
SIDE, MAPS = 4, 2  # rows and columns of a scaled-down map, or one more if they are odd; maps
FOLD = "fold"
SMALL = 128  # an x of up to so many values is not scaled down
GAMMAS, SQUARES = (0.5, 1, 1.5, 2), (0.25, 1, 4)


# -- the shape on the stage ----------------------------------------------------------------------------
def stage_shape(s: ChainShape) -> ChainShape:
    """Returns the shape on the stage: `s` if it is small. Otherwise it has one image, few maps, and as few rows
    and columns as the windows of its chain need. Blocks, windows, strides and padding stay. Odd sizes stay
    odd."""
    if s.N == 1 and math.prod(s.x_shape) <= SMALL and max(b.K for b in s.blocks) <= MAPS:
        return s
    block_texts = [str(replace(b, K=min(b.K, MAPS))) for b in s.blocks]
    start = [min(extent, SIDE + extent % 2) for extent in (s.H, s.W)]
    for more in range(max(s.H, s.W) + 1):
        H, W = (min(extent, first + more) for extent, first in zip((s.H, s.W), start, strict=True))
        try:
            return ChainShape(1, min(s.C, MAPS), H, W, " ".join(block_texts))
        except ShapeError:
            continue
    raise AssertionError("its own rows and columns fit")


@lru_cache(maxsize=64)
def inputs(s: ChainShape) -> Arrays:
    """Returns small whole numbers for every input, the same at each call. For batch norm, gamma may be a half and
    var + eps is a square, so that its gain is a short number too."""
    rng = np.random.default_rng(3)
    arrays: dict[str, np.ndarray] = {"x": rng.integers(-4, 5, s.x_shape)}
    for stage, names in zip(s.stages, s.tensors, strict=True):
        for tensor, name in names.items():
            size, eps = stage.tensors[tensor], stage.block.eps
            if tensor == "gamma":
                arrays[name] = rng.choice(GAMMAS, size)
            elif tensor == "var":
                arrays[name] = rng.choice([v for v in SQUARES if v > eps], size) - eps
            else:
                arrays[name] = rng.integers(-2, 3, size)
    return {name: array.astype(np.float32) for name, array in arrays.items()}
