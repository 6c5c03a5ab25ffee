"""Flash attention's scenes: m, l and O after each tile equal the float64 softmax of the keys so far. Stored values, skipped
tiles and bytes equal those of the emulated kernels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.shape import AttentionShape
from kernels.engines.emulator.compiler.compile import CompilerMissing
from tests.helpers.attention_scenes import (
    FLASH,
    MMA,
    REGISTERS,
    TILES,
    attention_cases,
    emulated,
    kinds,
    last_readings,
    matrix,
    part,
    random,
    reference,
    scene_at,
    stored,
)
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.hard_scores import adversarial
from visuals.attention import flash_numbers, flash_steps
from visuals.attention.flash_numbers import BlockResult, stored_by
from visuals.attention.plan import Plan, part_of, plan_of
from visuals.scene.scene import Scene

pytestmark = needs_nvrtc
TOY = AttentionShape(1, 1, 16, 8, causal=1)
LOG2E = np.log2(np.e)


# -- m, l and O after each tile -----------------------------------------------------------------------
def check_against_softmax(s: AttentionShape, plan: Plan, inputs, scene: Scene) -> None:
    """Asserts that m, l and O after each tile equal the float64 softmax of the keys so far."""
    Q, K, V = (inputs[name][0, 0].astype(float) for name in "QKV")
    S = Q @ K.T * np.float32(s.factor)
    if s.causal:
        S[np.triu_indices(s.N, 1)] = -np.inf
    base, tolerance = (LOG2E, 2e-2) if plan.halves else (LOG2E if plan.binary else 1, 3e-5)
    visible, starts = part_of(s, plan), kinds(scene, "The block of queries")
    for block, first, stop in zip(visible.blocks, starts, [*starts[1:], scene.steps], strict=True):
        rows = block * plan.Br + visible.first + np.arange(min(visible.rows, s.N - block * plan.Br - visible.first))
        at = [t for t in kinds(scene, "is added to O", "The block processes") if first < t < stop]
        tiles = [n + 1 for n in range(len(at))]
        if scene.caption(at[-1]).startswith("The block processes"):
            tiles[-1] = plan.visited(s, block)
        for t, n in zip(at, tiles, strict=True):
            scores = S[rows, : n * plan.Bc]
            m = scores.max(axis=1)
            p = np.exp(scores - m[:, None])
            np.testing.assert_allclose(matrix(scene, "m", t)[: len(rows), 0], m * base, 1e-4, 1e-5)
            np.testing.assert_allclose(matrix(scene, "l", t)[: len(rows), 0], p.sum(axis=1), max(tolerance / 10, 3e-5))
            size = p @ np.abs(V[: scores.shape[1]])
            error = abs(matrix(scene, "o", t)[: len(rows)] - (p @ V[: scores.shape[1]])[:, : visible.cols])
            assert (error <= tolerance * size[:, : visible.cols]).all()


@settings(max_examples=10)
@given(case=attention_cases(), seed=st.integers(0, 9))
def test_m_l_and_o_equal_the_softmax_of_the_keys_so_far(case, seed):
    rung, tiles, s = case
    inputs = random(s, seed)
    scene, plan = scene_at(s, rung, tiles, inputs)
    check_against_softmax(s, plan, inputs, scene)


@pytest.mark.parametrize("rung", TILES)
def test_missing_rescaling_is_detected(rung, monkeypatch):
    """The checks above detect sums that are not rescaled after the maximum changes."""
    original = flash_numbers.compute_block

    def without_rescaling(*whole) -> BlockResult:
        w, tiles, before = original(*whole), [], 0
        for tile in w.tiles:
            before = before + tile.O - tile.shrunk
            tiles.append(dataclasses.replace(tile, O=before))
        return dataclasses.replace(w, tiles=tuple(tiles), last=tiles[-1], O=before / w.last.l[:, None])

    s = AttentionShape(1, 1, 16 if rung != MMA else 40, 8, dtype="fp16" if rung == MMA else "fp32")
    inputs = random(s)
    inputs["Q"] *= 4  # the maximum of a followed query changes
    check_against_softmax(
        s, scene_at(s, rung, TILES[rung], inputs)[1], inputs, scene_at(s, rung, TILES[rung], inputs)[0]
    )
    monkeypatch.setattr(flash_steps, "compute_block", without_rescaling)
    scene, plan = scene_at(s, rung, TILES[rung], inputs)
    with pytest.raises(AssertionError):
        check_against_softmax(s, plan, inputs, scene)
    O, scale = (part(scene, "O", whole)[: plan.Br] for whole in reference(s, inputs))  # noqa: E741
    assert (abs(matrix(scene, "O")[: plan.Br] - O) > 1e-3 * scale).any()


@pytest.mark.parametrize("kind", ["logits of 1e4", "all equal", "one hot", "rising", "falling"])
def test_numbers_are_finite_at_large_scores(kind):
    s = AttentionShape(1, 1, 16, 16, causal=1, scale=1)
    inputs = adversarial(kind, s)
    scene, _ = scene_at(s, FLASH, TILES[FLASH], inputs)
    ref, scale = (part(scene, "O", whole) for whole in reference(s, inputs))
    assert (abs(matrix(scene, "O") - ref) <= 5e-6 * scale).all()
    assert np.isfinite(matrix(scene, "l")).all() and np.isfinite(matrix(scene, "o")).all()


# -- what the kernel stores ---------------------------------------------------------------------------
@settings(max_examples=6)
@given(case=attention_cases(most=30))
def test_o_equals_the_kernels_output(case):
    rung, tiles, s = case
    inputs = random(s)
    scene, _ = scene_at(s, rung, tiles, inputs)
    O = part(scene, "O", stored(emulated(s, rung, tiles, inputs), "O"))  # noqa: E741
    filled = np.isfinite(matrix(scene, "O")).all(axis=1)
    assert filled.any() and (s.N > 16 or filled.all())
    tolerance = 2e-3 if rung == MMA else 2e-5
    np.testing.assert_allclose(matrix(scene, "O")[filled], O[filled], tolerance, tolerance)


def trace_P(rung: str, trace, plan: Plan) -> np.ndarray:
    """Returns P as a block stores it in shared memory, float32 [tiles, Br, Bc]."""
    first = start_of_P(rung, plan)
    pitch = plan.Bc + (8 if rung == REGISTERS else 0)
    shared = trace.write & (np.array(trace.buffers, dtype=object)[trace.buffer] == "shared")
    at = shared & (trace.element >= first)
    row, col = np.divmod(trace.element[at].astype(int) - first, pitch)
    order = np.argsort(row * plan.Bc + col, kind="stable")
    return trace.value[at][order].reshape(plan.Br * plan.Bc, -1).T.reshape(-1, plan.Br, plan.Bc)


def start_of_P(rung: str, plan: Plan) -> int:
    Br, Bc, DP = plan.Br, plan.Bc, plan.DP
    return Br * (DP + 4) + Bc * (DP + 4) + Bc * DP if rung == REGISTERS else Br * DP + Bc * (DP + 1) + Bc * DP


@pytest.mark.parametrize("rung", [FLASH, REGISTERS])
@pytest.mark.parametrize("s", [TOY, AttentionShape(1, 1, 29, 5), AttentionShape(1, 1, 40, 12, causal=1)], ids=str)
def test_p_and_the_tiles_equal_the_trace(rung, s, monkeypatch):
    """Without the trace's P. The kernel visits and skips the same tiles."""
    monkeypatch.setattr(flash_steps, "stored_by", lambda *_: None)
    inputs = random(s)
    scene, plan = scene_at(s, rung, TILES[rung], inputs)
    visible = part_of(s, plan)
    steps = kinds(scene, "p = exp(s", "p = 2^(s")
    checked = 0
    for block in visible.blocks:
        blocks = -(-s.N // plan.Br)
        number = blocks - 1 - block if s.causal and rung == REGISTERS else block
        trace = emulated(s, rung, TILES[rung], inputs, trace_block=number).trace[0]
        P = trace_P(rung, trace, plan)
        assert len(P) == plan.visited(s, block)
        rows = slice(visible.first, visible.first + min(visible.rows, s.N - block * plan.Br))
        for n in range(min(len(P), visible.tiles)):
            P_shown = matrix(scene, "Ps", steps[checked])[: rows.stop - rows.start]
            np.testing.assert_allclose(P_shown, P[n, rows], 2e-5, 1e-7)
            checked += 1
    assert checked == len(steps)


def test_small_scene_has_the_emulators_numbers():
    inputs = random(TOY)
    scene, plan = scene_at(TOY, FLASH, TILES[FLASH], inputs)
    assert "the emulator saw" in scene.order_note
    trace = emulated(TOY, FLASH, TILES[FLASH], inputs, trace_block=3).trace[0]
    P = trace_P(FLASH, trace, plan)
    last = kinds(scene, "p = exp(s")[-2:]
    for n, t in enumerate(last):
        np.testing.assert_array_equal(matrix(scene, "Ps", t), P[n])
    np.testing.assert_array_equal(matrix(scene, "O")[12:], stored(emulated(TOY, FLASH, TILES[FLASH], inputs), "O")[12:])


def test_scene_without_a_compiler_is_equal(monkeypatch):
    inputs = random(TOY)
    traced = scene_at(TOY, FLASH, TILES[FLASH], inputs)[0]

    def missing(*_, **__):
        raise CompilerMissing("none here")

    flash_numbers._stored.cache_clear()
    monkeypatch.setattr(flash_numbers.emulator, "trace_launch", missing)
    scene = scene_at(TOY, FLASH, TILES[FLASH], inputs)[0]
    assert "emulator" not in scene.order_note and scene.steps == traced.steps
    for t in range(scene.steps):
        for name in ("m", "l", "o", "Ps", "O"):
            np.testing.assert_allclose(scene.cells(name, t), traced.cells(name, t), 2e-5, 1e-6)


def test_long_heads_are_not_traced():
    s = AttentionShape(1, 1, 4096, 64)
    plan = plan_of(s, FLASH, {"Br": 32, "Bc": 32})
    assert stored_by(s, plan, {}, 0) is None


@settings(max_examples=10)
@given(case=attention_cases((FLASH, REGISTERS)))
def test_shared_memory_has_the_current_tile(case):
    rung, tiles, s = case
    inputs = random(s)
    scene, plan = scene_at(s, rung, tiles, inputs)
    visible = part_of(s, plan)
    n = 0
    for t in range(scene.steps):
        caption = scene.caption(t)
        if caption.startswith("The block of"):
            n = 0
        elif "the scores of the tile" in caption:
            for name, when in (("Ks", t), ("Vs", kinds(scene, "is added to O")[0] if n == 0 else t)):
                tile = np.zeros((plan.Bc, visible.cols), np.float32)
                rows = inputs[name[0]][0, 0, n * plan.Bc : (n + 1) * plan.Bc, : visible.cols]
                tile[: len(rows)] = rows
                np.testing.assert_array_equal(matrix(scene, name, when), tile)
            n += 1


# -- what is hidden ---------------------------------------------------------------------------------
@settings(max_examples=10)
@given(case=attention_cases())
def test_hidden_keys_are_skipped_or_minus_infinity(case):
    rung, tiles, s = case
    s = s.with_(causal=1)
    scene, plan = scene_at(s, rung, tiles, random(s))
    visible = part_of(s, plan)
    skipped = kinds(scene, "The loop ends here")
    all_tiles = -(-s.N // plan.Bc)
    assert len(skipped) == sum(plan.visited(s, b) < all_tiles for b in visible.blocks)
    for t in range(scene.steps):
        if scene.caption(t).startswith(("The weights", "Query")) and "sees no key" not in scene.caption(t):
            S = matrix(scene, "s", t)
            assert not np.isnan(S[:1]).any()
    last = visible.blocks[-1]
    n = min(plan.visited(s, last), visible.tiles)
    rows = last * plan.Br + visible.first + np.arange(visible.rows)
    rows = rows[rows < s.N]
    keys = (n - 1) * plan.Bc + np.arange(plan.Bc)
    hidden = (keys > rows[:, None]) | (keys >= s.N)
    np.testing.assert_array_equal(np.isneginf(matrix(scene, "s")[: len(rows)]), hidden)
    assert (matrix(scene, "Ps")[: len(rows)][hidden] == 0).all()


def test_score_matrix_is_empty_and_its_visited_tiles_are_read():
    scene, _ = scene_at(TOY, FLASH, TILES[FLASH], random(TOY))
    square = scene.tensor("SP")
    assert "not in global memory" in square.title and (square.rows, square.cols) == (16, 16)
    assert np.isnan(scene.cells("SP")).all()
    (read,) = [r for r in scene.reads if r.source == "SP"]
    cells = set(read.cells.tolist())
    rows, cols = np.divmod(np.array(sorted(cells)), 16)
    expected = {(i, j) for i in range(4) for j in range(8)} | {(i, j) for i in range(12, 16) for j in range(16)}
    assert set(zip(rows.tolist(), cols.tolist(), strict=True)) == expected
    annotation = next(note for note in scene.annotations if note.tensor == "SP")
    assert annotation.captions.kind.reshape(16, 16)[0, 15] == 2 and annotation.captions.kind.reshape(16, 16)[15, 0] == 0


# -- bytes --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "s", [AttentionShape(1, 1, 13, 5), AttentionShape(1, 1, 4, 8), AttentionShape(1, 1, 64, 16)], ids=str
)
@pytest.mark.parametrize("rung", [FLASH, REGISTERS])
def test_bytes_equal_the_trace(rung, s):
    """Of the first block: floats that its threads load and store, by buffer."""
    tiles = TILES[rung]
    inputs = random(s)
    scene, plan = scene_at(s, rung, tiles, inputs)
    session = emulated(s, rung, tiles, inputs, trace_block=0)
    trace = session.trace[0]
    names = np.array(trace.buffers, dtype=object)[trace.buffer]
    readings = last_readings(scene)
    assert readings["bytes written to global memory"] == 4 * (names == "O").sum()
    copied = plan.visited(s, 0) * 2 * 4 * plan.Bc * plan.DP if rung == REGISTERS else 0  # cp.async is no store
    assert readings["bytes to and from shared memory"] == 4 * (names == "shared").sum() + copied
    if rung == FLASH:
        assert readings["bytes read from global memory"] == 4 * (np.isin(names, list("QKV"))).sum()
    if -(-s.N // plan.Br) == 1:
        assert readings["bytes read from global memory"] == session.counters.total["bytes_ld"]


@pytest.mark.parametrize("N", [9, 16])
def test_halves_are_two_bytes(N):
    s = AttentionShape(1, 1, N, 8, dtype="fp16")
    scene, _ = scene_at(s, MMA, TILES[MMA], random(s))
    total = emulated(s, MMA, TILES[MMA], random(s)).counters.total
    readings = last_readings(scene)
    assert readings["bytes read from global memory"] == total["bytes_ld"] == 3 * N * 8 * 2
    assert readings["bytes written to global memory"] == total["bytes_st"] == N * 8 * 2


@pytest.mark.parametrize("causal", [0, 1])
def test_tensor_core_warps_read_the_bytes_of_the_trace(causal):
    """Two warps; if causal, the first skips the last tile. The trace has ldmatrix but not cp.async."""
    s, tiles = AttentionShape(1, 1, 32, 16, causal=causal, dtype="fp16"), TILES[MMA] | {"Br": 32}
    scene, plan = scene_at(s, MMA, tiles, random(s))
    trace = emulated(s, MMA, tiles, random(s), trace_block=0).trace[0]
    read = 2 * int((np.array(trace.buffers, dtype=object)[trace.buffer] == "shared").sum())
    copied = 2 * plan.DP * (plan.Br + 2 * 2 * plan.Bc)
    assert last_readings(scene)["bytes to and from shared memory"] == read + copied
    assert read == 2 * plan.DP * (32 + 2 * 16 * (3 if causal else 4))
