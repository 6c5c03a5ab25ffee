"""Truth of the pictures of warps and fragments: requests, values and counts are the emulator's."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.engines.emulator import counters
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from tests.visuals.gemm.test_scene import DTYPES, RUNGS, asked, emulated, matrices, smallest
from visuals.gemm.fragment import fragment_scene
from visuals.gemm.plan import plan_of
from visuals.gemm.warp_requests import GLOBAL, MOST_ALIKE, SHARED, TEMPLATES, Asked
from visuals.gemm.warps import shorter, traced, warps_scene
from visuals.scene.payload import payload
from visuals.scene.requests import bank_places, fewest_passes, lanes_of, mask_of, sectors_asked

KINDS = list(TEMPLATES)
THREADS = [name for name in RUNGS if name not in ("gemm/wmma", "gemm/mma-sync")]
FLOATS = [name for name in RUNGS if name not in ("gemm/wmma", "gemm/dp4a")]


# -- the elements ----------------------------------------------------------------------------------
@st.composite
def requests(draw):
    """(bytes, mask, width): aligned to the width, scattered or in order."""
    width = draw(st.sampled_from([4, 8, 16]))
    stride, turn = draw(st.integers(0, 40)), draw(st.integers(1, 32))
    place = draw(st.one_of(
        st.lists(st.integers(0, 300), min_size=32, max_size=32),
        st.just([lane * stride for lane in range(32)]),
        st.just([lane // turn * stride + lane % turn for lane in range(32)]),
    ))  # fmt: skip
    mask = draw(st.one_of(st.just(2**32 - 1), st.integers(1, 2**32 - 1)))
    return np.array(place) * width, mask, width


@settings(max_examples=200, deadline=None)
@given(requests())
def test_passes_and_sectors_are_those_of_the_counters(request):
    byte, mask, width = request
    on = np.zeros((1, 32), bool)
    on[0, lanes_of(mask)] = True
    assert mask_of(lanes_of(mask)) == mask
    waves, least = counters.wavefronts(byte[None].astype(np.uint64), on, width)
    turn, bank, lane = bank_places(byte, mask, width)
    assert (int(turn.max()) + 1, fewest_passes(byte, mask, width)) == (waves, least)
    assert len(set(zip(turn, bank, strict=True))) == len(turn)  # a bank serves one word in a pass
    assert set(lane) <= set(lanes_of(mask))
    count, fewest = sectors_asked(byte, mask, width)
    assert count == counters.distinct(byte[None] // 32, on) and fewest <= count


# -- requests --------------------------------------------------------------------------------------
def asked_by(s, rung, tiles, A, B, C0, warp=0):
    """The steps of a warp, and the trace they are from."""
    plan = plan_of(s, rung, tiles)
    cut = shorter(s, plan)
    inputs = {"A": A[: cut.M, : cut.K], "B": B[: cut.K]} | ({"C0": C0[: cut.M]} if s.beta else {})
    trace, counted = traced(cut, rung, tiles, inputs)
    return Asked(cut, plan, inputs, trace, warp, s.K), trace, counted


@pytest.mark.parametrize("rung", THREADS)
def test_what_all_warps_ask_adds_up_to_the_counters(rung):
    tiles = smallest(rung)
    s = GemmShape(21, 27, 24, beta=1, dtype=DTYPES.get(rung, "fp32"))
    total = np.zeros(4, int)
    plan = plan_of(s, rung, tiles)
    for warp in range(-(-plan.threads // 32)):
        steps, _, counted = asked_by(s, rung, tiles, *matrices(s), warp=warp)
        total += np.sum(steps.counts, axis=0)
    t = counted.total
    passes, conflicts = (t[f"{name}_ld"] + t[f"{name}_st"] for name in ("wavefronts", "bank_conflicts"))
    assert total.tolist() == [t["sectors_ld"], t["sectors_st"], passes, conflicts]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked(rungs=tuple(FLOATS)))
def test_lanes_get_the_values_that_the_kernel_loaded(ask):
    """Each load that is a step of its own: every lane's values stand in its column, from the cells outlined."""
    rung, tiles, s = ask
    A, B, C0 = matrices(s, whole=False)
    steps, trace, _ = asked_by(s, rung, tiles, A, B, C0)
    scene = warps_scene(s, rung, tiles, A, B, C0)
    names, seen, got = np.array(trace.buffers)[trace.buffer], 0, set()
    mine = ~trace.write & (trace.thread < 32)
    if s.dtype == "fp16":  # mma_sync moves A and B as bits; its fragments are fp16
        mine &= names == "shared"
    for moment in np.unique(steps.moments):
        told = [t for t, at in enumerate(steps.moments) if at == moment]
        kinds = [KINDS[steps.kinds[t]] for t in told]
        loads = [t for t, kind in zip(told, kinds, strict=True) if kind[0] == "ld"]
        # Loads that ptxas makes one come to the lanes with the first of them.
        got |= {(lane, value) for t in loads for lane, value in values_at(scene, steps, t)}
        if not loads or ("more", "") in kinds:
            continue
        at = mine & (trace.step == moment) & np.isin(names, (*GLOBAL, *SHARED, "shared"))
        loaded = {(int(n), float(v)) for n, v in zip(trace.thread[at], trace.value[at], strict=True)}
        assert loaded <= got
        seen += len(loaded)
    assert seen or rung in ("gemm/double-buffer", "gemm/warp-tile", "gemm/mma-sync")


