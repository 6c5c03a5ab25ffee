"""The scenes of a fully connected layer: they end with what the kernels stored; tiles, sums and barriers are those of the
kernels."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from kernels.ladders import find, ladder_of
from kernels.linear.ladder import SMALL, extents
from kernels.model.launch import ceil
from kernels.model.program import RuleError
from kernels.runner import inputs_of
from tests.helpers.offenders import every
from visuals.linear.scene import SCENES, linear_scene
from visuals.scene.launch_scene import executed
from visuals.scene.payload import payload

SIZES = ((1, 1, 1), (33, 37, 19), (40, 5, 48))
TILED = [name for name in SCENES if not name.endswith("naive")]
every_rung = pytest.mark.parametrize("rung", SCENES)
every_size = pytest.mark.parametrize("size", SIZES, ids=str)


@cache
def made(rung: str, size: tuple[int, int, int]):
    """Returns (scene, executed program, inputs) of a rung at small tile sizes."""
    shape = ladder_of(rung).shape(*size)
    tiles = {k: v for k, v in (SMALL | {"BLOCK": 8, "SPLITS": 2}).items() if k in find(rung).tiles}
    inputs = inputs_of(ladder_of(rung), shape, find(rung).build(shape, find(rung).check(shape, tiles)))
    return linear_scene(rung, shape, tiles, inputs), executed(rung, shape, tiles, inputs), inputs


def result_of(rung: str) -> str:
    return {"linear": "y", "linear-dinput": "dx", "linear-dweight": "dW"}[rung.partition("/")[0]]


@every_rung
@every_size
def test_the_scene_ends_with_what_the_kernels_stored(rung, size):
    scene, program, inputs = made(rung, size)
    shown = {t.name for t in scene.tensors} & set(program.last)
    assert {b.name for b in program.program.buffers} == shown
    for name in shown:
        expected = inputs[name] if name in inputs else program.last[name]
        np.testing.assert_array_equal(scene.cells(name), expected.ravel(), err_msg=name)


@every_rung
@every_size
def test_sums_become_the_results(rung, size):
    """Those of thread 0, or of the block of a naive kernel: results but for b, or the first part of them."""
    scene, program, inputs = made(rung, size)
    tensor, tiles, name = scene.tensor("sum"), program.tiles, result_of(rung)
    if "TM" in tiles:
        i, j = np.arange(tiles["TM"]), np.arange(tiles["TN"])
        rows = i // 4 * 4 * (tiles["WM"] // tiles["TM"]) + i % 4
        cols = j // 4 * 4 * (tiles["WN"] // tiles["TN"]) + j % 4
    else:
        rows, cols = np.arange(tensor.rows), np.arange(tensor.cols)
    stored = program.last[f"{name}_parts"][0] if rung.endswith("split") else program.last[name]
    rows, cols = rows[rows < stored.shape[0]], cols[cols < stored.shape[1]]
    bias = inputs["b"][cols] if rung.startswith("linear/") and not rung.endswith("split") else 0
    sums = scene.cells("sum").reshape(tensor.rows, tensor.cols)[: len(rows), : len(cols)]
    np.testing.assert_allclose(sums, stored[np.ix_(rows, cols)] - bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rung", TILED)
@every_size
def test_tiles_are_parts_of_the_factors_with_one_row_per_term(rung, size):
    """At each barrier the tile that is multiplied next holds its terms, and zeros outside of the matrix."""
    scene, program, inputs = made(rung, size)
    tiles, depth = program.tiles, extents(rung.partition("/")[0], ladder_of(rung).shape(*size))[2][1]
    factors = {  # by tile: its factor with one row per term
        "linear": {"tile_x": lambda a: a["x"].T, "tile_w": lambda a: a["W"].T},
        "linear-dinput": {"tile_dy": lambda a: a["dy"].T, "tile_w": lambda a: a["W"]},
        "linear-dweight": {"tile_dy": lambda a: a["dy"], "tile_x": lambda a: a["x"]},
    }[rung.partition("/")[0]]
    length = min(depth, ceil(ceil(depth, tiles["BK"]), tiles.get("SPLITS", 1)) * tiles["BK"])  # of the first part
    barriers = [t for t in range(scene.steps) if scene.caption(t).startswith("Barrier")]
    for n, step in enumerate(barriers):
        for name, factor in factors.items():
            tensor, first = scene.tensor(name), n * tiles["BK"]
            held = scene.cells(name, step).reshape(tensor.planes, tensor.rows, tensor.cols)[n % tiles["STAGES"]]
            part = factor(inputs)[first : min(first + tiles["BK"], length), : tensor.cols]
            expected = np.zeros(held.shape, np.float32)
            expected[: part.shape[0], : part.shape[1]] = part
            np.testing.assert_array_equal(held, expected, err_msg=f"{name} {n}")


@every("rung", TILED)
def test_tiles_are_linked_to_the_factors(rung):
    scene, _, _ = made(rung, (33, 37, 19))
    copied = {w.target: w.source for w in scene.writes if w.target.startswith("tile")}
    assert len(copied) == 2 and all(name == f"tile_{source.lower()}" for name, source in copied.items())


@every("rung", TILED)
def test_barriers_are_those_of_the_loop(rung):
    """One barrier for each tile of the terms, and STAGES - 1 tiles are copied before the first."""
    size = (33, 37, 19)
    scene, program, _ = made(rung, size)
    tiles, depth = program.tiles, extents(rung.partition("/")[0], ladder_of(rung).shape(*size))[2][1]
    said = [scene.caption(t) for t in range(scene.steps)]
    barriers = sum(text.startswith("Barrier") for text in said)
    assert barriers == ceil(ceil(depth, tiles["BK"]), tiles.get("SPLITS", 1))
    first = next(n for n, text in enumerate(said) if text.startswith("Each thread waits"))
    copies = [n for n, text in enumerate(said) if text.startswith("Tile")]
    assert len([n for n in copies if n < first]) == 2 * min(tiles["STAGES"] - 1, barriers)
    assert len(copies) == 2 * barriers


@every_rung
def test_captions_lines_and_payload(rung):
    scene, program, _ = made(rung, (33, 37, 19))
    assert 1 + len(scene.next_sources) == len(program.launches)
    for t in range(scene.steps):
        source, line = scene.source_at(t)
        assert not t or scene.caption(t) != scene.caption(t - 1)
        assert source.text.splitlines()[line - source.first].strip()
        caption = scene.caption(t)
        assert "{" not in caption and "](" not in caption and "NaN" not in caption and len(caption) < 300
    meta, block = payload(scene)
    assert meta["steps"] == scene.steps and len(block) < 200_000


def test_a_layer_too_large_is_refused():
    with pytest.raises(RuleError, match="up to 48 are shown"):
        linear_scene("linear/tile", ladder_of("linear/tile").shape(49, 2, 2), {}, {})
