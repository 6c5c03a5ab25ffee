"""The scenes of attention's backward pass: gradients equal what the emulated kernels store, P and dS what they keep in
shared memory, sums grow as the formula says, every barrier of a kernel is a step."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.attention.backward.ladder import LADDER
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from tests.helpers.emulated import needs_nvrtc
from tests.helpers.shapes import attention_shapes
from visuals.attention.backward import numbers
from visuals.attention.backward.plan import ATOMIC, MMA, TWO, plan_of, query_tiles
from visuals.attention.backward.scene import SCENES, backward_scene, head_of, why_not
from visuals.scene.payload import payload

pytestmark = needs_nvrtc
NAIVE, ROWS = "attention-backward/naive", "attention-backward/recompute"
TILES = {
    NAIVE: {"TILE": 8},
    ROWS: {"BLOCK": 128},
    ATOMIC: {"Br": 8, "Bc": 16},
    TWO: {"Br": 8, "Bc": 16},
    MMA: {"Br": 16, "Bc": 16, "WM": 16},
}
EXACT = (ATOMIC, TWO, MMA)  # the others use exp, which NumPy rounds in its own way
TOY = AttentionBackwardShape(1, 1, 32, 8, causal=1)


def of_rung(rung: str, s: AttentionBackwardShape) -> AttentionBackwardShape:
    return s.with_(dtype="fp16") if rung == MMA else s


def inputs_of(s: AttentionBackwardShape, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=s.qkv_shape).astype(INPUT_DTYPE[s.dtype]) for name in ("Q", "K", "V", "dO")}


def emulated(s: AttentionBackwardShape, rung: str, tiles, inputs) -> dict[str, np.ndarray]:
    """Returns the gradients of head 0 that the emulated kernels store, and P and dS if they are in memory, float32."""
    program = find(rung).build(s, find(rung).check(s, tiles))
    session = emulator.Session(program, inputs | LADDER.derive(s, inputs), Options())
    session.verify_run()
    names = [b.name for b in program.buffers if b.name in ("dQ", "dK", "dV", "P", "dS", "D")]
    arrays = {name: session.memory.array(name)[0, 0].astype(np.float32) for name in names}
    return {name: x.reshape(s.N, -1) for name, x in arrays.items()}


def shown(scene, name: str, t: int | None = None) -> np.ndarray:
    tensor = scene.tensor(name)
    return scene.cells(name, t).reshape(tensor.rows, tensor.cols)


def part(scene, name: str, whole: np.ndarray) -> np.ndarray:
    """Returns the part of a matrix that a tensor shows."""
    tensor = scene.tensor(name)
    _, row, col = tensor.origin
    return whole[row : row + tensor.rows, col : col + tensor.cols]


def compare_with_kernels(s: AttentionBackwardShape, rung: str, tiles, seed: int = 0) -> None:
    inputs = inputs_of(s, seed)
    scene, stored = backward_scene(s, rung, tiles, inputs), emulated(s, rung, tiles, inputs)
    for name, whole in stored.items():
        ours, theirs = shown(scene, name), part(scene, name, whole)
        if rung in EXACT:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
        else:
            np.testing.assert_allclose(ours, theirs, 2e-5, 4e-6, err_msg=name)


# -- what the kernels store ---------------------------------------------------------------------------
@pytest.mark.parametrize("rung", SCENES)
@settings(max_examples=2)
@given(
    s=attention_shapes(max_extent=40).map(lambda s: AttentionBackwardShape(**s.params())),
    seed=st.integers(0, 9),
    small=st.booleans(),
)
def test_gradients_equal_what_the_kernels_store(rung, s, seed, small):
    compare_with_kernels(of_rung(rung, s), rung, TILES[rung] if small else {}, seed)


@pytest.mark.parametrize("rung", SCENES)
def test_a_small_head_is_shown_whole_with_the_kernels_numbers(rung):
    s = of_rung(rung, AttentionBackwardShape(1, 1, 16, 4, causal=1))
    compare_with_kernels(s, rung, TILES[rung])
    scene = backward_scene(s, rung, TILES[rung], inputs_of(s))
    assert all(np.isfinite(shown(scene, name)).all() for name in ("dQ", "dK", "dV", "D"))


@pytest.mark.parametrize("rung", SCENES)
def test_a_part_of_a_larger_head_has_the_kernels_numbers(rung):
    compare_with_kernels(of_rung(rung, AttentionBackwardShape(1, 1, 90, 40, causal=1)), rung, TILES[rung])


def test_a_wrong_formula_is_detected(monkeypatch):
    """Without D the gradients differ: the comparison above detects it."""
    monkeypatch.setattr(numbers, "row_dots", lambda dO, O: np.zeros(len(dO), np.float32))  # noqa: E741
    with pytest.raises(AssertionError):
        compare_with_kernels(AttentionBackwardShape(1, 1, 16, 4), ATOMIC, TILES[ATOMIC])


@pytest.mark.parametrize("block", [0, 1])
def test_p_and_ds_equal_the_trace(block):
    """The kernel writes the same P and dS to shared memory, for the same tiles of queries."""
    tiles = TILES[ATOMIC]
    inputs = inputs_of(TOY)
    scene = backward_scene(TOY, ATOMIC, tiles, inputs)
    program = find(ATOMIC).build(TOY, find(ATOMIC).check(TOY, tiles))
    trace, _ = emulator.trace_launch(program, 2, traced_inputs(program, inputs), block)
    DP, Br, Bc, pitch = 32, tiles["Br"], tiles["Bc"], tiles["Bc"] + 4
    start = 2 * (Br + Bc) * (DP + 4)
    stores = trace.write & (np.array(trace.buffers, dtype=object)[trace.buffer] == "shared")
    visits = query_tiles(TOY, plan_of(TOY, ATOMIC, tiles), range(block * Bc, block * Bc + Bc))
    for name, first in (("Ps", start), ("dSs", start + Br * pitch)):
        at = stores & (trace.element >= first) & (trace.element < first + Br * pitch)
        row, col = np.divmod(trace.element[at].astype(int) - first, pitch)
        order = np.argsort(row * Bc + col, kind="stable")
        values = trace.value[at][order].reshape(Br * Bc, -1).T.reshape(-1, Br, Bc)
        assert len(values) == len(visits)
        steps = [t for t in range(scene.steps) if scene.caption(t).startswith("The sums grow")]
        steps = steps[:2] if block == 0 else steps[2:]
        for value, t in zip(values, steps, strict=False):
            np.testing.assert_array_equal(shown(scene, name, t), value)


def traced_inputs(program, inputs):
    """Returns the arrays that the third launch reads: the inputs, those that follow, D and dQ filled with zeros."""
    arrays = inputs | LADDER.derive(TOY, inputs)
    D = np.empty(TOY.row_shape, np.float32)
    program.steps[0].cpu(arrays["dO"], arrays["O"], D, None, None)
    return arrays | {"D": D, "dQ": np.zeros(TOY.qkv_shape, np.float32)}


# -- sums, tiles, steps ---------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", [ATOMIC, TWO, MMA])
def test_sums_grow_by_the_queries_that_have_passed(rung):
    s = of_rung(rung, TOY)
    inputs = inputs_of(s)
    scene, head = backward_scene(s, rung, TILES[rung], inputs), head_of(s, inputs)
    head = {name: x.astype(float) for name, x in head.items()}
    S = np.float32(s.factor) * head["Q"] @ head["K"].T - head["L"][:, None]
    P = np.where(np.tril(np.ones((s.N, s.N), bool)), np.exp(S), 0)
    dS = P * (head["dO"] @ head["V"].T - (head["dO"] * head["O"]).sum(axis=1, keepdims=True))
    near = {"rtol": 1e-2, "atol": 4e-2} if rung == MMA else {"rtol": 1e-5, "atol": 1e-5}
    seen = 0
    key = first = 0
    for t in range(scene.steps):
        if found := re.match(r"The block owns keys (\d+) to", scene.caption(t)):
            key = first = int(found[1])
        if found := re.match(r"Queries \d+ to (\d+) pass by", scene.caption(t)):
            stop = int(found[1]) + 1
        if scene.caption(t).startswith(("The sums grow", "P and dS are rounded")):
            keys, rows = slice(key, key + 16), slice(first, stop)
            np.testing.assert_allclose(
                shown(scene, "dv", t), P[rows, keys].T @ head["dO"][rows][:, : shown(scene, "dv").shape[1]], **near
            )
            np.testing.assert_allclose(
                shown(scene, "dk", t), dS[rows, keys].T @ head["Q"][rows][:, : shown(scene, "dk").shape[1]], **near
            )
            seen += 1
    assert seen >= 3


@pytest.mark.parametrize("rung", SCENES)
def test_every_barrier_of_a_loop_is_a_step(rung):
    """Each barrier of a kernel is lit by a step, but those inside the tiled products of the naive rung (its note says so)."""
    s = of_rung(rung, TOY)
    scene = backward_scene(s, rung, TILES[rung], inputs_of(s))
    lit: dict[str, set[int]] = {}
    for t in range(scene.steps):
        source, line = scene.source_at(t)
        lit.setdefault(source.file, set()).add(line)
    if rung == NAIVE:
        assert "two barriers per tile" in scene.order_note
        return
    for file, lines in lit.items():
        if file.startswith(("00", "07")):
            continue
        text = sources.text(f"attention/{file}").splitlines()
        barriers = {n for n, line in enumerate(text, 1) if "__syncthreads();" in line}
        assert barriers and barriers <= lines, file
    assert len(lit) == (3 if rung != NAIVE else 7)


def test_a_causal_block_skips_queries_that_see_none_of_its_keys():
    scene = backward_scene(TOY, ATOMIC, TILES[ATOMIC], inputs_of(TOY))
    text = [scene.caption(t) for t in range(scene.steps)]
    later = next(t for t, caption in enumerate(text) if "keys 16 to 31" in caption)
    assert "begins with query 16" in text[later] and "Queries 16 to 23 pass by" in text[later + 1]


def test_readings_count_what_the_formula_says():
    """The followed blocks of keys are all blocks of the toy: every gradient of keys is stored once, each part of dQ added."""
    scene = backward_scene(TOY, ATOMIC, TILES[ATOMIC], inputs_of(TOY))
    readings = {r.label: int(r.values[-1]) for r in scene.readings}
    assert readings["bytes of gradients stored"] == 2 * 4 * 32 * 8
    assert readings["bytes added by atomics"] == 4 * 8 * (32 + 16)
    loaded = 2 * 4 * 8 * 32 + (32 + 16) * (2 * 4 * 8 + 2 * 4)
    assert readings["bytes loaded by the followed blocks"] == loaded


@pytest.mark.parametrize("key", LADDER.presets)
def test_every_preset_has_a_scene_or_a_reason(key):
    s = LADDER.presets[key].shape.with_(B=1, H=1)
    s = s if s.N <= 128 else s.with_(N=300)
    for rung in SCENES:
        if not (reason := why_not(s, rung, {})):
            data = payload(backward_scene(s, rung, {}, inputs_of(s)))
            assert data and len(str(data)) < 400_000
        else:
            assert "dtype must be" in reason


def test_libraries_have_no_scene():
    reason = why_not(TOY, "attention-backward/library", {})
    assert "PyTorch" in reason and "not open" in reason
    with pytest.raises(ValueError, match="not open"):
        backward_scene(TOY, "attention-backward/library", {}, {})


def test_captions_are_short_and_filled():
    for rung in SCENES:
        s = of_rung(rung, TOY)
        scene = backward_scene(s, rung, TILES[rung], inputs_of(s))
        for t in range(scene.steps):
            caption = scene.caption(t)
            assert "{" not in caption and "nan" not in caption.lower(), caption
            for sentence in re.split(r"[.:] ", caption):  # numbers and signs are no words
                assert len(re.findall(r"[A-Za-z]{2,}", sentence)) <= 20, sentence


def test_a_matrix_named_dS_has_no_scale_and_one_with_it_is_named_so():
    s = AttentionBackwardShape(1, 1, 16, 4, causal=0)
    inputs = inputs_of(s)
    naive = backward_scene(s, NAIVE, TILES[NAIVE], inputs)
    flash = backward_scene(s, TWO, {"Br": 16, "Bc": 16}, inputs)
    assert (naive.tensor("dS").title, flash.tensor("dSs").title) == ("scale · dS", "dS")
    last = max(t for t in range(flash.steps) if "dS[0, 0] = P · (dP − D)" in flash.caption(t))
    dS = shown(flash, "dSs", last)
    written = next(t for t in range(naive.steps) if "scale · dS[0, 0] = scale · P" in naive.caption(t))
    size = shown(naive, "dS")[: dS.shape[0], : dS.shape[1]]
    np.testing.assert_allclose(size, s.factor * dS, rtol=1e-4, atol=1e-6)
    assert s.factor != 1 and naive.tensor("dS").symbol == "scale·dS" and written < naive.steps
