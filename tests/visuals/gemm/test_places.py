"""Where the stage draws the matrices: in every scene of every rung, B is above C and A is left of C."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kernels.conv.presets import CONV_PRESETS
from kernels.gemm.shape import GemmShape
from tests.visuals.conv.im2col.test_scene import scene_of
from tests.visuals.gemm.test_scene import DTYPES, RUNGS, matrices, smallest
from visuals import stage
from visuals.gemm.fragment import K, M, N, fragment_scene
from visuals.gemm.scene import gemm_scene
from visuals.gemm.warps import warps_scene
from visuals.scene.parts import product
from visuals.scene.scene import Scene

PLACES = Path(__file__).parents[2] / "node" / "product_places.js"
# Of the picture, in a window of 1440 x 900 and of 1280 x 720, beside a chapter and without one.
SIZES = [[700, 430], [930, 400], [560, 290], [800, 260]]
TOY = CONV_PRESETS["toy"]
SHAPES = [(16, 16, 16, 1, 1), (300, 520, 200, 1, 0)]  # whole and a part; M, N, K, alpha, beta


def places(node: str, folder: Path, scenes: list[Scene], sizes: list[list[int]] = SIZES) -> list[list[dict]]:
    """Returns by scene and size the left edge, top, cell, rows and columns of each tensor."""
    file = folder / "scenes.json"
    file.write_text(json.dumps({"scenes": [stage.message(scene).hex() for scene in scenes], "sizes": sizes}))
    done = subprocess.run([node, PLACES, file], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)


def assert_product(at: dict, A: str, B: str, C: str) -> None:
    (ax, ay, *a), (bx, by, *b), (cx, cy, *c) = at[A], at[B], at[C]
    assert bx == cx and by + b[0] * b[1] < cy, f"{B} above {C}"
    assert ay == cy and ax + a[0] * a[2] < cx, f"{A} left of {C}"
    assert a[0] == b[0] == c[0], "cells of one size"
    assert (a[1], b[2]) == (c[1], c[2]) and a[2] == b[1]


def test_b_is_above_c_and_a_left_of_it(node, tmp_path):
    scenes = []
    for n, rung in enumerate(RUNGS):
        s = GemmShape(*SHAPES[n % 2], dtype=DTYPES.get(rung, "fp32"))
        scenes += [gemm_scene(s, rung, tiles, *matrices(s)) for tiles in (smallest(rung), {})]
        s = GemmShape(16, 16, 16, dtype=DTYPES.get(rung, "fp32"))
        scenes.append(warps_scene(s, rung, smallest(rung), *matrices(s)))
    for scene, by_size in zip(scenes, places(node, tmp_path, scenes), strict=True):
        for at in by_size:
            assert_product(at, "A", "B", "C")
            if any(group.table and "acc" in group.rows[-1] for group in scene.groups):
                assert_product(at, "a", "b", "acc")
            if "acc" in at:  # the explaining order: tiles that the values of a thread or warp come from
                assert "tile_a" not in at or at["tile_b"][1] < at["tile_a"][1]
            if "C0" in at:
                assert at["C0"][1:3] == at["C"][1:3] and at["C0"][0] > at["C"][0]


def test_fragments_are_placed_as_a_product(node, tmp_path):
    A, B, _ = matrices(GemmShape(M, N, K, dtype="fp16"))
    for at in places(node, tmp_path, [fragment_scene(A, B)])[0]:
        assert_product(at, "A", "B", "C")


PHONE, SLIDE = [362, 380], [540, 300]  # of the picture; the slide is one of the deck's


@pytest.mark.parametrize("size", [TOY.shape, TOY.shape.with_(H=4, W=4)], ids=str)
def test_the_data_matrix_is_above_the_output_and_the_filters_left_of_it(size, node, tmp_path):
    scene = scene_of(size)
    for at in places(node, tmp_path, [scene], [*SIZES, PHONE, SLIDE])[0]:
        assert_product(at, "w", "D", "C")
        assert at["x"][1] == at["D"][1] and at["x"][0] == at["w"][0], "the input is beside its columns"


def test_a_wide_data_matrix_is_folded_over_the_output(node, tmp_path):
    scene = scene_of(TOY.shape.with_(H=32, W=32))
    assert not scene.groups[0].table  # x is above them
    for at in places(node, tmp_path, [scene])[0]:
        assert at["D"][1] < at["C"][1]


def test_a_product_leaves_the_corner_empty():
    assert product("A", "B", "C") == (("", "B"), ("A", "C"))
    assert product("A", "B", "C", "C0") == (("", "B", ""), ("A", "C", "C0"))
