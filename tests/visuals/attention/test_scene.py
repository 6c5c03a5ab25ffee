"""Scenes of attention: cells, empty cells and bytes equal those of the emulated kernels, m, l and O those of the softmax so far."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.ladders import LADDERS, find
from tests.helpers.attention_scenes import (
    FLASH,
    MMA,
    REGISTERS,
    TILES,
    attention_cases,
    cut,
    emulated,
    highlighted_line,
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
from tests.helpers.shapes import attention_shapes
from visuals.attention.inputs import qkv
from visuals.attention.scene import SCENES, VIEWS, attention_scene, why_not
from visuals.scene.payload import payload

pytestmark = needs_nvrtc
UNFUSED = ("attention/naive", "attention/blocked")
IN_ONE_LAUNCH = [rung for rung in TILES if rung not in UNFUSED]
TOY = AttentionShape(1, 1, 16, 8, causal=1)
LOG2E = np.log2(np.e)


def shape_for(rung: str, s: AttentionShape = TOY) -> AttentionShape:
    """Returns a shape that a rung runs."""
    s = s.with_(dtype="fp16" if "mma" in rung else "fp32")
    return s.with_(M=3 * s.N) if rung.endswith("decode") else s


# -- cells -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", TILES)
@settings(max_examples=4)
@given(s=attention_shapes(20, 20), seed=st.integers(0, 9))
def test_matrices_equal_the_kernels_buffers(rung, s, seed):
    """Elements that they never store are empty cells."""
    s = shape_for(rung, s)
    inputs = random(s, seed)
    session = emulated(s, rung, TILES[rung], inputs)
    scene = attention_scene(s, rung, TILES[rung], inputs)
    tolerance = 2e-3 if rung == MMA else 2e-6  # the build that is watched may round sums in another order
    for name in "SPO" if rung in UNFUSED else "O":
        np.testing.assert_allclose(matrix(scene, name), part(scene, name, stored(session, name)), tolerance, tolerance)


@pytest.mark.parametrize("rung", TILES)
@settings(max_examples=4)
@given(s=attention_shapes(), seed=st.integers(0, 9))
def test_o_equals_the_reference(rung, s, seed):
    """Of the queries and keys that the kernel ran at."""
    s = shape_for(rung, s)
    tiles = find(rung).check(s, TILES[rung])
    run, inputs = cut(s, VIEWS[rung].head(s, tiles).run, random(s, seed))
    scene = attention_scene(s, rung, tiles, random(s, seed))
    ref, scale = (part(scene, "O", whole) for whole in reference(run, inputs))
    assert (abs(matrix(scene, "O") - ref) <= (2e-3 if "mma" in rung else 5e-6) * scale).all()


@pytest.mark.parametrize("rung", UNFUSED)
def test_each_row_gets_maximum_then_sum_then_weights(rung):
    s, inputs = TOY, random(TOY)
    scene = attention_scene(s, rung, TILES[rung], inputs)
    S = inputs["Q"][0, 0].astype(float) @ inputs["K"][0, 0].T * s.factor
    for i in range(s.N):
        scores = S[i, : i + 1]
        first = kinds(scene, f"the softmax of query {i}.")[0]
        assert matrix(scene, "m", first)[i] == pytest.approx(scores.max(), rel=1e-5)
        assert not matrix(scene, "l", first)[i] and np.isnan(matrix(scene, "P", first)[i]).all()
        assert matrix(scene, "l", first + 1)[i] == pytest.approx(np.exp(scores - scores.max()).sum(), rel=1e-5)
        P = matrix(scene, "P", first + 2)[i]
        weights = np.exp(scores - scores.max())
        np.testing.assert_allclose(P[: i + 1], weights / weights.sum(), 2e-5)
        assert (P[i + 1 :] == 0).all() and P.sum() == pytest.approx(1)


def test_fused_replaces_scores_by_weights_in_place():
    s, inputs = TOY, random(TOY)
    scene = attention_scene(s, "attention/fused", TILES["attention/fused"], inputs)
    S = inputs["Q"][0, 0].astype(float) @ inputs["K"][0, 0].T * s.factor
    for i in range(8):
        row, first = S[i, : i + 1], kinds(scene, f"The block of query {i} ")[0]
        np.testing.assert_allclose(matrix(scene, "scores", first + 1)[0, : i + 1], row, 2e-5, 1e-6)
        assert matrix(scene, "m", first + 2) == pytest.approx(row.max(), rel=1e-5)
        np.testing.assert_allclose(matrix(scene, "scores", first + 3)[0, : i + 1], np.exp(row - row.max()), 2e-5, 1e-6)
        assert matrix(scene, "l", first + 3) == pytest.approx(np.exp(row - row.max()).sum(), rel=1e-5)


# -- flash attention: m, l and O after each tile -----------------------------------------------------
@settings(max_examples=10)
@given(case=attention_cases(), seed=st.integers(0, 9))
def test_m_l_and_o_equal_the_softmax_of_the_keys_so_far(case, seed):
    """Exponentials of the later kernels are powers of 2."""
    rung, tiles, s = case
    head = VIEWS[rung].head(s, find(rung).check(s, tiles))
    _, inputs = cut(s, head.run, random(s, seed))
    scene, _ = scene_at(s, rung, tiles, random(s, seed))
    Q, K, V = (inputs[name][0, 0].astype(float) for name in "QKV")
    S = Q @ K.T * np.float32(s.factor)
    if s.causal:
        S[np.triu_indices(head.run.N, 1)] = -np.inf
    base, tolerance = (1 if rung == FLASH else LOG2E), (2e-2 if rung == MMA else 3e-5)
    starts = kinds(scene, "The block of queries")
    for start, stop in zip(starts, [*starts[1:], scene.steps], strict=True):
        query = int(re.search(r"queries (\d+) to", scene.caption(start))[1])
        rows = query + np.arange(head.rows.start, head.rows.stop)
        rows = rows[rows < head.run.N]
        for n, t in enumerate((t for t in kinds(scene, "is added to O") if start < t < stop), 1):
            scores = S[rows, : n * tiles["Bc"]]
            m = scores.max(axis=1)
            p = np.exp(scores - m[:, None])
            np.testing.assert_allclose(matrix(scene, "m", t)[: len(rows), 0], m * base, 1e-4, 1e-5)
            np.testing.assert_allclose(matrix(scene, "l", t)[: len(rows), 0], p.sum(axis=1), max(tolerance / 10, 3e-5))
            size = (p @ np.abs(V[: scores.shape[1]]))[:, : len(head.cols)]
            error = abs(matrix(scene, "o", t)[: len(rows)] - (p @ V[: scores.shape[1]])[:, : len(head.cols)])
            assert (error <= tolerance * size).all()


@pytest.mark.parametrize("kind", ["logits of 1e4", "all equal", "one hot", "rising", "falling"])
def test_numbers_are_finite_at_large_scores(kind):
    s = AttentionShape(1, 1, 16, 16, causal=1, scale=1)
    inputs = adversarial(kind, s)
    scene, _ = scene_at(s, FLASH, TILES[FLASH], inputs)
    ref, scale = (part(scene, "O", whole) for whole in reference(s, inputs))
    assert (abs(matrix(scene, "O") - ref) <= 5e-6 * scale).all()
    assert np.isfinite(matrix(scene, "l")).all() and np.isfinite(matrix(scene, "o")).all()


@settings(max_examples=6)
@given(case=attention_cases((FLASH, REGISTERS)))
def test_shared_memory_has_the_current_tile(case):
    rung, tiles, s = case
    scene, _ = scene_at(s, rung, tiles, random(s))
    head = VIEWS[rung].head(s, find(rung).check(s, tiles))
    _, inputs = cut(s, head.run, random(s))
    for t in kinds(scene, "the scores of the tile"):
        first = int(re.search(r"and key (\d+) is", scene.caption(t))[1])
        for name in "KV":
            tile = np.zeros((tiles["Bc"], len(head.cols)), np.float32)
            rows = inputs[name][0, 0, first : first + tiles["Bc"], : len(head.cols)]
            tile[: len(rows)] = rows
            np.testing.assert_array_equal(matrix(scene, f"tile_{name.lower()}", t), tile)


@settings(max_examples=6)
@given(case=attention_cases())
def test_hidden_keys_are_skipped_or_minus_infinity(case):
    rung, tiles, s = case
    s = s.with_(causal=1)
    scene, plan = scene_at(s, rung, tiles, random(s))
    head = VIEWS[rung].head(s, find(rung).check(s, tiles))
    starts = kinds(scene, "The block of queries")
    blocks = [int(re.search(r"queries (\d+) to", scene.caption(t))[1]) // plan.Br for t in starts]
    all_tiles = -(-head.run.N // plan.Bc)
    assert len(kinds(scene, "The loop ends here")) == sum(plan.visited(head.run, b) < all_tiles for b in blocks)
    rows = blocks[-1] * plan.Br + np.arange(head.rows.start, head.rows.stop)
    rows = rows[rows < head.run.N]
    keys = (plan.visited(head.run, blocks[-1]) - 1) * plan.Bc + np.arange(plan.Bc)
    hidden = (keys > rows[:, None]) | (keys >= head.run.N)
    np.testing.assert_array_equal(np.isneginf(matrix(scene, "s")[: len(rows)]), hidden)


@pytest.mark.parametrize("rung", IN_ONE_LAUNCH)
def test_score_matrix_is_empty_and_its_visited_tiles_are_read(rung):
    s = shape_for(rung)
    scene = attention_scene(s, rung, TILES[rung], random(s))
    square = scene.tensor("SP")
    assert "not in global memory" in square.title and (square.rows, square.cols) == (16, 16)
    assert np.isnan(scene.cells("SP")).all()
    (read,) = [r for r in scene.reads if r.source == "SP"]
    found = np.zeros((16, 16), bool)
    found.ravel()[read.cells] = True
    if rung == FLASH:  # the first block and the last one
        assert found[:4, :8].all() and found[12:].all() and found.sum() == 4 * 8 + 4 * 16
    elif rung == "attention/fused":
        assert (found == (np.arange(16)[:, None] < 8) & np.tri(16, dtype=bool)).all()
    else:
        assert found.all()
    assert any(note.tensor == "SP" for note in scene.annotations)


# -- bytes -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", TILES)
@settings(max_examples=3)
@given(s=attention_shapes(16, 40))
def test_bytes_equal_the_counters(rung, s):
    s = shape_for(rung, s.with_(B=1, H=1))
    scene = attention_scene(s, rung, TILES[rung], random(s))
    total = emulated(s, rung, TILES[rung], random(s)).counters.total
    readings = last_readings(scene)
    assert readings["bytes read from global memory"] == total["bytes_ld"]
    assert readings["bytes written to global memory"] == total["bytes_st"]


# -- captions --------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", TILES)
@settings(max_examples=6)
@given(s=attention_shapes())
def test_every_step_has_a_caption_and_a_line(rung, s):
    s = shape_for(rung, s)
    scene = attention_scene(s, rung, TILES[rung], random(s))
    for t in range(scene.steps):
        caption = scene.caption(t)
        assert "{" not in caption and "](" not in caption and "nan" not in caption.lower()
        assert highlighted_line(scene, t).strip()
    for annotation in scene.annotations:
        assert len(annotation.captions.kind) == scene.tensor(annotation.tensor).size


LINES = {
    "attention/naive": {
        "computes one score": "sum += query_row[dim]",
        "reads the row again": "l += expf",
        "computes one element of O": "sum += weights[key]",
    },
    "attention/blocked": {"of K, columns": "tile_k[thread_row][thread_col] =", "ends at once": "return;"},
    "attention/fused": {"largest score": "m = fmaxf(m, scores[key])", "is replaced by": "l += scores[key] ="},
    FLASH: {
        "the scores of the tile": "s += tile_q",
        "largest score": "new_m = fmaxf(new_m, m)",
        "at most 1": "p = expf(",
        "multiplied by the same factor": "o[n] *= rescale",
        "is added to O": "o[n] += tile_p",
        "add their parts": "l += __shfl",
    },
    REGISTERS: {
        "the scores of the tile": "s[i][n] += q[i].x",
        "largest score": "m[i] = new_m",
        "at most 1": "p = exp2_(",
        "is added to O": "o[i][n] += p",
        "Now O is divided by l": "store4(O",
    },
    MMA: {
        "the scores of the tile": "add_scores",
        "largest score": "update_maxima(s",
        "at most 1": "compute_weights(p",
        "add their parts": "sum += __shfl",
    },
}


@pytest.mark.parametrize("rung", TILES)
def test_highlighted_line_matches_the_caption(rung):
    s = shape_for(rung)
    scene = attention_scene(s, rung, TILES[rung], random(s))
    for words, line in LINES[rung].items():
        steps = kinds(scene, words)
        assert steps and all(line in highlighted_line(scene, t) for t in steps), words


def test_caption_has_the_bytes_of_storing_s_and_p():
    s = AttentionShape(1, 1, 64, 16)
    scene, _ = scene_at(s, FLASH, {"Br": 16, "Bc": 16}, random(s))
    (t,) = kinds(scene, "Now O is divided by l")
    assert f"would write {2 * 4 * 16 * 64} bytes more, and read them again" in scene.caption(t)


def test_padding_is_said_not_to_be_drawn():
    """Rows in shared memory have more columns than the picture, which draws none of the zeros after d."""
    s = AttentionShape(1, 1, 16, 4)
    scene, plan = scene_at(s, FLASH, {"Br": 4, "Bc": 8}, random(s))
    assert (plan.DP, scene.tensor("tile_q").cols) == (8, 4)
    assert " Columns up to 8 are filled with zeros (not drawn)." in scene.caption(0)
    whole, plan = scene_at(TOY, FLASH, TILES[FLASH], random(TOY))
    assert plan.DP == TOY.d == whole.tensor("tile_q").cols and "Columns up to" not in whole.caption(0)


# Barriers of a block with two tiles.
@pytest.mark.parametrize(("rung", "count"), [(FLASH, 4), (REGISTERS, 4), (MMA, 3)])
def test_a_barrier_is_a_step_at_its_line(rung, count):
    s = shape_for(rung, AttentionShape(1, 1, 32, 16))
    tiles = find(rung).default_tiles | TILES[rung] | {"Bc": 16}
    scene = attention_scene(s, rung, tiles, random(s))
    at_barriers = [t for t in range(scene.steps) if "__syncthreads();" in highlighted_line(scene, t)]
    assert at_barriers == [t for t in range(scene.steps) if scene.caption(t).startswith("Barrier: ")]
    assert len(at_barriers) == count
    for t in at_barriers:  # nothing is written
        for tensor in scene.tensors:
            np.testing.assert_array_equal(scene.cells(tensor.name, t), scene.cells(tensor.name, t - 1))


# -- what is shown -----------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", TILES)
@pytest.mark.parametrize("causal", [0, 1])
def test_part_of_a_long_head_is_named(rung, causal):
    s = shape_for(rung, AttentionShape(2, 12, 300, 64, causal=causal))
    scene = attention_scene(s, rung, TILES[rung], random(s))
    head = VIEWS[rung].head(s, find(rung).check(s, TILES[rung]))
    assert scene.order_note.startswith(f"The kernels ran at queries and keys 0 to {head.run.N - 1} of 300 only")
    O = scene.tensor("O")  # noqa: E741
    assert O.partial and O.note == f"rows {head.queries.start}–{head.queries.stop - 1} of 300"
    title = f"global memory, head 0 of 12, sequence 0 of 2, columns 0–{O.cols - 1} of 64"
    assert scene.groups[0].title == title
    if rung in (FLASH, REGISTERS, MMA):
        assert bool(kinds(scene, "The loop ends here")) == bool(causal)


def test_why_not_gives_a_reason():
    # Kernels of variants refuse a shape that needs none; test_variants has theirs.
    assert all(why_not(shape_for(rung), rung, {}) == "" for rung in SCENES if not rung.endswith("variants"))
    assert "source is not open" in why_not(TOY, "attention/cublas", {}) and "cuBLAS" in why_not(
        TOY, "attention/cublas", {}
    )
    assert "dtype must be" in why_not(TOY.with_(dtype="fp16"), "attention/flash", {})
    assert "must be one of" in why_not(TOY, "attention/naive", {"BLOCK": 7})
    for rung in LADDERS["attention"].rungs:
        assert rung.name in SCENES or why_not(TOY, rung.name, {})
    with pytest.raises(ValueError, match="source is not open"):
        attention_scene(TOY, "attention/cublas", {}, random(TOY))


# Of each kind of kernel, the preset with the largest payload; and a small one.
LARGEST = ("attention-toy-fp16", "attention-8192", "attention-2048-causal-fp16", "llama-decode")


@pytest.mark.parametrize("key", LARGEST)
def test_payloads_are_small(key):
    s = ATTENTION_PRESETS[key].shape
    inputs = qkv(s, "random")
    for rung in SCENES:
        if why_not(s, rung, {}):
            continue
        meta, block = payload(attention_scene(s, rung, {}, inputs))
        size = len(block) + len(json.dumps(meta))
        assert size < (100_000 if s.N <= 16 else 200_000), (rung, size)
