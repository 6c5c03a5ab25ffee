"""Attention's backward pass as a scene: head 0 of sequence 0, as each rung of the ladder computes it.

naive.py: launches with P and dS in global memory. rows.py: a key, then a query at a time. flash.py: a tile of keys, the
queries passing by.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.backward.reference import saved
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from visuals.attention.backward.flash import flash_scene
from visuals.attention.backward.naive import naive_scene
from visuals.attention.backward.plan import ATOMIC, MMA, TWO
from visuals.attention.backward.rows import rows_scene
from visuals.scene import why_not as scene_why_not
from visuals.scene.scene import Scene

SCENES = {
    "attention-backward/naive": naive_scene,
    "attention-backward/recompute": rows_scene,
    ATOMIC: flash_scene,
    TWO: flash_scene,
    MMA: flash_scene,
}


def backward_scene(
    s: AttentionBackwardShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]
) -> Scene:
    """Returns the scene of a rung; missing tile sizes are its defaults. inputs: Q, K, V, dO [B, H, N, d], of which head 0 of
    sequence 0 is used; O and L follow from them. Raises ValueError if `why_not` gives a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    return SCENES[rung](s, rung, find(rung).check(s, tiles), head_of(s, inputs))


def head_of(s: AttentionBackwardShape, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns Q, K, V, dO, O float32 [N, d] and L [N] of head 0, rounded as the kernels get them."""
    dtype = INPUT_DTYPE[s.dtype]
    one = s.with_(B=1, H=1)
    head = {name: np.asarray(inputs[name])[:1, :1].astype(np.float32).astype(dtype) for name in ("Q", "K", "V", "dO")}
    return {name: x[0, 0].astype(np.float32) for name, x in (head | saved(one, head)).items()}


def why_not(s: AttentionBackwardShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape; "" if it has one."""
    return scene_why_not.why_not(rung, s, tiles, SCENES)
