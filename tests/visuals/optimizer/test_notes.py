"""Sentences about the figures of the optimisers' ladders."""

from __future__ import annotations

import pytest

from kernels.optimizer import ladder as optimizer
from visuals.optimizer.notes import NOTES


def row(rung: str, ms: float, shape, **more):
    return {"rung": rung, "engine": "cuda", "shape": shape.params(), "median_ms": ms, "p20_ms": ms, "p80_ms": ms} | more


@pytest.mark.parametrize("ladder", optimizer.LADDERS, ids=lambda ladder: ladder.name)
def test_every_ladder_has_a_story_at_each_preset(ladder):
    for preset in ladder.presets.values():
        text = NOTES[ladder.name].cost(preset.shape)
        assert "bytes per weight" in text and "{" not in text
    assert NOTES[ladder.name].gain({}) == ""


def test_cost_names_the_arrays_and_the_chunks():
    adam, sgd = (
        NOTES[name].cost(ladder.presets[f"{name}-64m"].shape)
        for name, ladder in (("adam", optimizer.ADAM), ("sgd", optimizer.SGD))
    )
    assert "The step updates 4 tensors. At least 1.88 GB are moved, 28 bytes per weight." in adam
    assert "m and v take 537 MB, twice the memory of the weights." in adam and "16,384 chunks" in adam
    assert "At least 1.34 GB are moved, 20 bytes per weight. v takes 268 MB" in sgd


def test_gain_names_the_launches_pytorch_and_the_copy():
    shape = optimizer.ADAM.presets["adam-resnet18"].shape
    rows = {
        name: row(name, ms, shape, ceilings={"copy_bytes_per_s": 4e12})
        for name, ms in (
            ("adam/per-tensor", 0.3),
            ("adam/one-launch", 0.12),
            ("adam/float4", 0.1),
            ("adam/fused", 0.12),
            ("adam/foreach", 0.8),
        )
    }
    text = NOTES["adam"].gain(rows)
    assert "“one launch, float4” is 3× as fast as 62 launches per step." in text
    assert "is 1.2× as fast as PyTorch Adam, fused." in text and "8× as fast as PyTorch Adam, foreach." in text
    assert "The kernel takes 1.22× that time." in text