def values_at(scene, steps, t):
    """(lane, value) of what comes to the lanes at a step."""
    for (target, source), told in steps.copies.items():
        if target not in ("a", "b", "c"):
            continue
        held = scene.cells(source, t)
        for at, cells, index in told:
            if at == t:
                yield from ((int(cell % 32), float(held[i])) for cell, i in zip(cells, index, strict=True))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked())
def test_the_last_picture_is_what_the_block_computed(ask):
    rung, tiles, s = ask
    A, B, C0 = matrices(s)
    scene = warps_scene(s, rung, tiles, A, B, C0)
    plan = plan_of(s, rung, tiles)
    cut = shorter(s, plan)
    C = scene.tensor("C")
    out = emulated(cut, rung, tiles, A[: cut.M, : cut.K], B[: cut.K], C0[: cut.M]).output
    np.testing.assert_array_equal(scene.cells("C"), out[: C.rows, : C.cols].astype("f4").ravel())
    assert ("the loop was cut short" in scene.caption(scene.steps - 1)) == (cut.K < s.K)
    assert (f"cut to {cut.K} of {s.K:,} terms" in scene.order_note) == (cut.K < s.K)


@pytest.mark.parametrize("K", [16, 70, 1024, 4095])
def test_a_shorter_loop_keeps_where_rows_begin_in_a_sector(K):
    for rung in RUNGS:
        s = GemmShape(64, 64, K, dtype=DTYPES.get(rung, "fp32"))
        cut = shorter(s, plan_of(s, rung, {}))
        item = {"fp32": 4, "fp16": 2, "int8": 1}[s.dtype]
        assert (K - cut.K) * item % 32 == 0 and min(K, 16) <= cut.K


def test_uncoalesced_asks_for_a_sector_a_lane_and_naive_for_few():
    s = GemmShape(64, 64, 64)
    A, B, _ = matrices(s)
    words = (
        "loads from A in global memory: lanes 32, bytes each 4; sectors of 32 bytes {}, fewest possible {}."
    )
    first = []
    for name in ("uncoalesced", "naive"):
        scene = warps_scene(s, f"gemm/{name}", {"BLOCK": 32}, A, B)
        first.append(scene.caption(0) + scene.caption(1))
    assert words.format(32, 4) in first[0] and words.format(1, 1) in first[1]


def test_alike_requests_are_told_together():
    s = GemmShape(64, 64, 64)
    scene = warps_scene(s, "gemm/naive", {"BLOCK": 32}, *matrices(s)[:2])
    more = [t for t in range(scene.steps) if "goes on in the same way" in scene.caption(t)]
    assert more[0] == MOST_ALIKE and f"requests {2 * 16 - MOST_ALIKE}" in scene.caption(more[0])


@pytest.mark.parametrize("rung", RUNGS)
def test_the_scene_of_a_large_product_is_small(rung):
    s = GEMM_PRESETS["4096"].shape if "4096" in GEMM_PRESETS else GemmShape(4096, 4096, 4096)
    s = s.with_(dtype=DTYPES.get(rung, "fp32"))
    rng = np.random.default_rng(0)
    of = {"fp32": "f4", "fp16": "f2", "int8": "i1"}[s.dtype]
    A, B = rng.integers(-9, 9, (256, 4096)).astype(of), rng.integers(-9, 9, (4096, 4096)).astype(of)
    meta, block = payload(warps_scene(s, rung, {}, A, B))
    most = {
        "gemm/mma-sync": 620_000,
        "gemm/wmma": 300_000,
        "gemm/dp4a": 300_000,
        "gemm/warp-tile": 300_000,
    }.get(rung, 150_000)
    assert len(block) + len(json.dumps(meta)) < most


# -- fragments -------------------------------------------------------------------------------------
def test_fragments_hold_every_element_once_and_end_with_the_product():
    rng = np.random.default_rng(3)
    A, B, C0 = (rng.integers(-4, 5, size).astype("f4") for size in ((16, 16), (16, 8), (16, 8)))
    scene = fragment_scene(A, B, C0)
    np.testing.assert_array_equal(scene.cells("C").reshape(16, 8), A @ B + C0)
    for held, whole in (("a", A), ("b", B), ("c", A @ B + C0)):
        np.testing.assert_array_equal(np.sort(scene.cells(held)), np.sort(whole.ravel()))
    # Lane 5 of the PTX ISA's tables: group 1, place 1 in it.
    lane = scene.cells("a").reshape(8, 32)[:, 5]
    np.testing.assert_array_equal(
        lane, [A[1, 2], A[1, 3], A[9, 2], A[9, 3], A[1, 10], A[1, 11], A[9, 10], A[9, 11]]
    )
    np.testing.assert_array_equal(
        scene.cells("b").reshape(4, 32)[:, 5], [B[2, 1], B[3, 1], B[10, 1], B[11, 1]]
    )
    assert "rows 1 and 9 from column 2 and 10 on" in scene.caption(5)
    with pytest.raises(ValueError, match="must be"):
        fragment_scene(A[:8], B)
