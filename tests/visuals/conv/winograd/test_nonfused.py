"""Winograd in steps: the cells are those of the kernels' workspaces, and each sum on the stage gives its cell."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kernels.conv import reference, winograd_matrices
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from tests.visuals.conv.winograd.test_scene import wrong_sums
from visuals.conv.direct.scene import arrays
from visuals.conv.inputs import Inputs
from visuals.conv.winograd.nonfused import MAX_PRODUCTS, shown, steps_scene
from visuals.conv.winograd.part import NONFUSED
from visuals.scene.payload import payload

RUNG, TOY = find(NONFUSED), CONV_PRESETS["toy"].shape
SHAPES = [TOY, ConvShape(1, 2, 7, 9, 2, 3, 3, pad=(2, 1), mode="convolution"), ConvShape(2, 5, 30, 30, 9, 3, 3, pad=1)]


def scene_of(s: ConvShape, m: int):
    return steps_scene(Inputs(s, "random", "random"), RUNG.default_tiles | {"M": m})


@pytest.mark.parametrize(("s", "m"), [(SHAPES[0], 2), (SHAPES[1], 4), (SHAPES[2], 2), (SHAPES[0], 6)])
def test_cells_are_those_of_the_kernels_and_sums_give_their_cells(s, m):
    scene, part = scene_of(s, m), shown(s, m)
    given = arrays(Inputs(s, "random", "random"), part)
    session = emulator.Session(RUNG.build(part, RUNG.default_tiles | {"M": m}), given, Options())
    session.verify_run()
    for name in "UVZy":
        expected = session.memory.array(name).ravel()
        np.testing.assert_allclose(scene.cells(name), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    exact, _ = reference.conv(part, **given)
    np.testing.assert_allclose(scene.cells("y"), exact.ravel(), rtol=0, atol=1e-4 * np.abs(exact).max())
    assert {total.out for total in scene.sums} == {"U", "V", "Z", "y"}
    assert wrong_sums(scene, 1e-4 * np.abs(exact).max()) == 0


@pytest.mark.parametrize("m", [2, 4])
def test_halves_are_those_of_the_first_tile_and_filter(m):
    scene, T = scene_of(TOY, m), m + 2
    AT, G, BT = winograd_matrices.derive(m, 3).arrays("float64")

    def at(text: str) -> int:
        return next(t for t in range(scene.steps) if text in scene.caption(t))

    g, d = scene.cells("w")[:9].reshape(3, 3), scene.cells("x").reshape(8, 8)[:T, :T]
    first, second = at("transforms filter 0, channel 0"), at("tile 0, channel 0: first half")
    np.testing.assert_allclose(scene.cells("Gg", first).reshape(T, 3), G @ g, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scene.cells("Bd", second).reshape(T, T), BT @ d, rtol=1e-5, atol=1e-5)
    Z = scene.cells("Z").reshape(T * T, 2, -1)[:, 0, 0].reshape(T, T)
    third = at("tile 0, filter 0: first half")
    np.testing.assert_allclose(scene.cells("AZ", third).reshape(m, T), AT @ Z, rtol=1e-4, atol=1e-4)
    count = winograd_matrices.operations_2d(winograd_matrices.derive(m, 3).BT)
    said = f"Both halves take {count.additions} additions and {count.multiplications} multiplications"
    assert said in scene.caption(second + 1)


def test_launches_follow_each_other_and_light_their_lines():
    scene = scene_of(TOY, 2)
    files = [scene.source_at(t)[0].file for t in range(scene.steps)]
    names = ("07_winograd_filter.cu", "09_winograd_input.cu", "09_winograd_product.cu", "09_winograd_output.cu")
    assert list(dict.fromkeys(files)) == list(names)
    assert files.count("09_winograd_product.cu") == MAX_PRODUCTS + 1  # the other positions follow in one step
    for t in range(scene.steps):
        source, line = scene.source_at(t)
        if "half" in scene.caption(t):
            assert "transform_2d(" in source.text.splitlines()[line - source.first]
        assert "{" not in scene.caption(t)


def test_a_large_shape_has_a_small_scene():
    s = CONV_PRESETS["resnet50-res2-3x3-n32"].shape
    meta, block = payload(scene_of(s, 4))
    assert len(block) + len(json.dumps(meta)) < 100_000 and shown(s, 4) == ConvShape(1, 2, 12, 12, 2, 3, 3, pad=1)
