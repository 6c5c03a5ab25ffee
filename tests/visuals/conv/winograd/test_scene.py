"""The scenes of Winograd's kernels: their cells are those of the kernels, each sum on the stage gives its cell, and each pixel is read as
often as tiles cover it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kernels.conv import reference, winograd_matrices
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from tests.visuals.scene.test_payload import read
from visuals.conv.direct.scene import arrays
from visuals.conv.inputs import Inputs
from visuals.conv.winograd import part as winograd_part
from visuals.conv.winograd.part import NONFUSED, tiles_of, why_not
from visuals.conv.winograd.scene import MAX_PRODUCTS, fused_scene, shown, steps_scene
from visuals.scene.parts import SceneError
from visuals.scene.payload import payload
from visuals.scene.scene import Scene

TOY = CONV_PRESETS["toy"].shape
ODD = ConvShape(1, 2, 7, 9, 2, 3, 3, pad=(2, 1), mode="convolution")  # tiles that extend beyond the map, two channels
LARGE = ConvShape(2, 5, 30, 30, 9, 3, 3, pad=1)
FUSED = [(s, f"conv/winograd-{m}x{m}", m) for s, m in ((TOY, 2), (ODD, 2), (ODD, 4), (LARGE, 4))]
STEPS = [(s, NONFUSED, m) for s, m in ((TOY, 2), (ODD, 4), (LARGE, 2), (TOY, 6))]


def inputs_of(s: ConvShape) -> Inputs:
    return Inputs(s, "random", "random")


def scene_of(s: ConvShape, rung: str, m: int) -> Scene:
    tiles = find(rung).default_tiles
    return steps_scene(inputs_of(s), tiles | {"M": m}) if rung == NONFUSED else fused_scene(inputs_of(s), m, tiles)


def wrong_sums(scene: Scene, tolerance: float) -> int:
    """Returns the number of cells whose terms, at the step that writes the cell, do not sum to the written value."""
    wrong = 0
    for s in scene.sums:
        steps, cells, values = scene._events(s.out)
        for t in np.unique(steps):
            current = steps == t
            right = scene.cells(s.right, t)
            factors = scene.cells(s.left, t)[s.factors] if s.left else s.factors
            total = np.append(0, np.cumsum(factors.astype(float) * right[s.cells]))
            found = (total[s.start[1:]] - total[s.start[:-1]])[cells[current]]
            wrong += int((~(np.abs(found - values[current]) <= tolerance)).sum())
    return wrong


@pytest.mark.parametrize(("s", "rung", "m"), [*FUSED, *STEPS])
def test_cells_are_those_of_the_kernels_and_sums_give_their_cells(s, rung, m):
    scene, part = scene_of(s, rung, m), shown(s, m)
    given = arrays(inputs_of(s), part)
    tiles = find(rung).default_tiles | ({"M": m} if rung == NONFUSED else {})
    session = emulator.Session(find(rung).build(part, tiles), given, Options())
    session.verify_run()
    for name in "UVZy" if rung == NONFUSED else "Uy":
        expected = session.memory.array(name).ravel()
        np.testing.assert_allclose(scene.cells(name), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    exact, _ = reference.conv(part, **given)
    scale = np.abs(exact).max()
    np.testing.assert_allclose(scene.cells("y"), exact.ravel(), rtol=0, atol=1e-4 * scale)
    assert {"U", "V", "Z", "y"} <= {total.out for total in scene.sums}
    assert wrong_sums(scene, 1e-4 * scale) == 0


def test_a_wrongly_flipped_filter_is_detected(monkeypatch):
    right = winograd_part.terms
    monkeypatch.setattr(winograd_part, "terms", lambda X, flip=False: right(X, flip=not flip))
    assert wrong_sums(scene_of(*FUSED[0]), 1e-3) > 0


# -- fused -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("s", "rung", "m"), FUSED[:3])
def test_each_half_of_a_transform_follows_from_the_array_before_it(s, rung, m):
    scene, T = scene_of(s, rung, m), m + 2
    AT, _, BT = winograd_matrices.derive(m, 3).arrays("float64")

    def at(text: str) -> int:
        return next(t for t in range(scene.steps) if text in scene.caption(t))

    def square(name: str, t: int) -> np.ndarray:
        return scene.cells(name, t).reshape(-1, T)

    first, last = at("Launch 2, tile 1: first half"), at("Launch 2, tile 1, second half")
    np.testing.assert_allclose(square("Bd", first), BT @ square("d", first), rtol=1e-5, atol=1e-4)
    V = scene.cells("V", last).reshape(T * T, shown(s, m).C, -1)
    np.testing.assert_allclose(V[:, 0, 1].reshape(T, T), BT @ square("d", first) @ BT.T, rtol=1e-5, atol=1e-4)
    back = at("Launch 2, tile 0, filter 1: first half")
    np.testing.assert_allclose(square("AZ", back), AT @ square("z", back), rtol=1e-5, atol=1e-3)
    Z = scene.cells("Z", back).reshape(T * T, shown(s, m).K, -1)
    np.testing.assert_array_equal(Z[:, 1, 0], scene.cells("z", back))
    count = winograd_matrices.operations_2d(winograd_matrices.derive(m, 3).BT)
    said = f"Both halves take {count.additions} additions and {count.multiplications} multiplications"
    assert said in scene.caption(last)


@pytest.mark.parametrize(("s", "rung", "m"), FUSED)
def test_each_pixel_is_read_once_for_each_tile_over_it(s, rung, m):
    part = shown(s, m)
    windows = tiles_of(part, m).windows
    counts = np.bincount(windows[windows >= 0], minlength=part.H * part.W)
    np.testing.assert_array_equal(scene_of(s, rung, m).cells("R"), counts)


@pytest.mark.parametrize("m", [2, 4, 6])
def test_neighbouring_tiles_share_two_columns(m):
    of = tiles_of(ConvShape(1, 1, 4 * m + 2, 4 * m + 2, 1, 3, 3), m)
    for left, right in ((0, 1), (1, 2)):
        assert len(set(of.windows[left]) & set(of.windows[right])) == 2 * (m + 2)


# -- in steps ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("m", [2, 4])
def test_halves_are_those_of_the_first_tile_and_filter(m):
    scene, T = scene_of(TOY, NONFUSED, m), m + 2
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


@pytest.mark.parametrize(
    ("case", "names"),
    [
        (FUSED[0], ("07_winograd_filter.cu", "08_winograd_fused.cu")),
        (
            STEPS[0],
            ("07_winograd_filter.cu", "09_winograd_input.cu", "09_winograd_product.cu", "09_winograd_output.cu"),
        ),
    ],
)
def test_launches_follow_each_other_and_light_their_lines(case, names):
    scene = scene_of(*case)
    files = [scene.source_at(t)[0].file for t in range(scene.steps)]
    assert tuple(dict.fromkeys(files)) == names
    if case[1] == NONFUSED:  # the other positions follow in one step
        assert files.count("09_winograd_product.cu") == MAX_PRODUCTS + 1
    for t in range(scene.steps):
        source, line = scene.source_at(t)
        if "half" in scene.caption(t):
            assert "transform_2d(" in source.text.splitlines()[line - source.first]
        assert "{" not in scene.caption(t)


# -- the contract with the page ------------------------------------------------------------------------
@pytest.mark.parametrize("rung", ["conv/winograd-4x4", NONFUSED])
def test_a_large_shape_has_a_small_scene(rung):
    s = CONV_PRESETS["resnet50-res2-3x3-n32"].shape
    meta, block = payload(scene_of(s, rung, 4))
    assert len(block) + len(json.dumps(meta)) < 100_000 and shown(s, 4) == ConvShape(1, 2, 12, 12, 2, 3, 3, pad=1)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"out": "nobody"}, "names no tensor"),
        ({"start": np.array([0, 3])}, "do not divide"),
        ({"cells": np.array([10**6])}, "not a factor for each term|do not divide"),
        ({"left": "Q"}, "names no tensor"),
    ],
)
def test_a_sum_that_breaks_the_contract_is_refused(fields, says):
    scene = scene_of(*FUSED[0])
    with pytest.raises(SceneError, match=says):
        replace(scene, sums=(replace(scene.sums[0], **fields),))


def test_sums_are_sent_to_the_browser_unchanged():
    """Starts, cells and factors are read back from the block."""
    scene = scene_of(*FUSED[0])
    meta, block = payload(scene)
    assert meta["sums"] and any("index" in entry["factors"] for entry in meta["sums"])
    for entry, s in zip(meta["sums"], scene.sums, strict=True):
        assert (entry["out"], entry["left"], entry["right"], entry["rest"]) == (s.out, s.left, s.right, s.rest)
        np.testing.assert_array_equal(read(block, entry["start"]), s.start)
        np.testing.assert_array_equal(read(block, entry["cells"]), s.cells)
        np.testing.assert_array_equal(read(block, entry["factors"]), s.factors)


@pytest.mark.parametrize(
    ("s", "rule"),
    [
        (TOY.with_(R=5), "R and S must be 3, got 5 and 3"),
        (TOY.with_(u=2), "stride must be 1"),
        (TOY.with_(dilation_h=2), "dilation must be 1"),
        (ConvShape(1, 2, 8, 8, 2, 3, 3, groups=2), "groups must be 1, got 2"),
    ],
)
def test_unsupported_shape_names_the_rule(s, rule):
    assert rule in why_not(s, 4)
