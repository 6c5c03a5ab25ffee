"""Scenes of warps and fragments: requests, values and counts equal the emulator's."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator import counters
from kernels.gemm.shape import GemmShape
from tests.visuals.gemm.test_scene import DTYPES, RUNGS, cases, emulated, matrices, smallest
from tests.visuals.gemm.test_timeline import OVERLAPPING
from visuals.gemm.fragment import fragment_scene
from visuals.gemm.plan import plan_of
from visuals.gemm.warp_requests import GLOBAL, MAX_SINGLE, SHARED, TEMPLATES, WarpSteps
from visuals.gemm.warps import shortened, traced, warps_scene
from visuals.scene.payload import payload
from visuals.scene.requests import bank_wavefronts, lanes_of, mask_of, min_wavefronts, requested_sectors

KINDS = list(TEMPLATES)
THREADS = [name for name in RUNGS if name not in ("gemm/wmma", "gemm/mma-sync")]
FLOATS = [name for name in RUNGS if name not in ("gemm/wmma", "gemm/dp4a")]


# -- the elements ----------------------------------------------------------------------------------
@st.composite
def requests(draw):
    """Draws (bytes, mask, width): aligned to the width, scattered or in order."""
    width = draw(st.sampled_from([4, 8, 16]))
    stride, lanes_per_row = draw(st.integers(0, 40)), draw(st.integers(1, 32))
    offsets = draw(
        st.one_of(
            st.lists(st.integers(0, 300), min_size=32, max_size=32),
            st.just([lane * stride for lane in range(32)]),
            st.just([lane // lanes_per_row * stride + lane % lanes_per_row for lane in range(32)]),
        )
    )
    mask = draw(st.one_of(st.just(2**32 - 1), st.integers(1, 2**32 - 1)))
    return np.array(offsets) * width, mask, width


@settings(max_examples=20)
@given(requests())
def test_wavefronts_and_sectors_equal_the_counters(request):
    byte, mask, width = request
    active = np.zeros((1, 32), bool)
    active[0, lanes_of(mask)] = True
    assert mask_of(lanes_of(mask)) == mask
    wavefronts, minimum = counters.wavefronts(byte[None].astype(np.uint64), active, width)
    wavefront, bank, lane = bank_wavefronts(byte, mask, width)
    assert (int(wavefront.max()) + 1, min_wavefronts(byte, mask, width)) == (wavefronts, minimum)
    assert len(set(zip(wavefront, bank, strict=True))) == len(wavefront)  # one word per bank in a wavefront
    assert set(lane) <= set(lanes_of(mask))
    count, fewest = requested_sectors(byte, mask, width)
    assert count == counters.distinct(byte[None] // 32, active) and fewest <= count


# -- requests --------------------------------------------------------------------------------------
def warp_steps(s, rung, tiles, A, B, C0, warp=0):
    """Returns the steps of a warp, their trace and its counters."""
    plan = plan_of(s, rung, tiles)
    cut = shortened(s, plan)
    inputs = {"A": A[: cut.M, : cut.K], "B": B[: cut.K]} | ({"C0": C0[: cut.M]} if s.beta else {})
    trace, counted = traced(cut, rung, tiles, inputs)
    return WarpSteps(cut, plan, inputs, trace, warp, s.K), trace, counted


@pytest.mark.parametrize("rung", THREADS)
def test_requests_of_all_warps_add_up_to_the_counters(rung):
    tiles = smallest(rung)
    s = GemmShape(21, 27, 12, beta=1, dtype=DTYPES.get(rung, "fp32"))
    total, plan = Counter(), plan_of(s, rung, tiles)
    for warp in range(-(-plan.threads // 32)):
        steps, _, counted = warp_steps(s, rung, tiles, *matrices(s), warp=warp)
        total.update({name: steps.r.total(name) for name in ("loaded", "stored", "wavefronts", "conflicts")})
    t = counted.total
    wavefronts, conflicts = (t[f"{name}_ld"] + t[f"{name}_st"] for name in ("wavefronts", "bank_conflicts"))
    assert list(total.values()) == [t["sectors_ld"], t["sectors_st"], wavefronts, conflicts]


@settings(max_examples=7)
@given(cases(rungs=tuple(FLOATS)))
def test_lanes_get_the_values_that_the_kernel_loaded(case):
    """At each load with a step of its own, every lane's column gets the values that it loaded, from the cells read."""
    rung, tiles, s = case
    A, B, C0 = matrices(s, whole=False)
    steps, trace, _ = warp_steps(s, rung, tiles, A, B, C0)
    scene = warps_scene(s, rung, tiles, A, B, C0)
    names, checked, lane_values = np.array(trace.buffers)[trace.buffer], 0, set()
    selected = ~trace.write & (trace.thread < 32)
    if s.dtype == "fp16":  # mma_sync moves A and B as bits; its fragments are fp16
        selected &= names == "shared"
    for moment in np.unique(steps.moments):
        steps_at = [t for t, loads_at in enumerate(steps.moments) if loads_at == moment]
        kinds = [KINDS[steps.r.kinds[t]] for t in steps_at]
        loads = [t for t, kind in zip(steps_at, kinds, strict=True) if kind[0] == "ld"]
        # ptxas may join loads: their values reach the lanes with the first of them.
        lane_values |= {(lane, value) for t in loads for lane, value in values_at(scene, steps, t)}
        if not loads or ("more", "") in kinds:
            continue
        loads_at = selected & (trace.step == moment) & np.isin(names, (*GLOBAL, *SHARED, "shared"))
        loaded = {(int(n), float(v)) for n, v in zip(trace.thread[loads_at], trace.value[loads_at], strict=True)}
        assert loaded <= lane_values
        checked += len(loaded)
    assert checked or rung in OVERLAPPING


