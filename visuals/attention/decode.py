"""Decoding as a scene, compiled from what both kernels did with one head of keys."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from visuals.attention.decode_views import view_of
from visuals.scene.compiler.program import first_blocks, scene_of_rung
from visuals.scene.scene import Scene


def decode_scene(s: AttentionShape, rung: str, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of attention/flash-decode. inputs: Q [rows, d], K and V [M, d], float32, of the heads that share the
    keys of head 0, and the mask [N, M] if there is one."""
    one = s.with_(B=1, H=s.sharing, kv_heads=1)
    buffers = {b.name: b for b in find(rung).build(one, tiles).buffers}
    arrays = {name: array.astype(buffers[name].dtype).reshape(buffers[name].shape) for name, array in inputs.items()}
    view = view_of(one, tiles, s.B * s.groups)
    return scene_of_rung(rung, one, tiles, arrays, view, str(s), blocks=first_blocks(1))
