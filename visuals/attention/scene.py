"""Attention as a scene: head 0 of sequence 0, as each rung of the ladder computes it.

Three launches with S and P in global memory (attention_unfused.py), a row at a time in shared memory
(attention_fused.py), tiles of keys that slide by (attention_flash.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from visuals.attention.flash import flash_scene
from visuals.attention.fused import fused_scene
from visuals.attention.unfused import unfused_scene
from visuals.scene import why_not as scene_why_not
from visuals.scene.scene import Scene

SCENES = {
    "attention/naive": unfused_scene,
    "attention/blocked": unfused_scene,
    "attention/fused": fused_scene,
    "attention/flash": flash_scene,
    "attention/flash-registers": flash_scene,
    "attention/flash-mma": flash_scene,
}


def attention_scene(
    s: AttentionShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]
) -> Scene:
    """The scene of a rung, tile sizes left out being its defaults. inputs: Q, K, V, float32 [B, H, N, d], of which
    head 0 of sequence 0 is looked at. ValueError where `why_not` has a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    given = INPUT_DTYPE[s.dtype]  # halves are rounded before anything is computed
    head = {name: np.asarray(inputs[name])[0, 0].astype(given).astype(np.float32) for name in "QKV"}
    return SCENES[rung](s, rung, find(rung).check(s, tiles), head)


def why_not(s: AttentionShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Why a rung has no scene at a shape, in words; "" where it has one."""
    return scene_why_not.why_not(rung, s, tiles, SCENES)
