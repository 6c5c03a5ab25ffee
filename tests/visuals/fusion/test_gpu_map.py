"""The GPU map of a chain: its launches, and the bytes that the cost model gives each."""

from __future__ import annotations

import numpy as np

from kernels.fusion.ladder import PLANS
from kernels.fusion.presets import FUSION_PRESETS
from kernels.ladders import find
from tests.helpers.offenders import over
from visuals.fusion.gpu_map import fusion_map
from visuals.gpu_map.launches import blocks_of
from visuals.gpu_map.scene import map_scene

CASES = [
    (rung, key)
    for rung in PLANS
    for key, preset in FUSION_PRESETS.items()
    if not any(find(rung).rules(preset.shape, find(rung).default_tiles))
]


@over([(f"{rung} {key}", (rung, key)) for rung, key in CASES])
def test_bytes_are_those_of_the_cost_model(case):
    rung, key = case
    s, tiles = FUSION_PRESETS[key].shape, find(rung).default_tiles
    m = fusion_map(s, rung, tiles, count=False)
    parts = PLANS[rung](s, tiles).parts
    if any(blocks_of(part.launch) is None for part in parts):
        assert m is None
        return
    program = find(rung).build(s, tiles)
    assert m.total.read[0].bytes + m.total.written[0].bytes == find(rung).cost(s, program).bytes
    assert [(k.total.read[0].bytes, k.total.written[0].bytes) for k in m.kernels] == [
        (p.reads, p.writes) for p in parts
    ]
    assert [k.blocks.grid for k in m.kernels] == [step.grid for step in program.steps]
    scene = map_scene(m)
    for kernel in m.kernels:
        assert np.isfinite(scene.cells(kernel.writes)).all()


def test_a_toy_is_counted():
    s = FUSION_PRESETS["fusion-toy"].shape
    m = fusion_map(s, "fusion/unfused", find("fusion/unfused").default_tiles)
    assert m.total.read[2].kind == m.total.written[1].kind == "counted"
    assert m.total.written[1].bytes == sum(k.total.written[1].bytes for k in m.kernels), "predicted per launch"
