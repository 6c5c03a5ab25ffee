"""The scenes of rings of stages show what block 0 of each kernel did, in the order of its waits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from tests.helpers.emulated import needs_nvrtc
from visuals.gemm.accumulator import TURNS
from visuals.gemm.ring import COLUMNS, RINGS, ROWS, inputs_of, ring_scene, shortened, why_not

REAL = GemmShape(1024, 4096, 1024, dtype="fp16")
STATES = "copy", "full", "multiply", "free"
pytestmark = needs_nvrtc


def states(scene, t: int) -> np.ndarray:
    """Returns the tile of each state in each stage after step t, int[states, stages], 0 for none."""
    return np.nan_to_num(np.stack([scene.cells(name, t) for name in STATES])).astype(int)


@pytest.mark.parametrize("rung", RINGS)
def test_c_is_complete_and_each_tile_goes_through_its_stage(rung):
    tiles = find(rung).check(REAL, {})
    s, _ = shortened(REAL, rung, tiles)
    scene, given = ring_scene(REAL, rung, {}), inputs_of(s)
    expected = given["A"][:ROWS].astype(float) @ given["B"][:, :COLUMNS].astype(float)
    np.testing.assert_array_equal(scene.cells("C"), expected.ravel())
    persistent = RINGS[rung].persistent  # its tiles are counted anew for each tile of C
    for t in range(scene.steps):
        copied, full, read, freed = states(scene, t)
        if not persistent:
            assert (copied >= full).all() and (full >= read).all() and (read >= freed).all()
            assert (copied <= freed + tiles["STAGES"]).all()  # no tile is overwritten


@settings(max_examples=4)
@given(M=st.integers(1, 300), N=st.integers(1, 20), K=st.integers(1, 90), beta=st.sampled_from([0, 2]))
def test_any_shape_has_its_scene(M, N, K, beta):
    s = GemmShape(M, 8 * N, 8 * K, beta=beta, dtype="bf16")
    scene, given = (
        ring_scene(s, "gemm/wgmma-ring", {}),
        inputs_of(shortened(s, "gemm/wgmma-ring", {"BM": 128, "BN": 128, "STAGES": 4})[0]),
    )
    expected = given["A"][:ROWS].astype(float) @ given["B"][:, :COLUMNS].astype(float)
    expected += beta * given["C0"][:ROWS, :COLUMNS] if beta else 0
    np.testing.assert_array_equal(scene.cells("C"), expected.ravel())


def test_both_sorts_of_waits_are_said_once():
    scene = ring_scene(REAL, "gemm/wgmma-ring", {})
    captions = [scene.caption(t) for t in range(scene.steps)]
    waits = [n for n, text in enumerate(captions) if "waits at barrier empty 0" in text]
    assert sum("consumers wait at barrier full 0 for tile 1" in text for text in captions) == len(waits) == 1
    free, copied = (
        next(n for n, text in enumerate(captions) if words in text)
        for words in ("stage 0 is empty.", "Stage 0 is empty again")
    )
    assert waits[0] < free < copied


def test_a_stage_has_the_rows_of_its_tile():
    """Pieces of 8 numbers of row r are in the order of the swizzle: piece j at j XOR r."""
    scene = ring_scene(REAL, "gemm/wgmma-ring", {})
    first = next(t for t in range(scene.steps) if "of tile 1 are in stage 0" in scene.caption(t))
    given = inputs_of(shortened(REAL, "gemm/wgmma-ring", find("gemm/wgmma-ring").check(REAL, {}))[0])
    stage = scene.cells("tile_a", first).reshape(-1, ROWS, 64)[0]
    row, column = np.indices((ROWS, 64))
    np.testing.assert_array_equal(stage[row, (column // 8 ^ row) * 8 + column % 8], given["A"][:ROWS, :64])


def test_a_persistent_block_copies_its_next_tile_while_it_stores():
    scene = ring_scene(REAL.with_(M=2048), "gemm/wgmma-persistent", {})
    captions = [scene.caption(t) for t in range(scene.steps)]
    goes_on, stores = (
        [n for n, text in enumerate(captions) if words in text]
        for words in ("goes on to the next tile", "The consumers store")
    )
    assert len(goes_on) == 1 and len(stores) == 2 and goes_on[0] < stores[0]


def test_other_rungs_and_broken_rules_have_a_reason():
    assert "take turns" in why_not(REAL, TURNS, {})
    assert "has no ring" in why_not(REAL, "gemm/wgmma", {})
    assert why_not(REAL.with_(dtype="fp32"), "gemm/wgmma-ring", {})
    with pytest.raises(ValueError, match="no ring"):
        ring_scene(REAL, "gemm/wgmma", {})
