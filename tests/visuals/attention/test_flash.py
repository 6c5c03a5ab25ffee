"""Truth of flash attention's pictures: m, l and O after each tile, tiles that are skipped, bytes; against the emulated
kernels and the float64 softmax of the keys seen so far."""

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
    asked,
    emulated,
    kinds,
    matrix,
    part,
    random,
    reference,
    scene_at,
    stored,
    tick,
)
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.hard_scores import adversarial
from visuals.attention import flash_numbers, flash_steps
from visuals.attention.flash_numbers import Walk, stored_by
from visuals.attention.plan import Plan, part_of, plan_of
from visuals.scene.scene import Scene

pytestmark = needs_nvrtc
TOY = AttentionShape(1, 1, 16, 8, causal=1)
LOG2E = np.log2(np.e)


# -- m, l and O after each tile -----------------------------------------------------------------------
def walked(s: AttentionShape, plan: Plan, inputs, scene: Scene) -> None:
    """Holds each number on the stage to the float64 softmax of the keys that were seen so far."""
    Q, K, V = (inputs[name][0, 0].astype(float) for name in "QKV")
    S = Q @ K.T * np.float32(s.factor)
    if s.causal:
        S[np.triu_indices(s.N, 1)] = -np.inf
    base, close = (LOG2E, 2e-2) if plan.halves else (LOG2E if plan.binary else 1, 3e-5)
    shown, starts = part_of(s, plan), kinds(scene, "The block of queries")
    for block, first, stop in zip(shown.blocks, starts, [*starts[1:], scene.steps], strict=True):
        rows = block * plan.Br + shown.first + np.arange(min(shown.rows, s.N - block * plan.Br - shown.first))
        at = [t for t in kinds(scene, "of the tile is added", "The tiles that follow") if first < t < stop]
        tiles = [n + 1 for n in range(len(at))]
        if scene.caption(at[-1]).startswith("The tiles"):
            tiles[-1] = plan.visited(s, block)
        for t, n in zip(at, tiles, strict=True):
            own = S[rows, : n * plan.Bc]
            m = own.max(axis=1)
            p = np.exp(own - m[:, None])
            np.testing.assert_allclose(matrix(scene, "m", t)[: len(rows), 0], m * base, 1e-4, 1e-5)
            np.testing.assert_allclose(
                matrix(scene, "l", t)[: len(rows), 0], p.sum(axis=1), max(close / 10, 3e-5)
            )
            size = p @ np.abs(V[: own.shape[1]])
            wrong = abs(matrix(scene, "o", t)[: len(rows)] - (p @ V[: own.shape[1]])[:, : shown.cols])
            assert (wrong <= close * size[:, : shown.cols]).all()


@settings(max_examples=25, deadline=None)
@given(ask=asked(), seed=st.integers(0, 9))
def test_m_l_and_o_are_those_of_the_keys_seen_so_far(ask, seed):
    rung, tiles, s = ask
    inputs = random(s, seed)
    scene, plan = scene_at(s, rung, tiles, inputs)
    walked(s, plan, inputs, scene)


@pytest.mark.parametrize("rung", TILES)
def test_without_the_factor_the_end_would_be_wrong(rung, monkeypatch):
    """The checks above see a walk that never mends what was summed with an older maximum."""
    true = flash_numbers.walk

    def unmended(*of) -> Walk:
        w, tiles, before = true(*of), [], 0
        for tile in w.tiles:
            before = before + tile.O - tile.shrunk
            tiles.append(dataclasses.replace(tile, O=before))
        return dataclasses.replace(w, tiles=tuple(tiles), last=tiles[-1], O=before / w.last.l[:, None])

    s = AttentionShape(1, 1, 16 if rung != MMA else 40, 8, dtype="fp16" if rung == MMA else "fp32")
    inputs = random(s)
    walked(s, scene_at(s, rung, TILES[rung], inputs)[1], inputs, scene_at(s, rung, TILES[rung], inputs)[0])
    monkeypatch.setattr(flash_steps, "walk", unmended)
    scene, plan = scene_at(s, rung, TILES[rung], inputs)
    with pytest.raises(AssertionError):
        walked(s, plan, inputs, scene)
    O, scale = (part(scene, "O", of)[: plan.Br] for of in reference(s, inputs))  # noqa: E741
    assert (abs(matrix(scene, "O")[: plan.Br] - O) > 1e-3 * scale).any()


@pytest.mark.parametrize("kind", ["logits of 1e4", "all equal", "one hot", "rising", "falling"])
def test_numbers_stay_finite_however_large_the_scores(kind):
    s = AttentionShape(1, 1, 16, 16, causal=1, scale=1)
    inputs = adversarial(kind, s)
    scene, _ = scene_at(s, FLASH, TILES[FLASH], inputs)
    ref, scale = (part(scene, "O", of) for of in reference(s, inputs))
    assert (abs(matrix(scene, "O") - ref) <= 5e-6 * scale).all()
    assert np.isfinite(matrix(scene, "l")).all() and np.isfinite(matrix(scene, "o")).all()


