"""Truth of flash attention's pictures: m, l and O after each tile, tiles that are skipped, bytes; against the emulated
kernels and the float64 softmax of the keys seen so far."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines.emulator.compile import CompilerMissing
from kernels.ladders import find
from kernels.ladders.gemm_parts import INPUT_DTYPE
from kernels.shapes_attention import AttentionShape
from tests.shapes import attention_shapes
from tests.unit.attention_scenes import emulated, kinds, lit, matrix, part, random, reference, stored, tick
from tests.unit.emulated import needs_nvrtc
from tests.unit.hard_scores import adversarial
from visuals.payload import payload
from visuals.scene import Scene
from visuals.scenes import attention_flash_steps, attention_walk
from visuals.scenes.attention import attention_scene, why_not
from visuals.scenes.attention_plan import Plan, part_of, plan_of
from visuals.scenes.attention_walk import Walk, stored_by

pytestmark = needs_nvrtc
FLASH, REGISTERS, MMA = "attention/flash", "attention/flash-registers", "attention/flash-mma"
TILES = {FLASH: {"Br": 4, "Bc": 8}, REGISTERS: {"Br": 32, "Bc": 8}, MMA: {"Br": 16, "Bc": 16, "WM": 16}}
TOY = AttentionShape(1, 1, 16, 8, causal=1)
LOG2E = np.log2(np.e)


def scene_at(s: AttentionShape, rung: str, tiles, inputs) -> tuple[Scene, Plan]:
    return attention_scene(s, rung, tiles, inputs), plan_of(s, rung, find(rung).check(s, tiles))


@st.composite
def asked(draw, rungs=(FLASH, REGISTERS, MMA), most: int = 40):
    rung = draw(st.sampled_from(rungs))
    s = draw(attention_shapes(most, 40, dtype="fp16" if rung == MMA else "fp32"))
    tiles = dict(TILES[rung])
    if rung == FLASH:
        tiles = {"Br": draw(st.sampled_from([4, 8, 16])), "Bc": draw(st.sampled_from([8, 16]))}
    return rung, tiles, s


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
    true = attention_walk.walk

    def unmended(s, plan, head, queries, stored=None) -> Walk:
        w, tiles, before = true(s, plan, head, queries, stored), [], 0
        for tile in w.tiles:
            before = before + tile.O - tile.shrunk
            tiles.append(dataclasses.replace(tile, O=before))
        return dataclasses.replace(w, tiles=tuple(tiles), O=before / w.tiles[-1].l[:, None])

    s = AttentionShape(1, 1, 16 if rung != MMA else 40, 8, dtype="fp16" if rung == MMA else "fp32")
    inputs = random(s)
    walked(s, scene_at(s, rung, TILES[rung], inputs)[1], inputs, scene_at(s, rung, TILES[rung], inputs)[0])
    monkeypatch.setattr(attention_flash_steps, "walk", unmended)
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
    monkeypatch.setattr(attention_flash_steps, "stored_by", lambda *_: None)
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

    attention_walk._stored.cache_clear()
    monkeypatch.setattr(attention_walk.emulator, "trace_launch", missing)
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
    (told,) = scene.told
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


# -- what is said ------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(ask=asked())
def test_every_step_has_its_words_and_its_line(ask):
    rung, tiles, s = ask
    scene, _ = scene_at(s, rung, tiles, random(s))
    for t in range(scene.steps):
        words = scene.caption(t)
        assert "{" not in words and "](" not in words and "nan" not in words.lower()
        assert not re.search(r"\b1 (more )?(tiles|blocks|heads|keys)\b", words)
        assert lit(scene, t).strip()


LIT = {  # what is said: (flash, flash-registers, flash-mma)
    "into shared memory": ("Qs[e / DP][c] =", "Qs[r][k]", "fetch<Br>(Qs"),
    "the scores of the tile": ("s += Qs", "s[i][n] += q[i].x", "add_scores"),
    "largest score": ("most = fmaxf(most, m)", "m[i] = most", "move_bases(s"),
    "never above 1": ("p = expf(", "p = exp2_(", "take_exponents(p"),
    "shrinks by": ("o[n] *= shrink", "o[i][n] *= shrink", "scale_rows(o"),
    "of the tile is added": ("o[n] += Ps", "o[i][n] += p", "add_values(o"),
    "add up their parts": ("l += __shfl", "l[i] += __shfl", "sum += __shfl"),
    "Only now all is divided": ("= o[n] / l", "store4(O", "write_row(O"),
}


@pytest.mark.parametrize("n", range(3))
def test_the_line_lit_is_the_one_that_runs(n):
    rung = (FLASH, REGISTERS, MMA)[n]
    s = AttentionShape(1, 1, 40, 8, causal=1, dtype="fp16" if rung == MMA else "fp32")
    scene, _ = scene_at(s, rung, TILES[rung], random(s))
    for words, lines in LIT.items():
        found = [
            t
            for t in kinds(scene, words)
            if words != "into shared memory" or "block of queries" in scene.caption(t)
        ]
        assert found and all(lines[n] in lit(scene, t) for t in found), words


def test_words_carry_the_readers_numbers():
    """The caption of a rescaling says what m, l and the factor on the stage are."""
    scene, _ = scene_at(TOY, FLASH, TILES[FLASH], random(TOY))
    (t,) = kinds(scene, "the older sum times the factor")
    query, old, factor, p, new = re.match(
        r"l of query (\d+): .* ([\d.]+) × ([\d.]+) \+ ([\d.]+) = ([\d.]+)\.", scene.caption(t)
    ).groups()
    row = int(query) - 12
    assert matrix(scene, "l", t)[row, 0] == pytest.approx(float(new), rel=1e-3)
    assert matrix(scene, "l", t - 1)[row, 0] == pytest.approx(float(old), rel=1e-3)
    assert matrix(scene, "shrink", t)[row, 0] == pytest.approx(float(factor), rel=1e-3)
    assert matrix(scene, "Ps", t)[row].sum() == pytest.approx(float(p), rel=1e-3)


def test_what_storing_s_and_p_would_cost_is_told():
    s = AttentionShape(1, 1, 64, 16)
    scene, _ = scene_at(s, FLASH, {"Br": 16, "Bc": 16}, random(s))
    (t,) = kinds(scene, "Only now all is divided")
    assert f"writes {2 * 4 * 16 * 64} bytes more for these queries" in scene.caption(t)


# -- parts, sizes --------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", TILES)
@pytest.mark.parametrize("causal", [0, 1])
def test_a_part_of_a_long_head_is_true_and_says_which(rung, causal):
    s = AttentionShape(2, 12, 300, 64, causal=causal, dtype="bf16" if rung == MMA else "fp32")
    inputs = random(s)
    scene, _ = scene_at(s, rung, {} if rung != MMA else TILES[MMA], inputs)
    ref, scale = (part(scene, "O", of) for of in reference(s, inputs))
    rounded = 4 * 2.0**-8 / 5e-6 if rung == MMA else 1  # as the reference admits for bfloat16
    assert INPUT_DTYPE[s.dtype] == ("bfloat16" if rung == MMA else "float32")
    assert (abs(matrix(scene, "O") - ref) <= 5e-6 * max(1, rounded) * scale).all()
    O = scene.tensor("O")  # noqa: E741
    assert O.partial and f"part {O.origin[1]}–{O.origin[1] + O.rows - 1}, 0–7 of 300 × 64" in O.note
    assert scene.groups[0].title == "global memory, head 0 of 12, sequence 0 of 2"
    assert bool(kinds(scene, "The loop ends here")) == bool(causal)


@pytest.mark.parametrize(
    ("s", "most"),
    [(TOY, 100_000), (AttentionShape(1, 1, 8, 4), 100_000), (AttentionShape(1, 1, 64, 16), 200_000)],
    ids=str,
)
def test_payloads_are_small(s, most):
    tiles = TILES[FLASH] if s.N <= 16 else {"Br": 16, "Bc": 16}
    for rung in (FLASH, REGISTERS, MMA):
        of = s.with_(dtype="fp16" if rung == MMA else "fp32")
        given_ = tiles if rung == FLASH else TILES[rung]
        assert why_not(of, rung, given_) == ""
        meta, block = payload(attention_scene(of, rung, given_, random(of)))
        assert len(block) + len(json.dumps(meta)) < most
