"""The scenes of the lesson on layers: forward and backward at the same seeded arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.lse.shape import LseShape
from kernels.cross_entropy.shape import CrossEntropyShape
from kernels.elementwise.shape import MapsShape
from kernels.embedding.shape import EmbeddingShape
from kernels.heads.shape import HeadsShape
from kernels.ladders import find, ladder_of
from kernels.linear.shape import LinearShape
from kernels.model.shape import Shape
from kernels.norm.shape import MapsShape as ChannelsShape
from kernels.norm.shape import RowsShape
from kernels.optimizer.shape import OptimizerShape
from kernels.pooling import reference
from kernels.pooling.shape import GlobalShape, MaxPoolShape, PoolShape
from visuals.attention.inputs import qkv
from visuals.attention.lse import lse_scene
from visuals.cross_entropy.scene import cross_entropy_scene
from visuals.elementwise.scene import as_forward, elementwise_scene
from visuals.embedding.scene import embedding_scene
from visuals.heads.scene import heads_scene
from visuals.linear.scene import linear_scene
from visuals.norm.scene import norm_scene
from visuals.optimizer.scene import optimizer_scene
from visuals.pooling.scene import pool_scene
from visuals.scene.inputs import rounded_inputs
from visuals.scene.scene import Scene

SEED = 0
GRADIENT_SEED = 1  # of dy, so that it differs from x
SPREAD = 4  # the pixels are whole numbers of about this size


def elementwise(rung: str, s: MapsShape, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of a rung. Backward, y or the mask is what the forward pass keeps of the same x."""
    return elementwise_scene(rung, s, tiles, SEED, as_forward)


def optimizer(rung: str, s: OptimizerShape, tiles: Mapping[str, int]) -> Scene:
    return optimizer_scene(rung, s, tiles, SEED)


def pooling(rung: str, s: PoolShape | GlobalShape, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of a rung. Backward, the index is what the forward pass keeps of the same x."""
    program = find(rung).build(s, find(rung).check(s, tiles))
    drawn = {"x": _numbers(s.x_shape if isinstance(s, PoolShape) else (s.N, s.C, s.H, s.W), SEED)}
    for b in program.of_role("input"):
        if b.name == "dy":
            drawn["dy"] = _numbers(b.shape, GRADIENT_SEED)
        elif b.name == "index" and isinstance(s, MaxPoolShape):
            drawn["index"] = reference.maxima(s, drawn["x"])[1].astype(np.int32)
    return pool_scene(rung, s, tiles, {b.name: drawn[b.name] for b in program.of_role("input")})


def norm(rung: str, s: ChannelsShape | RowsShape, tiles: Mapping[str, int]) -> Scene:
    return norm_scene(rung, s, tiles, _inputs(rung, s, tiles))


def linear(rung: str, s: LinearShape, tiles: Mapping[str, int]) -> Scene:
    return linear_scene(rung, s, tiles, _inputs(rung, s, tiles, 0))


def embedding(rung: str, s: EmbeddingShape, tiles: Mapping[str, int]) -> Scene:
    return embedding_scene(rung, s, tiles, _inputs(rung, s, tiles, 0))


def attention(rung: str, s: LseShape, tiles: Mapping[str, int]) -> Scene:
    return lse_scene(s, rung, tiles, qkv(s, "whole"))


def heads(rung: str, s: HeadsShape, tiles: Mapping[str, int]) -> Scene:
    return heads_scene(rung, s, tiles, _inputs(rung, s, tiles, 0))


def _inputs(rung: str, s: Shape, tiles: Mapping[str, int], decimals: int = 1) -> dict[str, np.ndarray]:
    """Returns seeded inputs of a rung with so many decimals."""
    found = find(rung)
    return rounded_inputs(ladder_of(rung), s, found.build(s, found.check(s, tiles)), SEED, decimals)


def cross_entropy(rung: str, s: CrossEntropyShape, tiles: Mapping[str, int]) -> Scene:
    """Returns the scene of a rung. The loss of the batch is the mean of its rows: each has the weight g = 1 / M."""
    found = find(rung)
    program = found.build(s, found.check(s, tiles))
    inputs = rounded_inputs(ladder_of(rung), s, program, SEED, 1)
    if "g" in inputs:
        inputs["g"] = np.full(s.M, 1 / s.M, np.float32)
    return cross_entropy_scene(rung, s, tiles, inputs)


def _numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Returns whole numbers, float32: sums of them are exact in any order."""
    return np.round(SPREAD * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32) + 0
