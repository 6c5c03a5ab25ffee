"""The scenes of flash attention with variants show what the kernels stored."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.attention.reference import attention
from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from tests.helpers.attention_scenes import kinds, matrix, part
from tests.helpers.emulated import needs_nvrtc
from visuals.attention.inputs import qkv
from visuals.attention.scene import attention_scene
from visuals.attention.views import variants

RUNGS = {"attention/flash-variants": "fp32", "attention/flash-mma-variants": "fp16"}
SHAPES = (
    AttentionShape(1, 4, 9, 8, kv_heads=2),
    AttentionShape(1, 1, 16, 4, causal=1, window=3),
    AttentionShape(1, 1, 16, 8, M=24, softcap=2),
    AttentionShape(1, 2, 77, 40, mask="bool", causal=1),
    AttentionShape(2, 1, 300, 64, M=77, mask="bias"),
)
pytestmark = needs_nvrtc


@pytest.mark.parametrize("s", SHAPES, ids=str)
@pytest.mark.parametrize("rung", RUNGS)
def test_o_equals_the_reference(rung, s):
    """Of the first head, at the queries and keys that the kernel ran at."""
    s = s.with_(dtype=RUNGS[rung])
    found, run = qkv(s, "random"), variants.head(s, find(rung).default_tiles).run
    scene = attention_scene(s, rung, {}, found)
    Q = found["Q"].reshape(-1, s.N, s.d)[None, : run.H, : run.N]
    arrays = {"Q": Q, **{name: found[name][:, :, : run.keys] for name in "KV"}}
    arrays = {name: array.astype(INPUT_DTYPE[s.dtype]).astype(np.float32) for name, array in arrays.items()}
    if "mask" in found:
        arrays["mask"] = found["mask"][: run.N, : run.keys]
    ref, scale = (part(scene, "O", whole[0, 0]) for whole in attention(run, **arrays))
    assert (abs(matrix(scene, "O") - ref) <= (3e-3 if s.dtype == "fp16" else 5e-6) * scale).all()


@pytest.mark.parametrize("rung", RUNGS)
def test_tiles_that_no_query_sees_are_not_loaded(rung):
    s = AttentionShape(1, 1, 4, 8, causal=1, M=48, window=5, dtype=RUNGS[rung])
    scene = attention_scene(s, rung, {"Bc": 16}, qkv(s, "whole"))
    assert "Keys before 32 are not copied" in scene.caption(kinds(scene, "Tile 1 of 1")[0])
