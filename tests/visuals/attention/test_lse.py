"""The scenes of attention with L: O and L are what the emulated kernels store, and L is that of the definition."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.attention.lse.presets import LSE_PRESETS
from kernels.attention.lse.shape import LseShape
from kernels.ladders import LADDERS, find
from kernels.runner import run
from tests.helpers.offenders import every
from visuals.attention.inputs import qkv
from visuals.attention.lse import BLOCKED, LSE, SCENES, lse_scene, why_not
from visuals.attention.lse_notes import NOTES
from visuals.scene.payload import payload

TILES = {BLOCKED: {"TILE": 8}, LSE: {"Br": 32, "Bc": 8}}
SHAPES = (
    LseShape(1, 1, 8, 4),
    LseShape(1, 1, 16, 8, causal=1),
    LseShape(2, 3, 21, 8),
    LseShape(1, 1, 77, 40, causal=1),
    LseShape(1, 1, 45, 4, scale=-2.5),
)
every_rung = pytest.mark.parametrize("rung", SCENES)
every_shape = pytest.mark.parametrize("s", SHAPES, ids=str)


def inputs_of(s: LseShape, kind: str = "random") -> dict[str, np.ndarray]:
    """Returns equal Q, K and V for all heads."""
    return {name: np.broadcast_to(x, s.qkv_shape).copy() for name, x in qkv(s, kind).items()}


def compare_with_kernels(rung: str, s: LseShape) -> None:
    """Asserts that O and L on the stage are those that the kernel stores in the emulator, wherever they are shown. A long head is cut."""
    inputs = inputs_of(s)
    scene = lse_scene(s, rung, TILES[rung], inputs)
    cut = SCENES[rung].head(s, find(rung).check(s, TILES[rung])).run
    first_rows = {name: x[:1, :1, : cut.N] for name, x in inputs.items()}
    stored = run(rung, cut, first_rows, engine="emulator", tiles=TILES[rung], measure=False).outputs
    for name in ("O", "L"):
        tensor = scene.tensor(name)
        first = tensor.origin[1]
        part = stored[name][0, 0].reshape(cut.N, -1)[first : first + tensor.rows, : tensor.cols]
        np.testing.assert_allclose(scene.cells(name).reshape(part.shape), part, rtol=1e-5, atol=2e-6, err_msg=name)


def test_every_own_rung_has_a_scene():
    assert set(SCENES) == {rung.name for rung in LADDERS["attention-lse"].rungs if not rung.library}
    assert "not open" in why_not(SHAPES[0], "attention-lse/library", {})
    with pytest.raises(ValueError, match="not open"):
        lse_scene(SHAPES[0], "attention-lse/library", {}, {})


@every_rung
@every_shape
def test_o_and_l_are_what_the_kernel_stored(rung, s):
    compare_with_kernels(rung, s)


@every_rung
@pytest.mark.parametrize("s", SHAPES[:2], ids=str)
def test_l_gives_every_weight_again(rung, s):
    """exp(S - L) of a row adds up to 1 over the visible keys, from the numbers on the stage."""
    scene = lse_scene(s, rung, TILES[rung], inputs_of(s))
    Q, K = (scene.cells(name).reshape(s.N, s.d).astype(float) for name in "QK")
    weights = np.exp(s.factor * Q @ K.T - scene.cells("L")[:, None])
    if s.causal:
        weights = np.tril(weights)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)


@every_rung
def test_the_line_that_stores_l_is_lit_and_no_step_before_writes_l(rung):
    scene = lse_scene(SHAPES[0], rung, TILES[rung], inputs_of(SHAPES[0]))
    steps = [t for t in range(scene.steps) if "stores L" in scene.caption(t)]
    assert len(steps) == (SHAPES[0].N if rung == BLOCKED else 1)
    for t in steps:
        source, line = scene.source_at(t)
        assert re.search(r"\bL\[\w+\] =", source.text.splitlines()[line - source.first])
    written = {int(step) for write in scene.writes if write.target == "L" for step in write.steps}
    assert set(steps) <= written and min(written) == steps[0]


@every_rung
@every_shape
def test_captions_and_payload(rung, s):
    scene = lse_scene(s, rung, TILES[rung], inputs_of(s))
    payload(scene)
    for t in range(scene.steps):
        assert "{" not in scene.caption(t) and "nan" not in scene.caption(t).lower()


@every("key", LSE_PRESETS)
def test_the_story_names_the_bytes_of_l(key):
    text = NOTES["attention-lse"].cost(LSE_PRESETS[key].shape)
    assert re.match(r"L is [\d.,]+ [KMG]?B, ", text) and "{" not in text


def test_the_real_size_keeps_one_number_where_the_weights_are_n():
    shape = LSE_PRESETS["lse-2048"].shape
    text = NOTES["attention-lse"].cost(shape)
    assert "L is 524 KB" in text and "would be 1.07 GB" in text
    assert NOTES["attention-lse"].gain({}) == ""
    found = find(LSE).build(shape, find(LSE).default_tiles)
    assert next(b.nbytes for b in found.buffers if b.name == "L") == 524_288
