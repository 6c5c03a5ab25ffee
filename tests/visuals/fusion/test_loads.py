"""The sectors that pointwise kernels load are those that the emulator counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.fusion.ladder import PLANS
from kernels.fusion.shape import ChainShape
from kernels.ladders import find
from visuals.fusion.gpu_map import fusion_map
from visuals.fusion.loads import loads_of
from visuals.gpu_map.launches import counted

TILES = {"BLOCK": 128, "FOURS": 1}
PER_BLOCK = 4 * TILES["BLOCK"]  # values


@settings(max_examples=10)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 35), st.integers(1, 5), st.sampled_from((4, 8, 12))),
    st.sampled_from(("bias bn relu", "bn add relu")),
    st.sampled_from(("fusion/unfused", "fusion/fused")),
)
def test_sectors_of_a_pointwise_chain_are_counted(extents, chain, rung):
    s = ChainShape(*extents, chain)
    program = find(rung).build(s, TILES)
    loads = [loads_of(s, part, program) for part in PLANS[rung](s, TILES).parts]
    counters = counted(program, 0)
    assert counters, "these kernels are compiled ahead"
    assert sum(found.bytes for found in loads) == counters.total["sectors_ld"] * 32
    one_block = extents[0] * extents[1] * extents[2] * extents[3] <= PER_BLOCK
    for found in loads:
        assert (found.bytes_of_block == found.bytes) if one_block else (found.bytes_of_block < found.bytes)


@pytest.mark.parametrize("chain", ["conv:K=2:R=3 bias", "bn relu maxpool:2"])
def test_a_kernel_with_windows_is_not_predicted(chain):
    s, rung = ChainShape(1, 2, 8, 8, chain), "fusion/fused"
    program = find(rung).build(s, find(rung).default_tiles)
    assert loads_of(s, PLANS[rung](s, find(rung).default_tiles).parts[0], program) is None


def test_a_lane_with_values_of_two_maps_is_not_predicted():
    s, rung = ChainShape(1, 2, 3, 3, "relu"), "fusion/unfused"
    part = PLANS[rung](s, TILES).parts[0]
    assert loads_of(s, part, find(rung).build(s, TILES)) is None


def test_the_map_of_large_maps_names_the_bytes_from_l2():
    s = ChainShape(64, 256, 56, 56, "bias bn relu")
    m = fusion_map(s, "fusion/unfused", TILES, count=False)
    assert m.total.read[2].bytes == sum(kernel.total.read[2].bytes for kernel in m.kernels)
    assert m.total.read[2].bytes > m.total.read[0].bytes, "warps load the numbers of a map again"
    assert (m.total.read[1].limit, m.total.read[2].limit) == ("most", "")