def values_at(scene, steps, t):
    """Yields (lane, value) of each value that lanes get at step t."""
    for copies in steps.r.copies():
        if copies.target not in ("a", "b", "c"):
            continue
        values, now = scene.cells(copies.source, t), copies.steps == t
        for cell, i in zip(copies.cells[now], copies.index[now], strict=True):
            yield int(cell % 32), float(values[i])


@settings(max_examples=7)
@given(cases())
def test_last_step_equals_the_blocks_output(case):
    rung, tiles, s = case
    A, B, C0 = matrices(s)
    scene = warps_scene(s, rung, tiles, A, B, C0)
    plan = plan_of(s, rung, tiles)
    cut = shortened(s, plan)
    C = scene.tensor("C")
    out = emulated(cut, rung, tiles, A[: cut.M, : cut.K], B[: cut.K], C0[: cut.M]).output
    np.testing.assert_array_equal(scene.cells("C"), out[: C.rows, : C.cols].astype("f4").ravel())
    assert ("The loop was cut short" in scene.caption(scene.steps - 1)) == (cut.K < s.K)
    assert (f"cut to {cut.K} of {s.K:,} terms" in scene.order_note) == (cut.K < s.K)


@pytest.mark.parametrize("K", [16, 70, 1024, 4095])
def test_shortened_rows_begin_at_the_same_byte_of_a_sector(K):
    for rung in RUNGS:
        s = GemmShape(64, 64, K, dtype=DTYPES.get(rung, "fp32"))
        cut = shortened(s, plan_of(s, rung, {}))
        item = {"fp32": 4, "fp16": 2, "int8": 1}[s.dtype]
        assert (K - cut.K) * item % 32 == 0 and min(K, 16) <= cut.K


def test_uncoalesced_requests_one_sector_per_lane_and_naive_few():
    s = GemmShape(64, 64, 64)
    A, B, _ = matrices(s)
    caption = "loads from A in global memory, 4 bytes per lane. Active lanes: 32. Sectors (32 bytes): {}. Fewest possible: {}."
    first = []
    for name in ("uncoalesced", "naive"):
        scene = warps_scene(s, f"gemm/{name}", {"BLOCK": 32}, A, B)
        first.append(scene.caption(0) + scene.caption(1))
    assert caption.format(32, 4) in first[0] and caption.format(1, 1) in first[1]


