"""Each barrier of a flash kernel is a step of its scene, at the line of the kernel that waits."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.attention.shape import AttentionShape
from kernels.ladders import find
from visuals.attention.flash import flash_scene

# Barriers of a block with two tiles.
BARRIERS = {"attention/flash": 4, "attention/flash-registers": 4, "attention/flash-mma": 3}


@pytest.mark.parametrize("rung", BARRIERS)
def test_a_barrier_is_a_step_at_its_line(rung):
    halves = rung == "attention/flash-mma"
    s = AttentionShape(1, 1, 32, 16, dtype="fp16" if halves else "fp32")
    rng = np.random.default_rng(0)
    head = {name: rng.integers(-2, 3, (s.N, s.d)).astype("f4") for name in "QKV"}
    tiles = find(rung).default_tiles | {"Br": 16, "Bc": 16} | ({"WM": 16, "STAGES": 2} if halves else {})
    scene = flash_scene(s, rung, tiles, head)
    lines = scene.source.text.splitlines()
    lit = [lines[scene.source_at(t)[1] - scene.source.first] for t in range(scene.steps)]
    at_barriers = [t for t, line in enumerate(lit) if "__syncthreads();" in line]
    assert at_barriers == [t for t in range(scene.steps) if scene.caption(t).startswith("Barrier: ")]
    assert len(at_barriers) == BARRIERS[rung]
    for t in at_barriers:  # nothing is written
        for tensor in scene.tensors:
            np.testing.assert_array_equal(scene.cells(tensor.name, t), scene.cells(tensor.name, t - 1))
