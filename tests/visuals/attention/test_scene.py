"""Scenes of attention that store S and P, or a row of S: cells, empty cells and bytes equal those of the emulated
kernels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.attention.traffic import requested_bytes
from kernels.ladders import LADDERS, find
from tests.helpers.attention_scenes import (
    emulated,
    highlighted_line,
    kinds,
    last_readings,
    matrix,
    part,
    random,
    reference,
    stored,
)
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.shapes import attention_shapes
from visuals.attention import unfused_steps
from visuals.attention.inputs import qkv
from visuals.attention.scene import SCENES, attention_scene, why_not
from visuals.scene.payload import payload

TILES = {"attention/naive": {"BLOCK": 8}, "attention/blocked": {"TILE": 8}, "attention/fused": {"BLOCK": 128}}
UNFUSED = ("attention/naive", "attention/blocked")
TOY = AttentionShape(1, 1, 16, 8, causal=1)


# -- cells -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", UNFUSED)
@settings(max_examples=4)
@given(s=attention_shapes(20, 20), seed=st.integers(0, 9))
def test_s_p_and_o_equal_the_kernels_buffers(rung, s, seed):
    """Elements that they never store are empty cells."""
    inputs = random(s, seed)
    session = emulated(s, rung, TILES[rung], inputs)
    scene = attention_scene(s, rung, TILES[rung], inputs)
    for name in "SPO":
        np.testing.assert_allclose(matrix(scene, name), part(scene, name, stored(session, name)), 2e-5, 2e-6)


@pytest.mark.parametrize("rung", TILES)
@settings(max_examples=8)
@given(s=attention_shapes(), seed=st.integers(0, 9))
def test_o_equals_the_reference(rung, s, seed):
    inputs = random(s, seed)
    scene = attention_scene(s, rung, TILES[rung], inputs)
    ref, scale = (part(scene, "O", whole) for whole in reference(s, inputs))
    visible = matrix(scene, "O")
    filled = np.isfinite(visible).all(axis=1)
    assert filled.sum() == (len(visible) if s.N <= 16 or rung != "attention/fused" else 8)
    assert (abs(visible - ref)[filled] <= 5e-6 * scale[filled]).all()


def test_a_wrong_sum_is_detected(monkeypatch):
    """A softmax without the row's last key differs from the kernel's."""
    inputs = random(TOY)
    session = emulated(TOY, "attention/naive", TILES["attention/naive"], inputs)
    original = unfused_steps.numbers

    def wrong(s, head, rows):
        n = original(s, head, rows)
        P = n.P.copy()
        P[:, -1] = 0
        return type(n)(n.sums, n.S, n.m, n.l, P, P @ head["V"])

    monkeypatch.setattr(unfused_steps, "numbers", wrong)
    scene = attention_scene(TOY, "attention/naive", TILES["attention/naive"], inputs)
    for name in "PO":
        assert not np.allclose(matrix(scene, name), stored(session, name), 1e-4, 1e-4)


@pytest.mark.parametrize("rung", UNFUSED)
def test_each_row_gets_maximum_then_sum_then_weights(rung):
    s, inputs = TOY, random(TOY)
    scene = attention_scene(s, rung, TILES[rung], inputs)
    S = inputs["Q"][0, 0].astype(float) @ inputs["K"][0, 0].T * s.factor
    for i in range(s.N):
        scores = S[i, : i + 1]
        first = kinds(scene, f"the softmax of query {i}.")[0]
        assert matrix(scene, "m", first)[i] == pytest.approx(scores.max(), rel=1e-5)
        assert np.isnan(matrix(scene, "l", first)[i]) and np.isnan(matrix(scene, "P", first)[i]).all()
        assert matrix(scene, "l", first + 1)[i] == pytest.approx(np.exp(scores - scores.max()).sum(), rel=1e-5)
        P = matrix(scene, "P", first + 2)[i]
        np.testing.assert_allclose(
            P[: i + 1], np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum(), 2e-5
        )
        assert (P[i + 1 :] == 0).all() and P.sum() == pytest.approx(1)


def test_fused_replaces_scores_by_weights_in_place():
    s, inputs = TOY, random(TOY)
    scene = attention_scene(s, "attention/fused", TILES["attention/fused"], inputs)
    S = inputs["Q"][0, 0].astype(float) @ inputs["K"][0, 0].T * s.factor
    assert "not in global memory" in scene.tensor("SP").title and np.isnan(scene.cells("SP")).all()
    for i in range(8):
        row_scores, first = S[i, : i + 1], kinds(scene, f"The block of query {i} ")[0]
        np.testing.assert_allclose(matrix(scene, "s", first + 1)[0, : i + 1], row_scores, 2e-5, 1e-6)
        assert matrix(scene, "m", first + 2) == pytest.approx(row_scores.max(), rel=1e-5)
        np.testing.assert_allclose(
            matrix(scene, "s", first + 3)[0, : i + 1], np.exp(row_scores - row_scores.max()), 2e-5, 1e-6
        )
        assert matrix(scene, "l", first + 3) == pytest.approx(np.exp(row_scores - row_scores.max()).sum(), rel=1e-5)


# -- warps -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("s", [AttentionShape(1, 1, 13, 5), TOY], ids=str)
def test_warps_store_the_scores_of_the_trace(s):
    inputs = random(s)
    tiles = TILES["attention/naive"]
    scene = attention_scene(s, "attention/naive", tiles, inputs)
    write = scene.write("S")
    for block in range(4):
        trace = emulated(s, "attention/naive", tiles, inputs, trace_block=block).trace[0]
        stores_S = (
            trace.write & (np.array(trace.buffers, dtype=object)[trace.buffer] == "S") if trace.buffers else trace.write
        )
        for warp in np.unique(trace.thread[stores_S] // 32):
            caption = f"Block ({block % 2}, {block // 2}), warp {warp}: each active lane computes one score"
            (t,) = kinds(scene, caption)
            elements = trace.element[stores_S & (trace.thread // 32 == warp)]
            assert set(write.cells[write.steps == t]) == set(elements.tolist())
            assert bin(scene.lanes.mask[t]).count("1") == len(elements) and scene.lanes.warp[t] == warp


# -- bytes -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", TILES)
@settings(max_examples=3)
@given(s=attention_shapes())
def test_bytes_equal_the_counters(rung, s):
    s = s.with_(B=1, H=1)
    scene = attention_scene(s, rung, TILES[rung], random(s))
    total = emulated(s, rung, TILES[rung], random(s)).counters.total
    readings = last_readings(scene)
    assert readings["bytes read from global memory"] == total["bytes_ld"]
    assert readings["bytes written to global memory"] == total["bytes_st"]


@pytest.mark.parametrize("rung", TILES)
@pytest.mark.parametrize("key", ["attention-ragged", "bert", "attention-d128"])
def test_bytes_of_a_large_head_equal_the_formula(rung, key):
    s = ATTENTION_PRESETS[key].shape
    s = s.with_(B=1, H=1, N=min(s.N, 1024))
    scene = attention_scene(s, rung, {}, random(s))
    r = {x.label: float(x.values[-1]) for x in scene.readings}
    total = r["bytes read from global memory"] + r["bytes written to global memory"]
    assert total == pytest.approx(requested_bytes(find(rung), s, find(rung).default_tiles), rel=1e-6)


@pytest.mark.parametrize(
    ("rung", "tiles", "s"),
    [
        ("attention/blocked", {"TILE": 8}, AttentionShape(1, 1, 7, 5)),
        ("attention/blocked", {"TILE": 16}, AttentionShape(1, 1, 16, 16)),
        ("attention/fused", {"BLOCK": 128}, AttentionShape(1, 1, 1, 40)),
    ],
    ids=str,
)
def test_bytes_of_shared_memory_equal_the_trace(rung, tiles, s):
    """Launches of one block."""
    traces = emulated(s, rung, tiles, random(s), trace_block=0).trace
    moved = 0
    for trace in traces:
        shared_buffers = [n for n, name in enumerate(trace.buffers) if name not in "QKVOSP"]
        moved += 4 * int(np.isin(trace.buffer, shared_buffers).sum())
    assert last_readings(attention_scene(s, rung, tiles, random(s)))["bytes to and from shared memory"] == moved


# -- captions --------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", TILES)
@settings(max_examples=10)
@given(s=attention_shapes())
def test_every_step_has_a_caption_and_a_line(rung, s):
    scene = attention_scene(s, rung, {}, random(s))
    for t in range(scene.steps):
        caption = scene.caption(t)
        assert "{" not in caption and "](" not in caption
        assert highlighted_line(scene, t).strip()
    for annotation in scene.annotations:
        assert len(annotation.captions.kind) == scene.tensor(annotation.tensor).size


@pytest.mark.parametrize(
    ("rung", "words", "line"),
    [
        ("attention/naive", "computes one score", "sum += query_row[dim]"),
        ("attention/naive", "reads the row again", "l += expf"),
        ("attention/naive", "computes one element of O", "sum += weights[key]"),
        ("attention/blocked", "of K, columns", "tile_k[thread_row][thread_col] ="),
        ("attention/blocked", "keys are all hidden", "return;"),
        ("attention/fused", "largest score", "m = fmaxf(m, scores[key])"),
    ],
)
def test_highlighted_line_matches_the_caption(rung, words, line):
    scene = attention_scene(TOY, rung, TILES[rung], random(TOY))
    steps = kinds(scene, words)
    assert steps and all(line in highlighted_line(scene, t) for t in steps)


def test_visible_head_is_named():
    s = AttentionShape(3, 12, 8, 4)
    for rung in TILES:
        assert attention_scene(s, rung, {}, random(s)).groups[0].title == "global memory, head 0 of 12, sequence 0 of 3"


def shape_for(rung: str) -> AttentionShape:
    """Returns a shape that a rung runs."""
    s = TOY.with_(dtype="fp16" if "mma" in rung else "fp32")
    return s.with_(M=3 * s.N) if rung.endswith("decode") else s


def test_why_not_gives_a_reason():
    assert all(why_not(shape_for(rung), rung, {}) == "" for rung in SCENES)
    assert "source is not open" in why_not(TOY, "attention/cublas", {}) and "cuBLAS" in why_not(
        TOY, "attention/cublas", {}
    )
    assert "dtype must be" in why_not(TOY.with_(dtype="fp16"), "attention/flash", {})
    assert "must be one of" in why_not(TOY, "attention/naive", {"BLOCK": 7})
    for rung in LADDERS["attention"].rungs:
        assert rung.name in SCENES or why_not(TOY, rung.name, {})
    with pytest.raises(ValueError, match="source is not open"):
        attention_scene(TOY, "attention/cublas", {}, random(TOY))


# -- sizes -----------------------------------------------------------------------------------------
# Of each kind of kernel, the preset with the largest payload; and a small one.
LARGEST = ("attention-toy-fp16", "attention-8192", "attention-2048-causal-fp16", "llama-decode")


@needs_nvrtc
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