# -- what the kernel stores ---------------------------------------------------------------------------
@settings(max_examples=12, deadline=None)
@given(ask=asked(most=30))
def test_o_is_what_the_kernel_stores(ask):
    rung, tiles, s = ask
    inputs = random(s)
    scene, _ = scene_at(s, rung, tiles, inputs)
    O = part(scene, "O", stored(emulated(s, rung, tiles, inputs), "O"))  # noqa: E741
    filled = np.isfinite(matrix(scene, "O")).all(axis=1)
    assert filled.any() and (s.N > 16 or filled.all())
    close = 2e-3 if rung == MMA else 2e-5
    np.testing.assert_allclose(matrix(scene, "O")[filled], O[filled], close, close)


def own_p(rung: str, trace, plan: Plan) -> np.ndarray:
    """float32 [tiles, Br, Bc]: P as a block of a rung stores it in shared memory, tile after tile."""
    first = attention_p_start(rung, plan)
    pitch = plan.Bc + (8 if rung == REGISTERS else 0)
    shared = trace.write & (np.array(trace.buffers, dtype=object)[trace.buffer] == "shared")
    at = shared & (trace.element >= first)
    row, col = np.divmod(trace.element[at].astype(int) - first, pitch)
    order = np.argsort(row * plan.Bc + col, kind="stable")
    return trace.value[at][order].reshape(plan.Br * plan.Bc, -1).T.reshape(-1, plan.Br, plan.Bc)


def attention_p_start(rung: str, plan: Plan) -> int:
    Br, Bc, DP = plan.Br, plan.Bc, plan.DP
    return Br * (DP + 4) + Bc * (DP + 4) + Bc * DP if rung == REGISTERS else Br * DP + Bc * (DP + 1) + Bc * DP