@pytest.mark.parametrize(
    ("tiles", "ends"),
    [
        ({"BM": 8, "BN": 8, "BK": 8}, "The other warp of the block did the same."),
        ({}, "The other 31 warps of the block did the same."),
    ],
)
def test_other_warps_are_counted(tiles, ends):
    s = GemmShape(64, 64, 64)
    scene = warps_scene(s, "gemm/shared-tile", tiles, *matrices(s)[:2])
    assert scene.caption(scene.steps - 1).startswith(ends)
    assert not any(" 1 warps" in scene.caption(t) for t in range(scene.steps))


def test_cells_of_banks_are_not_named_as_cells_of_the_kernels_array():
    s = GemmShape(64, 64, 64)
    scene = warps_scene(s, "gemm/bank-free", smallest("gemm/bank-free"), *matrices(s)[:2])
    assert [scene.tensor(name).symbol for name in ("tile_a", "tile_b")] == ["tile_a by bank", "tile_b by bank"]


def test_equal_requests_share_a_step():
    s = GemmShape(64, 64, 64)
    scene = warps_scene(s, "gemm/naive", {"BLOCK": 32}, *matrices(s)[:2])
    more = [t for t in range(scene.steps) if "more requests of the same kind" in scene.caption(t)]
    assert more[0] == MAX_SINGLE and f"Requests: {2 * 16 - MAX_SINGLE}." in scene.caption(more[0])


@pytest.mark.parametrize("rung", ["gemm/naive", "gemm/bank-free", "gemm/warp-tile", *DTYPES])
def test_payload_of_a_large_product_is_small(rung):
    s = GemmShape(256, 256, 4096, dtype=DTYPES.get(rung, "fp32"))
    meta, block = payload(warps_scene(s, rung, {}, *matrices(s)[:2]))
    max_bytes = {"gemm/mma-sync": 620_000, "gemm/naive": 150_000, "gemm/bank-free": 150_000}.get(rung, 300_000)
    assert len(block) + len(json.dumps(meta)) < max_bytes


# -- fragments -------------------------------------------------------------------------------------
def test_fragments_contain_every_element_once_and_end_with_the_product():
    rng = np.random.default_rng(3)
    A, B, C0 = (rng.integers(-4, 5, size).astype("f4") for size in ((16, 16), (16, 8), (16, 8)))
    scene = fragment_scene(A, B, C0)
    np.testing.assert_array_equal(scene.cells("C").reshape(16, 8), A @ B + C0)
    for name, whole in (("a", A), ("b", B), ("c", A @ B + C0)):
        np.testing.assert_array_equal(np.sort(scene.cells(name)), np.sort(whole.ravel()))
    # Lane 5 of the PTX ISA's tables: group 1, place 1 in it.
    lane = scene.cells("a").reshape(8, 32)[:, 5]
    np.testing.assert_array_equal(lane, [A[1, 2], A[1, 3], A[9, 2], A[9, 3], A[1, 10], A[1, 11], A[9, 10], A[9, 11]])
    np.testing.assert_array_equal(scene.cells("b").reshape(4, 32)[:, 5], [B[2, 1], B[3, 1], B[10, 1], B[11, 1]])
    assert "A: rows 1 and 9, columns 2, 3, 10 and 11." in scene.caption(5)
    assert scene.captions.args[6, :3].tolist() == [6, 1, 2], "lane 6: group 1, place 2 in it"
    note = next(note for note in scene.annotations if note.tensor == "B")
    assert note.captions.args[10 * 8 + 1].tolist() == [5, 2], "B[10, 1]: lane 5, value 2"
    with pytest.raises(ValueError, match="must be"):
        fragment_scene(A[:8], B)
