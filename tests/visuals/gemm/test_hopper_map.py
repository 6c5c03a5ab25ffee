"""The GPU map of Hopper's rungs: its bytes are those that the emulator counts, its tiles those of the kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.offenders import every
from tests.kernels.gemm.test_hopper import SMALL, emulated
from visuals.gemm.accumulator import sharing
from visuals.gemm.hopper_map import PERSISTENT, hopper_map, loads, tile_position, tiles_of_block_0
from visuals.gemm.swizzle import RUNGS
from visuals.gpu_map.scene import map_scene
from visuals.scene.payload import payload

REAL = GemmShape(4096, 4096, 4096, dtype="fp16")


@needs_nvrtc
@pytest.mark.parametrize("rung", RUNGS)
def test_bytes_are_those_that_the_emulator_counts(rung):
    """At whole tiles: of a box outside the matrix only the part inside is read."""
    name = rung.removeprefix("gemm/")
    s = GemmShape(512, 512, 128, dtype="fp16")
    tiles = find(rung).default_tiles | SMALL[name]
    total = emulated(name, s, tiles)[2].counters.total
    assert loads(s, rung, tiles) == total["bulk_bytes_ld"]


@every("rung", RUNGS)
def test_every_rung_has_a_map_at_a_real_size(rung):
    found = hopper_map(REAL, rung, {})
    scene = map_scene(found)
    payload(scene)
    (launch,) = find(rung).build(REAL, find(rung).default_tiles).steps
    kernel = found.kernels[0]
    own = tiles_of_block_0(REAL, rung, find(rung).default_tiles, launch)
    assert kernel.tiles == 64 * len(own) and len(found.operands["A"].pieces) == kernel.tiles
    assert (len(own) > 1) == (rung in PERSISTENT)
    sums = find(rung).default_tiles["BM"] * find(rung).default_tiles["BN"] // sharing(launch, rung)
    rows, cols = (int(n) for n in kernel.sums_note.split(" × "))
    assert rows * cols == sums <= 128


@settings(max_examples=20)
@given(rows=st.integers(1, 20), cols=st.integers(1, 20), group=st.sampled_from([4, 8, 16]))
def test_the_order_of_tiles_visits_each_once(rows, cols, group):
    order = [tile_position(n, rows, cols, group) for n in range(rows * cols)]
    assert len(set(order)) == rows * cols
    assert {r for r, _ in order} == set(range(rows)) and {c for _, c in order} == set(range(cols))


@every("rung", PERSISTENT)
@every("blocks", [128, 132])
def test_blocks_share_all_tiles(rung, blocks):
    """Tiles of C in each block, times blocks, are at least all tiles: block 0 has the most."""
    tiles = find(rung).default_tiles | {"BLOCKS": blocks}
    (launch,) = find(rung).build(REAL, tiles).steps
    own = tiles_of_block_0(REAL, rung, tiles, launch)
    count = np.prod([-(-4096 // tiles["BM"]), -(-4096 // tiles["BN"])])
    assert len(own) == -(-count // blocks) and len(set(own)) == len(own)


def test_a_cluster_reads_the_tiles_of_b_once():
    a = b = 2 * 4096 * 4096
    of = {rung: loads(REAL, rung, find(rung).default_tiles) for rung in RUNGS[-3:]}
    assert of == {
        "gemm/wgmma-store": 16 * a + 32 * b,
        "gemm/wgmma-cluster": 16 * a + 16 * b,
        "gemm/wgmma-turns": 32 * a + 32 * b,
    }
