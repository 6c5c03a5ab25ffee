"""The scenes of attention's backward pass: they end with what the kernels store, sums grow as the formula says, P and dS are those of the
formula, and a long head is cut."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from kernels.attention.backward.ladder import LADDER
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from kernels.model.dtypes import INPUT_DTYPE
from tests.helpers.emulated import needs_nvrtc
from tests.visuals.attention.backward.view_runs import HALVES, TOY, of_rung
from visuals.attention.backward.notes import ATOMIC, NAIVE, TWO
from visuals.attention.backward.scene import SCENES, backward_scene, inputs_of, why_not
from visuals.scene.payload import payload
from visuals.scene.scene import Scene

pytestmark = needs_nvrtc
ROWS, MMA = "attention-backward/recompute", "attention-backward/flash-mma"
FLASH = (ATOMIC, TWO, MMA)


def drawn(s: AttentionBackwardShape) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=s.qkv_shape).astype(INPUT_DTYPE[s.dtype]) for name in ("Q", "K", "V", "dO")}


def made(rung: str, **changed: int) -> tuple[Scene, dict[str, np.ndarray]]:
    """Returns the scene of a rung at the toy and its inputs, float64 [N, d] and [N]."""
    s, tiles = of_rung(rung)
    inputs = drawn(s)
    head = {name: x[0, 0].astype(np.float64) for name, x in inputs_of(s, inputs).items()}
    return backward_scene(s, rung, tiles | changed, inputs), head


def shown(scene: Scene, name: str, t: int | None = None) -> np.ndarray:
    tensor = scene.tensor(name)
    return scene.cells(name, t).reshape(tensor.rows, tensor.cols)


def squares(head: dict[str, np.ndarray], s: AttentionBackwardShape = TOY) -> tuple[np.ndarray, np.ndarray]:
    """Returns P and dS of the formula, float64 [N, N]."""
    S = s.factor * head["Q"] @ head["K"].T
    P = np.where(np.tril(np.ones(S.shape, bool)), np.exp(S - head["L"][:, None]), 0)
    D = (head["dO"] * head["O"]).sum(axis=1, keepdims=True)
    return P, P * (head["dO"] @ head["V"].T - D)


def steps(scene: Scene, phrase: str) -> list[int]:
    return [t for t in range(scene.steps) if phrase in scene.caption(t)]


@pytest.mark.parametrize("rung", SCENES)
def test_scenes_end_with_what_the_kernels_store(rung):
    s, tiles = of_rung(rung)
    inputs, program = drawn(s), find(rung).build(s, find(rung).check(s, tiles))
    session = emulator.Session(program, inputs | LADDER.derive(s, inputs), Options())
    session.verify_run()
    scene = backward_scene(s, rung, tiles, inputs)
    for name in {b.name for b in program.buffers} & {"dQ", "dK", "dV", "P", "dS", "D"}:
        stored = session.memory.array(name)[0, 0].astype(np.float32).reshape(s.N, -1)
        ours = shown(scene, name)
        np.testing.assert_array_equal(ours, stored[: len(ours), : ours.shape[1]], err_msg=name)


@pytest.mark.parametrize("rung", FLASH)
def test_sums_grow_by_the_queries_that_have_passed(rung):
    """The last block of keys is followed. Earlier queries do not see its keys."""
    scene, head = made(rung)
    P, dS = squares(head)
    near = {"rtol": 1e-2, "atol": 4e-2} if rung == MMA else {"rtol": 1e-5, "atol": 1e-5}
    passed = steps(scene, "[dk](output)[0] =") or steps(scene, "dk[0] =")
    size = 16 // len(passed)
    assert len(passed) == (1 if rung == MMA else 2)
    for n, t in enumerate(passed, 1):
        rows, keys = slice(16, 16 + n * size), slice(16, 32)
        np.testing.assert_allclose(shown(scene, "dv", t), P[rows, keys].T @ head["dO"][rows], **near)
        np.testing.assert_allclose(shown(scene, "dk", t), dS[rows, keys].T @ head["Q"][rows], **near)


@pytest.mark.parametrize("rung", FLASH)
def test_p_and_ds_of_a_tile_are_those_of_the_formula(rung):
    scene, head = made(rung)
    P, dS = squares(head)
    rows = shown(scene, "Ps").shape[0]
    near = {"rtol": 1e-2, "atol": 1e-2} if rung == MMA else {"rtol": 1e-5, "atol": 1e-5}
    last = slice(32 - rows, 32), slice(16, 32)
    np.testing.assert_allclose(shown(scene, "Ps"), P[last], **near)
    np.testing.assert_allclose(shown(scene, "dSs"), dS[last], **near)


def test_a_causal_block_skips_queries_that_see_none_of_its_keys():
    scene, _ = made(ATOMIC)
    (own,) = steps(scene, "owns keys 16 to 31")
    assert "begins with query 16" in scene.caption(own + 1)
    assert steps(scene, "the rows of queries 16 to 23 are loaded") and not steps(scene, "queries 8 to 15 are loaded")


def test_readings_count_what_the_formula_says():
    scene, _ = made(ATOMIC)
    readings = {r.label: int(r.values[-1]) for r in scene.readings}
    assert readings["bytes written to global memory"] == 4 * (32 + 3 * 32 * 8)  # D, zeros of dQ, dK and dV
    assert readings["bytes added to dQ by atomics of the followed block"] == 4 * 8 * 16


def test_a_tile_of_a_kernel_that_owns_queries_has_all_keys_that_they_see():
    scene, head = made(TWO)
    np.testing.assert_allclose(
        shown(scene, "dq"), (squares(head)[1] @ head["K"])[24:], rtol=1e-5, atol=1e-5
    )  # the last queries start first


@pytest.mark.parametrize(("rung", "tiles"), [(ROWS, {}), (TWO, {"Br": 8, "Bc": 16}), (MMA, HALVES)])
def test_a_long_head_is_cut_and_the_note_says_so(rung, tiles):
    s = AttentionBackwardShape(2, 3, 90, 40, causal=1, dtype="fp16" if rung == MMA else "fp32")
    scene = backward_scene(s, rung, tiles, drawn(s))
    assert scene.order_note.startswith("The kernels ran at queries and keys 0 to 31 of 90 of this head")
    assert scene.tensor("Q").rows == 32 and scene.groups[0].title.startswith("global memory, head 0 of 3")
    assert len(str(payload(scene))) < 400_000


def test_captions_are_short_and_filled():
    for rung in SCENES:
        scene, _ = made(rung)
        for t in range(scene.steps):
            caption = scene.caption(t)
            assert "{" not in caption and "nan" not in caption.lower(), caption
            for sentence in re.split(r"[.:] ", caption):  # numbers and signs are no words
                assert len(re.findall(r"[A-Za-z]{2,}", sentence)) <= 20, sentence


def test_why_a_rung_has_no_scene():
    reason = why_not(TOY, "attention-backward/library", {})
    assert "PyTorch" in reason and "not open" in reason
    with pytest.raises(ValueError, match="not open"):
        backward_scene(TOY, "attention-backward/library", {}, {})
    assert "dtype must be" in why_not(replace(TOY, dtype="fp16"), ATOMIC, {})


def test_a_matrix_named_dS_has_no_scale_and_one_with_it_is_named_so():
    (naive, head), (flash, _) = made(NAIVE), made(TWO)
    assert (naive.tensor("dS").title, flash.tensor("dSs").title) == ("scale · dS", "dS")
    np.testing.assert_allclose(shown(naive, "dS"), TOY.factor * squares(head)[1][:16, :16], rtol=1e-4, atol=1e-6)
    assert TOY.factor != 1 and naive.tensor("dS").symbol == "scale·dS"