@pytest.mark.parametrize("rung", [FLASH, REGISTERS])
@pytest.mark.parametrize(
    "s", [TOY, AttentionShape(1, 1, 29, 5), AttentionShape(1, 1, 40, 12, causal=1)], ids=str
)
def test_p_and_the_tiles_are_what_the_trace_says(rung, s, monkeypatch):
    """Without a trace to take them from; the tiles a block walks over are the kernel's own, and so are those it skips."""
    monkeypatch.setattr(flash_steps, "stored_by", lambda *_: None)
    inputs = random(s)
    scene, plan = scene_at(s, rung, TILES[rung], inputs)
    shown = part_of(s, plan)
    steps = kinds(scene, "p = exp(s", "p = 2^(s")
    done = 0
    for block in shown.blocks:
        blocks = -(-s.N // plan.Br)
        number = blocks - 1 - block if s.causal and rung == REGISTERS else block
        trace = emulated(s, rung, TILES[rung], inputs, trace_block=number).trace[0]
        P = own_p(rung, trace, plan)
        assert len(P) == plan.visited(s, block)
        rows = slice(shown.first, shown.first + min(shown.rows, s.N - block * plan.Br))
        for n in range(min(len(P), shown.tiles)):
            mine = matrix(scene, "Ps", steps[done])[: rows.stop - rows.start]
            np.testing.assert_allclose(mine, P[n, rows], 2e-5, 1e-7)
            done += 1
    assert done == len(steps)


def test_the_toy_shows_the_emulators_own_numbers():
    inputs = random(TOY)
    scene, plan = scene_at(TOY, FLASH, TILES[FLASH], inputs)
    assert "the emulator saw" in scene.order_note
    trace = emulated(TOY, FLASH, TILES[FLASH], inputs, trace_block=3).trace[0]
    P = own_p(FLASH, trace, plan)
    last = kinds(scene, "p = exp(s")[-2:]
    for n, t in enumerate(last):
        np.testing.assert_array_equal(matrix(scene, "Ps", t), P[n])
    np.testing.assert_array_equal(
        matrix(scene, "O")[12:], stored(emulated(TOY, FLASH, TILES[FLASH], inputs), "O")[12:]
    )


def test_without_a_compiler_the_scene_is_the_same(monkeypatch):
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


def test_long_walks_are_not_traced():
    s = AttentionShape(1, 1, 4096, 64)
    plan = plan_of(s, FLASH, {"Br": 32, "Bc": 32})
    assert stored_by(s, plan, {}, 0) is None


@settings(max_examples=10, deadline=None)
@given(ask=asked((FLASH, REGISTERS)))
def test_shared_memory_holds_the_tile_that_is_at_hand(ask):
    rung, tiles, s = ask
    inputs = random(s)
    scene, plan = scene_at(s, rung, tiles, inputs)
    shown = part_of(s, plan)
    n = 0
    for t in range(scene.steps):
        words = scene.caption(t)
        if words.startswith("The block of"):
            n = 0
        elif "the scores of the tile" in words:
            for name, when in (("Ks", t), ("Vs", kinds(scene, "of the tile is added")[0] if n == 0 else t)):
                tile = np.zeros((plan.Bc, shown.cols), np.float32)
                rows = inputs[name[0]][0, 0, n * plan.Bc : (n + 1) * plan.Bc, : shown.cols]
                tile[: len(rows)] = rows
                np.testing.assert_array_equal(matrix(scene, name, when), tile)
            n += 1


# -- what is hidden ---------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(ask=asked())
def test_hidden_keys_are_skipped_or_minus_infinity(ask):
    rung, tiles, s = ask
    s = s.with_(causal=1)
    scene, plan = scene_at(s, rung, tiles, random(s))
    shown = part_of(s, plan)
    skipped = kinds(scene, "The loop ends here")
    every = -(-s.N // plan.Bc)
    assert len(skipped) == sum(plan.visited(s, b) < every for b in shown.blocks)
    for t in range(scene.steps):
        if scene.caption(t).startswith(("p = ", "Query")) and "sees no key" not in scene.caption(t):
            S = matrix(scene, "s", t)
            assert not np.isnan(S[:1]).any()
    last = shown.blocks[-1]
    n = min(plan.visited(s, last), shown.tiles)
    rows = last * plan.Br + shown.first + np.arange(shown.rows)
    rows = rows[rows < s.N]
    keys = (n - 1) * plan.Bc + np.arange(plan.Bc)
    hidden = (keys > rows[:, None]) | (keys >= s.N)
    np.testing.assert_array_equal(np.isneginf(matrix(scene, "s")[: len(rows)]), hidden)
    assert (matrix(scene, "Ps")[: len(rows)][hidden] == 0).all()


def test_the_matrix_is_air_and_its_tile_moves():
    scene, _ = scene_at(TOY, FLASH, TILES[FLASH], random(TOY))
    square = scene.tensor("SP")
    assert "never stored" in square.title and (square.rows, square.cols) == (16, 16)
    assert np.isnan(scene.cells("SP")).all()
    (read,) = [r for r in scene.reads if r.source == "SP"]
    seen = set(read.cells.tolist())
    rows, cols = np.divmod(np.array(sorted(seen)), 16)
    expected = {(i, j) for i in range(4) for j in range(8)} | {
        (i, j) for i in range(12, 16) for j in range(16)
    }
    assert set(zip(rows.tolist(), cols.tolist(), strict=True)) == expected
    told = next(of for of in scene.told if of.of == "SP")
    assert told.words.kind.reshape(16, 16)[0, 15] == 2 and told.words.kind.reshape(16, 16)[15, 0] == 0


# -- bytes --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "s", [AttentionShape(1, 1, 13, 5), AttentionShape(1, 1, 4, 8), AttentionShape(1, 1, 64, 16)], ids=str
)
@pytest.mark.parametrize("rung", [FLASH, REGISTERS])
def test_bytes_are_those_of_the_trace(rung, s):
    """Of the first block: floats that its threads load and store, one by one, by buffer."""
    tiles = TILES[rung]
    inputs = random(s)
    scene, plan = scene_at(s, rung, tiles, inputs)
    session = emulated(s, rung, tiles, inputs, trace_block=0)
    trace = session.trace[0]
    names = np.array(trace.buffers, dtype=object)[trace.buffer]
    told = tick(scene)
    assert told["written to it"] == 4 * (names == "O").sum()
    copied = (
        plan.visited(s, 0) * 2 * 4 * plan.Bc * plan.DP if rung == REGISTERS else 0
    )  # cp.async is no store
    assert told["to and from shared memory"] == 4 * (names == "shared").sum() + copied
    if rung == FLASH:
        assert told["bytes read from global memory"] == 4 * (np.isin(names, list("QKV"))).sum()
    if -(-s.N // plan.Br) == 1:
        assert told["bytes read from global memory"] == session.counters.total["bytes_ld"]


@pytest.mark.parametrize("N", [9, 16])
def test_halves_are_two_bytes(N):
    s = AttentionShape(1, 1, N, 8, dtype="fp16")
    scene, _ = scene_at(s, MMA, TILES[MMA], random(s))
    total = emulated(s, MMA, TILES[MMA], random(s)).counters.total
    told = tick(scene)
    assert told["bytes read from global memory"] == total["bytes_ld"] == 3 * N * 8 * 2
    assert told["written to it"] == total["bytes_st"] == N * 8 * 2


@pytest.mark.parametrize("causal", [0, 1])
def test_warps_of_tensor_cores_read_what_they_are_said_to(causal):
    """Two warps, of which the first leaves out the last tile if causal; ldmatrix is in the trace, cp.async is not."""
    s, tiles = AttentionShape(1, 1, 32, 16, causal=causal, dtype="fp16"), TILES[MMA] | {"Br": 32}
    scene, plan = scene_at(s, MMA, tiles, random(s))
    trace = emulated(s, MMA, tiles, random(s), trace_block=0).trace[0]
    read = 2 * int((np.array(trace.buffers, dtype=object)[trace.buffer] == "shared").sum())
    copied = 2 * plan.DP * (plan.Br + 2 * 2 * plan.Bc)
    assert tick(scene)["to and from shared memory"] == read + copied
    assert read == 2 * plan.DP * (32 + 2 * 16 * (3 if causal else 4))
