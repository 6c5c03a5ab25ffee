"""The scenes of a fully connected layer: they end with what the kernels stored; tiles, sums and barriers are those of the
kernels."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.ladders import find, ladder_of
from kernels.linear.ladder import DINPUT, DWEIGHT, LADDERS, LINEAR, SMALL
from kernels.model.program import RuleError
from kernels.runner import inputs_of
from visuals.linear.captions import CAPTIONS, kinds
from visuals.linear.plan import add_products, product_of, thread_cells
from visuals.linear.scene import SCENES, linear_scene
from visuals.scene.launch_scene import executed
from visuals.scene.payload import payload

SIZES = ((1, 1, 1), (33, 37, 19), (40, 5, 48))
every_rung = pytest.mark.parametrize("rung", SCENES)
every_size = pytest.mark.parametrize("size", SIZES, ids=str)


@cache
def made(rung: str, size: tuple[int, int, int]):
    """Returns (scene, executed program, inputs) of a rung at small tile sizes."""
    shape = ladder_of(rung).shape(*size)
    tiles = {k: v for k, v in (SMALL | {"BLOCK": 8, "SPLITS": 2}).items() if k in find(rung).tiles}
    inputs = inputs_of(ladder_of(rung), shape, find(rung).build(shape, find(rung).check(shape, tiles)))
    return linear_scene(rung, shape, tiles, inputs), executed(rung, shape, tiles, inputs), inputs


def product(rung: str, size: tuple[int, int, int]):
    return product_of(rung.partition("/")[0], ladder_of(rung).shape(*size))


def test_every_kind_of_step_is_of_a_rung():
    used = {kind for rung in SCENES for kind in kinds(rung, product(rung, (2, 2, 2)))}
    assert used == set(CAPTIONS)


@every_rung
@every_size
def test_the_scene_ends_with_what_the_kernels_stored(rung, size):
    scene, program, inputs = made(rung, size)
    shown = {t.name for t in scene.tensors} & set(program.last)
    assert {b.name for b in program.program.buffers} == shown
    for name in shown:
        expected = inputs[name] if name in inputs else program.last[name]
        np.testing.assert_array_equal(scene.cells(name), expected.ravel(), err_msg=name)


@pytest.mark.parametrize("ladder", LADDERS, ids=lambda ladder: ladder.name)
@every_size
def test_the_plan_is_the_product(ladder, size):
    """The factors and results of the plan, multiplied, are the reference."""
    shape = ladder.shape(*size)
    p = product_of(ladder.name, shape)
    inputs = inputs_of(ladder, shape, ladder.rungs[0].build(shape, ladder.rungs[0].default_tiles))
    row, term, col = np.ogrid[: p.rows, : p.depth, : p.cols]
    left = inputs[p.left].ravel()[p.of_left(row[:, :, 0], term[:, :, 0])].astype(np.float64)
    right = inputs[p.right].ravel()[p.of_right(term[0], col[0])].astype(np.float64)
    reference = ladder.reference(shape, **inputs)
    ref = reference[p.result][0] if isinstance(reference, dict) else reference[0]
    expected = np.empty(ref.size)
    expected[p.of_result(row[:, 0], col[0])] = left @ right
    bias = inputs["b"] if ladder.name == LINEAR else 0
    np.testing.assert_allclose(expected.reshape(ref.shape) + bias, ref, rtol=1e-10, atol=1e-12)


def test_forward_and_backward_use_the_same_elements():
    """A weight's element that forward reads with x[m, k] for y[m, n] is the one that dinput reads for dx[m, k] with dy[m, n],
    and the one whose gradient dweight adds up from dy[m, n] and x[m, k]."""
    forward, dinput, dweight = (product_of(name, LADDERS[0].shape(3, 4, 5)) for name in (LINEAR, DINPUT, DWEIGHT))
    m, n, k = np.ogrid[:3, :4, :5]
    weight = forward.of_right(k, n)
    np.testing.assert_array_equal(weight, dinput.of_right(n, k))
    np.testing.assert_array_equal(weight, dweight.of_result(n, k))
    np.testing.assert_array_equal(forward.of_left(m, k), dinput.of_result(m, k))
    np.testing.assert_array_equal(forward.of_left(m, k), dweight.of_right(m, k))
    np.testing.assert_array_equal(forward.of_result(m, n), dinput.of_left(m, n))
    np.testing.assert_array_equal(forward.of_result(m, n), dweight.of_left(n, m))


@every_rung
@every_size
def test_sums_of_thread_0_become_its_results(rung, size):
    scene, program, inputs = made(rung, size)
    p = product(rung, size)
    tiles = program.tiles
    rows, cols = thread_cells(tiles) if "TM" in tiles else (np.array([0]), np.array([0]))
    own_rows, own_cols = rows < p.rows, cols < p.cols
    sums = scene.cells("sum").reshape(len(rows), len(cols))[np.ix_(own_rows, own_cols)]
    cells = p.of_result(rows[own_rows][:, None], cols[own_cols])
    if rung.endswith("split"):
        stored = program.last[f"{p.result}_parts"][0].ravel()[cells]
    else:
        bias = inputs["b"][cols[own_cols]] if rung.startswith("linear/") else 0
        stored = program.last[p.result].ravel()[cells] - bias
    np.testing.assert_allclose(sums, stored, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rung", [name for name in SCENES if not name.endswith("naive")])
def test_barriers_are_those_of_the_loop(rung):
    """One barrier for each tile of the terms."""
    size = (33, 37, 19)
    scene, program, _ = made(rung, size)
    p, tiles = product(rung, size), program.tiles
    names = list(kinds(rung, p))
    barriers = sum(names[k] == "barrier" for k in scene.captions.kind)
    count = -(-p.depth // tiles["BK"])
    ahead = [names[k] for k in scene.captions.kind].index("wait")
    assert ahead == 1 + 2 * min(tiles["STAGES"] - 1, barriers)  # both tiles of each stage, after the first step
    assert barriers == -(-count // tiles.get("SPLITS", 1))


@every_rung
def test_captions_lines_and_payload(rung):
    scene, program, _ = made(rung, (33, 37, 19))
    assert 1 + len(scene.next_sources) == len(program.launches)
    for t in range(scene.steps):
        source, line = scene.source_at(t)
        assert source.text.splitlines()[line - source.first].strip()
        caption = scene.caption(t)
        assert "{" not in caption and "](" not in caption and "NaN" not in caption and len(caption) < 300
    meta, block = payload(scene)
    assert meta["steps"] == scene.steps and len(block) < 200_000


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 40), st.integers(0, 99))
def test_products_are_added_with_one_rounding_each(rows, cols, depth, seed):
    rng = np.random.default_rng(seed)
    left, right = (rng.standard_normal((rows, depth), np.float32), rng.standard_normal((depth, cols), np.float32))
    sums = add_products(np.zeros((rows, cols), np.float32), left, right)
    bound = 2.0**-24 * depth * (np.abs(left) @ np.abs(right)) + 1e-30
    assert (np.abs(sums - left.astype(np.float64) @ right.astype(np.float64)) <= bound).all()


def test_a_layer_too_large_is_refused():
    with pytest.raises(RuleError, match="up to 48 are shown"):
        linear_scene("linear/tile", ladder_of("linear/tile").shape(49, 2, 2), {}, {})
