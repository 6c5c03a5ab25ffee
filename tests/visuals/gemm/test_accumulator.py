"""The scene of wgmma's sums: its map is that of the emulator's registers, its C what the kernels store."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import run
from kernels.engines.emulator.instructions.warpgroup import ROWS, WARPS
from kernels.gemm import hopper
from kernels.gemm.fragments import M16N8K16
from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from kernels.model.program import INPUT, RuleError
from kernels.runner import seeded_inputs
from tests.helpers.emulated import needs_nvrtc
from tests.kernels.gemm.test_hopper import emulated
from visuals.gemm.accumulator import BOXES, accumulator_scene, box_cells, elements, why_not
from visuals.gemm.swizzle import RUNGS
from visuals.scene.payload import payload

SQUARE = GemmShape(64, 64, 64, dtype="fp16")
SMALL = {"gemm/wgmma": {"BM": 64, "BN": 64}, "gemm/wgmma-ring": {"BM": 64, "BN": 64, "STAGES": 2}}


def plain(scene, step: int) -> str:
    """Returns the caption of a step, without colours."""
    return re.sub(r"\[(.*?)\]\(\w+\)", r"\1", scene.caption(step)).replace("−", "-")


def matrices(s: GemmShape, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.integers(-4, 5, (s.M, s.K)), random.integers(-4, 5, (s.K, s.N))


@needs_nvrtc
def test_the_map_is_that_of_the_emulators_registers():
    """The kernel stores its registers as they are, thread by thread."""

    def raw(text: str) -> str:
        store = r"store_sums<BN>\(sum, C0, C, block_row.*?\);"
        found = re.subn(
            store,
            "for (int v = 0; v < BN / 2; ++v) C[threadIdx.x * (BN / 2) + v] = sum[v / 4][v % 4];",
            text,
            flags=re.S,
        )
        assert found[1] == 1
        return found[0]

    out, inputs, _ = emulated("wgmma", SQUARE, change=raw)
    product = inputs["A"].astype(float) @ inputs["B"].astype(float)
    row, column = elements(64)
    stored = out.reshape(WARPS, 32, 32)
    for warp in range(WARPS):
        np.testing.assert_allclose(stored[warp], product[ROWS * warp + row, column], rtol=1e-5, atol=1e-5)


def test_each_eight_columns_are_the_fragment_of_mma_sync():
    row, column = elements(32)
    lane, value = np.arange(32)[:, None], np.arange(4)
    for j in range(4):
        of_mma = np.broadcast_arrays(*M16N8K16["C"].position(lane, value))
        np.testing.assert_array_equal(row[:, 4 * j : 4 * j + 4], of_mma[0])
        np.testing.assert_array_equal(column[:, 4 * j : 4 * j + 4], of_mma[1] + 8 * j)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(("warp", "factors"), [(3, (1.0, 0.0)), (1, (-2.0, 0.5))])
def test_c_is_what_the_kernel_stores(rung, warp, factors):
    s = GemmShape(64, 72, 80, *factors, dtype="fp16")
    program = find(rung).build(s, find(rung).default_tiles)
    inputs = seeded_inputs(program.of_role(INPUT))
    stored = run(rung, s, inputs, engine="emulator").output
    scene = accumulator_scene(s, rung, {}, inputs["A"], inputs["B"], warp, inputs.get("C0"))
    says = {"Each stored value is -2 times the sum plus 0.5 times C0." in plain(scene, t) for t in range(scene.steps)}
    assert says == ({True, False} if s.beta else {False})
    shown = scene.tensor("C")
    part = stored[ROWS * warp :][: shown.rows, : shown.cols]
    np.testing.assert_allclose(scene.cells("C").reshape(part.shape), part, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rung", RUNGS)
@settings(max_examples=4)
@given(data=st.data())
def test_the_scene_is_the_product_at_any_shape(rung, data):
    s = GemmShape(
        data.draw(st.integers(1, 200)), 8 * data.draw(st.integers(1, 9)), 8 * data.draw(st.integers(1, 9)), dtype="bf16"
    )
    warp = data.draw(st.integers(0, min(WARPS - 1, (s.M - 1) // ROWS)))
    tiles = data.draw(st.sampled_from([{}, SMALL.get(rung, {})]))
    A, B = matrices(s)
    scene = accumulator_scene(s, rung, tiles, A, B, warp)
    payload(scene)
    C = scene.tensor("C")
    expected = (A @ B)[ROWS * warp :][: C.rows, : C.cols]
    np.testing.assert_array_equal(scene.cells("C").reshape(expected.shape), expected)
    row, column = elements(C.cols)
    held = scene.cells("sum").reshape(32, C.cols // 2)
    np.testing.assert_array_equal(held[row < C.rows], expected[row[row < C.rows], column[row < C.rows]])
    assert not held[row >= C.rows].any()
    if rung not in BOXES:
        lanes = scene.cells("lane").reshape(ROWS, C.cols)
        np.testing.assert_array_equal(lanes[row, column], np.arange(32)[:, None] + 0 * column)
    last = {reading.label: reading.values[-1] for reading in scene.readings}
    assert last["bytes in C"] == 4 * expected.size == 32 * last["sectors of C written"]
    (launch,) = find(rung).build(s, find(rung).default_tiles | tiles).steps
    sizes = find(rung).default_tiles | tiles
    consumers = launch.block[0] - (0 if rung == "gemm/wgmma" else hopper.WARPGROUP)
    if rung == "gemm/wgmma-turns":
        consumers = hopper.WARPGROUP
    assert last["sums in registers of each thread"] * consumers == sizes["BM"] * sizes["BN"]
    assert all(scene.caption(t) for t in range(scene.steps))


@pytest.mark.parametrize("rung", BOXES)
def test_a_box_is_swizzled_as_the_kernel_writes_it(rung):
    """box[box_row * 32 + (box_col ^ box_row % 8 * 4)] of kernels/gemm/cuda/wgmma.cuh."""
    row, column = np.divmod(np.arange(16 * 32), 32)
    np.testing.assert_array_equal(box_cells(row, column), row * 32 + (column ^ row % 8 * 4))
    A, B = matrices(SQUARE)
    scene = accumulator_scene(SQUARE, rung, {}, A, B, 1)
    np.testing.assert_array_equal(scene.cells("box")[box_cells(row, column)], (A @ B)[16:32, :32].ravel())


def test_every_element_has_one_holder():
    row, column = elements(256)
    assert len(set(zip(row.ravel(), column.ravel(), strict=True))) == ROWS * 256


def test_what_cannot_be_shown_has_a_reason():
    assert why_not(SQUARE.with_(M=9), "gemm/wgmma", {}, 1) == "Warp 1 holds rows 16 to 31, and C has 9."
    assert "N % 8 == 0" in why_not(SQUARE.with_(N=12), "gemm/wgmma", {})
    assert not why_not(SQUARE, "gemm/wgmma", {}, 3)
    with pytest.raises(RuleError):
        accumulator_scene(SQUARE.with_(K=12), "gemm/wgmma", {}, *matrices(SQUARE))
