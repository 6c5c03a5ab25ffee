"""The scenes of attention's rings show what block 0 of each kernel did, in the order of its waits."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.attention.reference import attention
from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from tests.helpers.attention_scenes import matrix
from tests.helpers.emulated import needs_nvrtc
from visuals.attention.inputs import qkv
from visuals.attention.ring import RINGS, shortened
from visuals.attention.scene import attention_scene

TWO = {"Br": 128, "Bc": 64, "STAGES": 2}
OWN = [rung for rung in RINGS if not rung.endswith("variants")]
VARIANTS = "attention/flash-wgmma-variants"
pytestmark = needs_nvrtc


def tiles_of(rung: str, s: AttentionShape) -> dict[str, int]:
    return find(rung).check(s, {} if rung == "attention/wgmma" else TWO)


def expected(rung: str, s: AttentionShape) -> tuple[np.ndarray, np.ndarray]:
    """Returns O of the first head and the scale of its tolerance, of the queries and keys that were run."""
    run, given = shortened(s, rung, tiles_of(rung, s)), qkv(s, "whole")
    Q = given["Q"].reshape(-1, s.N, s.d)[None, : run.H, : run.N]
    arrays = {"Q": Q, **{name: given[name][:, :, : run.keys] for name in "KV"}}
    arrays = {name: array.astype(INPUT_DTYPE[s.dtype]).astype(np.float32) for name, array in arrays.items()}
    if "mask" in given:
        arrays["mask"] = given["mask"][: run.N, : run.keys]
    ref, scale = attention(run, **arrays)
    return ref[0, 0], scale[0, 0]


CASES = [(rung, AttentionShape(1, 1, 300, 64, causal=causal, dtype="fp16")) for rung in OWN for causal in (0, 1)] + [
    (VARIANTS, AttentionShape(1, 4, 200, 64, causal=1, kv_heads=2, window=50, dtype="fp16")),
    (VARIANTS, AttentionShape(1, 1, 16, 64, M=300, mask="bias", dtype="bf16")),
]


@pytest.mark.parametrize(("rung", "s"), CASES, ids=str)
def test_o_equals_the_reference(rung, s):
    scene = attention_scene(s, rung, tiles_of(rung, s), qkv(s, "whole"))
    tensor, (ref, scale) = scene.tensor("O"), expected(rung, s)
    rows = slice(tensor.origin[1], tensor.origin[1] + tensor.rows)
    shown = matrix(scene, "O")
    tolerance = 3e-2 if s.dtype == "bf16" else 4e-3
    assert (abs(shown - ref[rows, : tensor.cols]) <= tolerance * scale[rows, : tensor.cols]).all()


@pytest.mark.parametrize("rung", ("attention/wgmma-consumers", "attention/wgmma-overlap"))
def test_no_tile_is_overwritten_before_it_was_read(rung):
    s = AttentionShape(1, 1, 300, 64, dtype="fp16")
    scene = attention_scene(s, rung, TWO, qkv(s, "whole"))
    for t in range(scene.steps):
        for of in "kv":
            copied, full, free = (np.nan_to_num(scene.cells(f"{name}_{of}", t)) for name in ("copy", "full", "free"))
            assert (copied >= full).all() and (full >= free).all() and (copied <= free + 2).all()


def test_one_consumer_multiplies_while_the_other_computes_its_softmax():
    s = AttentionShape(1, 1, 256, 64, dtype="fp16")
    scene = attention_scene(s, "attention/wgmma-ping-pong", TWO, qkv(s, "whole"))
    said = [scene.caption(t) for t in range(scene.steps)]
    first, second = (
        next(n for n, text in enumerate(said) if text.startswith(words))
        for words in ("Warpgroup 1 begins the scores of tile 1", "Warpgroup 0 computes the softmax of tile 1")
    )
    assert second == first + 1
    assert any("producer waits at barrier empty 0 of K, before it copies tile 3" in text for text in said)
