"""The scenes of rows and heads: they end with what the kernels stored, and split and merge go over the same links."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.heads.ladder import LADDERS, MERGE, SPLIT
from kernels.heads.presets import presets
from kernels.heads.shape import HeadsShape
from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from kernels.runner import inputs_of, run
from visuals.heads.notes import NOTES
from visuals.heads.scene import heads_scene
from visuals.heads.views import VIEWS
from visuals.scene.payload import payload

QKV = HeadsShape(1, 3, 2, 4, 3)
SIZES = (QKV, HeadsShape(2, 5, 3, 7, 3), HeadsShape(1, 4, 2, 4), HeadsShape(2, 6, 3, 8), HeadsShape(1, 1, 1, 1))
TILES = ({}, {"BLOCK": 32, "PER": 1}, {"BLOCK": 32, "PER": 4})


def made(rung: str, s: HeadsShape, tiles: dict[str, int]):
    """Returns (scene, stored outputs, inputs) of a rung."""
    tiles = find(rung).check(s, {name: value for name, value in tiles.items() if name in find(rung).tiles})
    inputs = dict(inputs_of(ladder_of(rung), s, find(rung).build(s, tiles)))
    stored = run(rung, s, inputs, engine="emulator", tiles=tiles, measure=False).outputs
    return heads_scene(rung, s, tiles, inputs), stored, inputs


def assert_it_ends_with_what_was_stored(rung: str, s: HeadsShape, tiles: dict[str, int]) -> None:
    scene, stored, _ = made(rung, s, tiles)
    for name, array in stored.items():
        np.testing.assert_array_equal(scene.cells(name), array.ravel(), err_msg=name)


def test_every_own_rung_has_a_scene():
    assert set(VIEWS) == {rung.name for ladder in LADDERS for rung in ladder.rungs if not rung.library}


@pytest.mark.parametrize("rung", VIEWS)
def test_the_scene_ends_with_what_the_kernel_stored(rung):
    for n, s in enumerate(SIZES):
        assert_it_ends_with_what_was_stored(rung, s, TILES[n % len(TILES)])


@pytest.mark.parametrize("rung", VIEWS)
@settings(max_examples=3)
@given(st.tuples(*(st.integers(1, most) for most in (2, 6, 4, 9))), st.sampled_from((1, 3)), st.sampled_from(TILES))
def test_any_shape(rung, extents, parts, tiles):
    assert_it_ends_with_what_was_stored(rung, HeadsShape(*extents, parts), tiles)


@pytest.mark.parametrize("name", ["elements", "float4"])
@pytest.mark.parametrize("s", SIZES[:4], ids=str)
def test_merge_goes_back_over_the_links_of_split(name, s):
    """What split stores from number i, merge stores back to number i."""
    split, stored, inputs = made(f"{SPLIT}/{name}", s, {})
    tiles = find(f"{MERGE}/{name}").default_tiles
    merge = heads_scene(f"{MERGE}/{name}", s, tiles, {part: stored[part] for part in s.names})
    np.testing.assert_array_equal(merge.cells("y"), inputs["x"].ravel())
    assert {t.name for t in split.tensors} - {"x"} == {t.name for t in merge.tensors} - {"y"}


@pytest.mark.parametrize("s", (QKV, HeadsShape(1, 4, 2, 48)), ids=str)
def test_a_step_has_the_numbers_of_one_head_of_one_token(s):
    """Also if they are in two blocks. In both orders they are neighbours."""
    scene, _, _ = made(f"{SPLIT}/elements", s, {"BLOCK": 32})
    for t in range(scene.steps):
        (read,) = (r.cells[r.start[t] : r.start[t + 1]] for r in scene.reads)
        assert (len(read), np.ptp(read)) == (s.d, s.d - 1) and read[0] % s.d == 0
        new = [np.flatnonzero(~np.isnan(scene.cells(name, t)) & np.isnan(before(scene, name, t))) for name in s.names]
        (written,) = (cells for cells in new if cells.size)
        assert (len(written), np.ptp(written)) == (s.d, s.d - 1)


def before(scene, name: str, t: int) -> np.ndarray:
    return scene.cells(name, t - 1) if t else np.full(scene.tensor(name).size, np.nan)


@pytest.mark.parametrize("s", SIZES, ids=str)
@pytest.mark.parametrize("rung", VIEWS)
def test_captions_lines_lanes_and_bytes(rung, s):
    scene, _, _ = made(rung, s, {"BLOCK": 32, "PER": 1})
    payload(scene)
    for t in range(scene.steps):
        caption = scene.caption(t)
        assert "{" not in caption and scene.source_at(t)[1] > 0
        assert all(len(sentence.split()) <= 24 for sentence in re.split(r"[.:] ", caption)), caption
    moved = {reading.label: int(reading.values[-1]) for reading in scene.readings}
    assert list(moved.values()) == [4 * s.elements, 4 * s.elements], moved


def test_a_shape_too_large_is_refused():
    with pytest.raises(RuleError, match="at most 2,048 numbers"):
        heads_scene(f"{SPLIT}/elements", HeadsShape(1, 64, 8, 8), {}, {})


@pytest.mark.parametrize("ladder", NOTES)
def test_the_story_has_the_figures_of_the_shape(ladder):
    for preset in presets(ladder).values():
        text = NOTES[ladder].cost(preset.shape)
        assert f"{preset.shape.elements:,} numbers" in text and "{" not in text
    assert NOTES[ladder].gain({}) == ""
    assert {preset.key for preset, _ in NOTES[ladder].examples()} <= presets(ladder).keys()


def test_a_caption_names_the_plane_that_is_written():
    s = HeadsShape(2, 3, 2, 4)
    scene, _, _ = made(f"{SPLIT}/elements", s, {})
    written = np.zeros(s.elements, bool)
    for t in range(scene.steps):
        new = ~np.isnan(scene.cells("O", t)) & ~written
        (plane,) = set(np.flatnonzero(new) // (s.T * s.d))
        assert f"of plane {plane} of O." in scene.caption(t)
        written |= new


@pytest.mark.parametrize("ladder", (SPLIT, MERGE))
def test_loads_are_read_before_stores_are_written(ladder):
    """A block loads all its numbers, then it stores them."""
    scene, _, _ = made(f"{ladder}/float4", QKV, {"BLOCK": 32, "PER": 1})
    read, written = (reading.values for reading in scene.readings)
    assert read[0] > 0 == written[0] and read[-2] == read[-1] > written[-2]
