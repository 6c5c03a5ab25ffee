"""Attention as a scene: head 0 of sequence 0, as each rung of the ladder computes it.

unfused.py: three launches with S and P in global memory. fused.py: a row at a time in shared memory. flash.py: tiles of
keys, one after the other. ring.py: what the warpgroups of a block do on Hopper, without values.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from visuals.attention.decode import decode_scene
from visuals.attention.flash import flash_scene
from visuals.attention.fused import fused_scene
from visuals.attention.ring import ring_scene
from visuals.attention.ring_plan import RINGS
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
    "attention/flash-decode": decode_scene,
    **dict.fromkeys(RINGS, ring_scene),
}


def attention_scene(s: AttentionShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of a rung; missing tile sizes are its defaults. inputs: Q, K, V, float32 [B, H, N, d], of which head 0
    of sequence 0 is used. Raises ValueError if `why_not` gives a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    if rung in RINGS:
        return ring_scene(s, rung, find(rung).check(s, tiles))
    dtype = INPUT_DTYPE[s.dtype]  # inputs are rounded first, as the kernel gets them
    head = {name: np.asarray(inputs[name])[0, 0].astype(dtype).astype(np.float32) for name in "QKV"}
    if "mask" in inputs:
        head["mask"] = inputs["mask"]
    return SCENES[rung](s, rung, find(rung).check(s, tiles), head)


def why_not(s: AttentionShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene at a shape; "" if it has one."""
    return scene_why_not.why_not(rung, s, tiles, SCENES)
