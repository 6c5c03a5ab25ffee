"""The scenes of pooling: they end with what the kernels stored, forward and backward have the same links, and atomics that
collide are counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import emulator
from kernels.ladders import ladder_of
from kernels.pooling import reference
from kernels.pooling.ladder import LADDERS as POOLING
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape, PoolShape
from kernels.runner import inputs_of
from tests.helpers.pooling import avg_shapes, global_shapes, max_shapes
from visuals.pooling import links
from visuals.pooling.scene import links_of, pool_scene
from visuals.pooling.views import VIEWS
from visuals.scene.payload import payload

OWN = [rung.name for ladder in POOLING for rung in ladder.rungs if not (rung.library or rung.no_scene)]
MAX_SHOWN = 12  # rows and columns of a plane
PATCHES = [name for name in VIEWS if name.endswith("patch")]
WINDOWS = [
    {"R": 3, "u": 2, "pad_h": 1, "dilation_h": 1, "S": 3, "v": 2, "pad_w": 1, "dilation_w": 1, "ceil": 0},
    {"R": 2, "u": 3, "pad_h": 0, "dilation_h": 1, "S": 3, "v": 1, "pad_w": 1, "dilation_w": 1, "ceil": 1},
]


FIRST = {"max-pool": "window", "avg-pool": "window", "global-avg-pool": "plane"}


def shapes_of(name: str) -> st.SearchStrategy:
    chosen = st.sampled_from(WINDOWS) if name in PATCHES else None
    return (
        max_shapes(chosen)
        if name.startswith("max")
        else avg_shapes(chosen)
        if name.startswith("avg")
        else global_shapes
    )


def emulated(name: str, s, inputs=None):
    """Returns (scene, session of the emulator after a run, program) of a rung at its default tile sizes."""
    ladder = ladder_of(name)
    rung = ladder.rung(name)
    program = rung.build(s, rung.default_tiles)
    inputs = inputs or inputs_of(ladder, s, program)
    session = emulator.open(program, inputs)
    session.verify_run()
    return pool_scene(name, s, {}, inputs), session, program


@pytest.mark.parametrize("name", OWN)
@settings(max_examples=3)
@given(data=st.data())
def test_the_last_step_equals_what_the_kernel_stored(name, data):
    """Exactly. Of the average's scatter only up to the order of atomics, which the kernel does not fix."""
    scene, session, program = emulated(name, data.draw(shapes_of(name)))
    for b in program.outputs:
        shown, stored = scene.cells(b.name), session.fetch(b.name).ravel()
        if name == "avg-pool-backward/scatter":
            np.testing.assert_allclose(shown, stored, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(shown, stored)
    for name, array in ((b.name, session.fetch(b.name)) for b in program.of_role("input")):
        np.testing.assert_array_equal(scene.cells(name), array.ravel())


@pytest.mark.parametrize("name", [n for n in VIEWS if "backward" not in n])
@settings(max_examples=3)
@given(data=st.data())
def test_pixels_loaded_are_those_that_the_kernel_loads(name, data):
    """The compiler leaves out loads of pixels of a patch that no window needs, and the caption says so."""
    s = data.draw(shapes_of(name))
    scene, session, _ = emulated(name, s)
    (loaded,) = scene.readings
    counted = session.counters.total["bytes_ld"]
    if name in PATCHES and (s.u > s.R or s.v > s.S):
        assert 4 * int(loaded.values[-1]) >= counted and "The compiler leaves out" in scene.caption(0)
    else:
        assert 4 * int(loaded.values[-1]) == counted


@pytest.mark.parametrize("name", [n for n in VIEWS if "backward" in n and not n.startswith("global")])
@pytest.mark.parametrize("planes", [1, 3])
def test_atomics_are_those_of_the_kernel(name, planes):
    """A gather has none. In a scatter an addition collides unless it is the first to its pixel."""
    shape = (MaxPoolShape if name.startswith("max") else AvgPoolShape)(1, planes, 5, 5, 3, 3, stride=2, pad=1)
    scene, session, program = emulated(name, shape)
    atomics, again = (int(r.values[-1]) for r in scene.readings)
    assert atomics == session.counters.total["atomics"]
    assert (atomics > 0) == ("scatter" in name)
    if "scatter" in name:
        inputs = {b.name: session.fetch(b.name) for b in program.of_role("input")}
        reached = np.unique(links_of(name, shape, inputs)[0].cells)
        assert again == atomics - len(reached) > 0
        assert (np.diff(scene.readings[1].values) > 0).sum() <= scene.steps
    else:
        assert again == 0


def test_windows_apart_never_collide():
    for shape, name in ((MaxPoolShape(1, 1, 6, 6, 2, 2), "max"), (AvgPoolShape(1, 1, 6, 6, 2, 2), "avg")):
        scene, _, _ = emulated(f"{name}-pool-backward/scatter", shape)
        assert scene.readings[0].values[-1] > 0 and not scene.readings[1].values.any()
        assert not any(" too." in scene.caption(t) or "collide" in scene.caption(t) for t in range(scene.steps))


# -- links -------------------------------------------------------------------------------------------
def pairs(scene) -> set[tuple[int, int]]:
    """Returns (output, pixel) of every link that a scene shows, in its sum or in the notes of a scatter."""
    if scene.annotations:
        (note,) = scene.annotations
        pixels, nth = np.nonzero(note.links["dy"] >= 0)
        return set(zip(note.links["dy"][pixels, nth], pixels, strict=True))
    (s,) = scene.sums
    terms = np.repeat(np.arange(len(s.start) - 1), np.diff(s.start))
    return set(zip(*((terms, s.cells) if s.out == "y" else (s.cells, terms)), strict=True))


@settings(max_examples=15)
@given(s=st.one_of(max_shapes(), avg_shapes(), global_shapes))
def test_forward_and_backward_have_the_same_links(s):
    """The same arrows, read from the other end; also with the same factors."""
    kind = {MaxPoolShape: "max-pool", AvgPoolShape: "avg-pool", GlobalShape: "global-avg-pool"}[type(s)]
    forward, *backward = (n for n in VIEWS if n.startswith(f"{kind}-backward/") or n == f"{kind}/{FIRST[kind]}")
    ladder = ladder_of(forward)
    inputs = inputs_of(ladder, s, ladder.rungs[0].build(s, ladder.rungs[0].default_tiles))
    y = ladder.reference(s, **inputs)
    y = y["y"][0] if isinstance(y, dict) else y[0]
    gradients = {"dy": np.ones(y.shape, np.float32)}
    if kind == "max-pool":
        gradients["index"] = reference.maxima(s, inputs["x"])[1].astype(np.int32)
    there = pool_scene(forward, s, {}, inputs)
    assert there.groups[0].rows[0] == ("x",)
    for name in backward:
        back = pool_scene(name, s, {}, gradients)
        assert pairs(there) == pairs(back)
        assert back.groups[0].rows[0] == ("dx",)  # at the place of x
        if back.sums:
            assert there.sums[0].factors.sum() == pytest.approx(back.sums[0].factors.sum(), rel=1e-5)


@settings(max_examples=15)
@given(s=st.one_of(max_shapes(), avg_shapes(), global_shapes), data=st.data())
def test_a_sum_explains_each_result(s, data):
    kind = {MaxPoolShape: "max-pool", AvgPoolShape: "avg-pool", GlobalShape: "global-avg-pool"}[type(s)]
    name = data.draw(
        st.sampled_from(
            [
                n
                for n in VIEWS
                if n.startswith((f"{kind}/", f"{kind}-b")) and n not in PATCHES and not n.endswith("scatter")
            ]
        )
    )
    ladder = ladder_of(name)
    inputs = inputs_of(ladder, s, ladder.rung(name).build(s, ladder.rung(name).default_tiles))
    scene = pool_scene(name, s, {}, inputs)
    (total,) = scene.sums
    terms = total.factors.astype(np.float64) * scene.cells(total.right)[total.cells]
    owner = np.repeat(np.arange(len(total.start) - 1), np.diff(total.start))
    sums = np.bincount(owner, terms, len(total.start) - 1)
    np.testing.assert_allclose(scene.cells(total.out), sums, rtol=1e-4, atol=1e-5)


@settings(max_examples=25)
@given(s=st.one_of(max_shapes(), avg_shapes()))
def test_windows_and_their_readers_are_one_relation(s):
    there = links.windows(s)
    back = there.reversed(s.pixels)
    for pixel in range(min(s.pixels, 40)):
        for output in back.of(pixel):
            assert pixel in there.of(int(output))
    assert back.counts.sum() == there.counts.sum()
    one_plane = there.counts[: s.P * s.Q]
    assert (one_plane.reshape(s.P, s.Q) <= s.R * s.S).all() and (one_plane > 0).all()


# -- steps -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", VIEWS)
def test_every_step_has_a_caption_and_a_line(name):
    ladder = ladder_of(name)
    for key in list(ladder.presets)[:2]:
        scene, _, _ = emulated(name, ladder.presets[key].shape)
        seen = ""
        for t in range(scene.steps):
            caption = scene.caption(t)
            assert "{" not in caption and len(caption) < 300 and caption != seen
            source, line = scene.source_at(t)
            assert source.text.splitlines()[line - source.first].strip()
            seen = caption
        assert payload(scene)[0]["steps"] == scene.steps


def test_a_scatter_begins_with_the_kernel_that_writes_zeros():
    scene, _, _ = emulated("max-pool-backward/scatter", MaxPoolShape(1, 1, 5, 5, 3, 3, stride=2, pad=1))
    assert scene.source_at(0)[0].file == "00_zero.cu" and scene.source_at(1)[0].file == "03_max_scatter.cu"
    assert not scene.cells("dx", 0).any()


def test_the_caption_names_the_kept_place():
    x = np.zeros((1, 1, 4, 4), np.float32)
    x[0, 0, 1, 2] = x[0, 0, 3, 2] = 9
    scene, _, _ = emulated("max-pool/window", MaxPoolShape(1, 1, 4, 4, 3, 3, stride=1), {"x": x})
    assert "The largest is 9 in row 1, column 2 of x." in scene.caption(0)
    assert "index = 1·4 + 2 = 6" in scene.caption(1)
    assert "more than once" not in scene.caption(2)
    for t in (3, 4):  # the windows below hold both nines
        assert "9 is the largest of 9 pixels, more than once. The first counts: index = 6." in scene.caption(t)


def part_of(s: PoolShape | GlobalShape) -> PoolShape | GlobalShape:
    """Returns a part of a shape: one plane of at most 12 x 12 pixels, with the same window, stride and padding.

    A larger window keeps the pixels that it needs. Of global pooling, four planes are shown."""
    if isinstance(s, GlobalShape):
        return s.with_(N=min(s.N, 2), C=min(s.C, 2), H=min(s.H, MAX_SHOWN), W=min(s.W, MAX_SHOWN))

    def extent(size: int, span: int) -> int:
        return min(size, max(MAX_SHOWN, span))

    H = extent(s.H, s.dilation_h * (s.R - 1) + 1)
    W = extent(s.W, s.dilation_w * (s.S - 1) + 1)
    return s.with_(N=1, C=1, H=H, W=W)


@pytest.mark.parametrize("ladder", POOLING, ids=lambda ladder: ladder.name)
def test_every_preset_can_be_shown_in_part(ladder):
    """The stage shows one plane of at most 12 x 12 with the same window."""
    for preset in ladder.presets.values():
        part = part_of(preset.shape)
        assert max(part.H, part.W) <= MAX_SHOWN
        for rung in (rung for rung in ladder.rungs if rung.name in OWN):
            inputs = inputs_of(ladder, part, rung.build(part, rung.default_tiles))
            assert pool_scene(rung.name, part, {}, inputs).steps <= 160
        if isinstance(part, GlobalShape):
            assert part.planes <= 4
        else:
            assert part.planes == 1
            assert (part.R, part.u, part.pad_h) == (preset.shape.R, preset.shape.u, preset.shape.pad_h)


def test_the_lane_of_a_window_is_that_of_its_thread():
    scene, _, _ = emulated("avg-pool/window", AvgPoolShape(1, 1, 14, 14, 2, 2))
    changed = {t: scene.cells("y", t) for t in range(scene.steps)}
    for t in range(2, scene.steps):  # window 0 has two steps
        (o,) = np.flatnonzero(np.isnan(changed[t - 1]) & ~np.isnan(changed[t]))
        assert (scene.lanes.warp[t], scene.lanes.mask[t]) == (o // 32, 1 << o % 32)
