"""Tests of the lesson on layers without a browser: every layer, pass, rung and preset, links between passes, bad input."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.ladders import find
from kernels.model.shape import ShapeError
from pages import _teasers
from pages.layers import address, controls
from pages.layers.layers import BACKWARD, FORWARD, LAYERS
from pages.parts import tiles
from tests.helpers.chapters import WITH_STORY, open_chapter, story
from tests.helpers.offenders import every
from tests.helpers.page_runner import finish, heads, links, open_page, stages, strip, texts
from visuals.pooling.links import windows

open_at = partial(open_page, "layers/page.py")
PASSES = [pytest.param(layer, side, id=f"{layer}-{side}") for layer, row in LAYERS.items() for side in row.passes]
every_pass = pytest.mark.parametrize(("layer", "side"), PASSES)


def at_preset(layer: str, side: str, key: str) -> dict[str, str]:
    found = address.address(layer, side)
    shape = address.of(layer, side)[1].presets[key].shape
    return address.write(layer, side) | found.at_shape(found.read({})[0], shape)


def start(layer: str, side: str):
    return address.address(layer, side).read({})[0]


# -- the registry ----------------------------------------------------------------------------------
@every_pass
def test_a_pass_begins_at_its_small_preset_and_has_a_larger_real_one(layer, side):
    row, one = address.of(layer, side)
    selection = start(layer, side)
    assert selection.shape == one.presets[one.stage].shape and not selection.broken
    real = address.real(layer, side, selection.shape)
    assert real == one.presets[one.real].shape and real.macs > 1000 * selection.shape.macs
    assert address.staged(layer, selection.shape) == selection.shape
    assert controls.name(real) != controls.name(selection.shape)
    assert set(row.field_names) <= set(selection.shape.params())


@every_pass
def test_every_own_rung_has_a_scene_at_the_small_shape_and_at_a_part_of_the_real_one(layer, side):
    found = address.address(layer, side)
    real = address.of(layer, side)[1].presets[address.of(layer, side)[1].real].shape
    for name in found.rungs:
        layout = {"layout": "nhwc"} if "nhwc" in name else {}
        small, notes = found.read({"rung": name} | layout)
        large, _ = found.read(found.at_shape(small, real.with_(**layout)))
        for selection in (small, large):
            scene, reason = address.scene(layer, side, selection)
            assert scene and not reason and not notes
            assert scene.key.startswith(f"{selection.rung.name} ")
            assert selection.rung is small.rung or tiles.broken(small.rung, selection.shape, small.rung.default_tiles)


@pytest.mark.parametrize("layer", [name for name, row in LAYERS.items() if BACKWARD in row.passes])
def test_forward_and_backward_show_the_same_arrays(layer):
    """A tensor of both passes has the same extents in the same colour, and x and its gradient have the same place."""
    scenes = [address.scene(layer, side, start(layer, side))[0] for side in (FORWARD, BACKWARD)]
    forward, backward = ({t.name: t for t in scene.tensors} for scene in scenes)
    shared = set(forward) & set(backward)
    sizes = lambda t: (t.planes, t.rows, t.cols)  # noqa: E731
    for name in shared:
        assert sizes(forward[name]) == sizes(backward[name])
    for name in {n[1:] for n in backward if n.startswith("d")} & set(forward):
        assert sizes(forward[name]) == sizes(backward[f"d{name}"])
    assert any(name.startswith("d") for name in backward)


@every(
    ("layer", "kept", "fields"),
    [
        ("relu", "y", {}),
        ("relu", "mask", {"keep": "bytes"}),
        ("relu", "mask", {"keep": "bits"}),
        ("residual", "y", {}),
        ("max-pool", "index", {}),
        ("cross-entropy", "lse", {}),
    ],
)
def test_the_backward_pass_gets_what_the_forward_pass_kept(layer, kept, fields):
    scenes = [
        address.scene(layer, side, address.address(layer, side).read(fields)[0])[0] for side in (FORWARD, BACKWARD)
    ]
    forward, backward = (scene.cells(kept) for scene in scenes)
    np.testing.assert_allclose(backward, forward, rtol=1e-5 if kept == "lse" else 0)
    assert np.ptp(forward) > 0


def test_the_gradient_of_a_pooling_differs_from_its_input():
    forward, backward = (address.scene("avg-pool", side, start("avg-pool", side))[0] for side in (FORWARD, BACKWARD))
    dy = backward.tensor("dy").values.ravel()
    assert (dy != forward.tensor("x").values.ravel()[: dy.size]).any()


def test_the_rows_of_a_batch_have_equal_shares_of_the_loss():
    selection = start("cross-entropy", BACKWARD)
    scene = address.scene("cross-entropy", BACKWARD, selection)[0]
    np.testing.assert_allclose(scene.tensor("g").values, 1 / selection.shape.M)


@pytest.mark.parametrize(("layer", "field", "value"), [("bias", "layout", "nhwc"), ("relu", "keep", "bits")])
def test_the_real_shape_keeps_the_layout_and_what_is_kept(layer, field, value):
    shape = start(layer, FORWARD).shape.with_(**{field: value})
    assert getattr(address.real(layer, FORWARD, shape), field) == value


def test_a_small_shape_has_the_smallest_tiles_of_its_rung():
    shape, rung = start("linear", FORWARD).shape, find("linear/tile")
    assert (
        address.fit(rung, shape)["BM"]
        == min(tiles["BM"] for tiles in rung.tile_sets(shape))
        < rung.tiles_at(shape)["BM"]
    )


@settings(max_examples=20)
@given(data=st.data())
def test_bounds_keep_every_rule_and_the_next_number_breaks_one(data):
    """From any shape that the page shows, each number can be set to both its bounds, and no further."""
    layer = data.draw(st.sampled_from(["relu", "max-pool", "avg-pool", "cross-entropy"]))
    found, row = address.address(layer, FORWARD), LAYERS[layer]
    drawn = {
        n: data.draw(st.integers(f.minimum, min(f.maximum, 40)))
        for n, f in found.shape.items()
        if hasattr(f, "minimum")
    }
    selection, _ = found.read(drawn)
    make = partial(address._checked, address.of(layer, FORWARD)[1].ladder, row.field_names)
    for name, bound in address.bounds(layer, FORWARD, selection.shape).items():
        field, values = found.shape[name], selection.shape.params()
        assert field.minimum <= bound.low <= values[name] <= bound.high <= field.maximum
        for allowed in (bound.low, bound.high):
            make(values | {name: allowed})
        for beyond, limit in ((bound.low - 1, field.minimum - 1), (bound.high + 1, field.maximum + 1)):
            if beyond != limit:
                with pytest.raises(ShapeError):
                    make(values | {name: beyond})


# -- the page --------------------------------------------------------------------------------------
@every_pass
def test_a_pass_shows_every_part_and_no_preset_needs_a_note(layer, side):
    found, (_, one) = address.address(layer, side), address.of(layer, side)
    assert not [key for key in one.presets if found.read(at_preset(layer, side, key))[1]]
    at = open_at(**{"view": "explore"} | at_preset(layer, side, one.real))
    html = texts(at)
    assert "kt-note" not in html
    for part in ("Time", "Memory", "Roofline", "Why", "Kernel"):
        assert f'<h2 class="kt-card">{part}' in html, part
    assert len(stages(at)) == 1 and at.code and strip(at)["run"]["label"] == "Run here"


@pytest.mark.parametrize("view", ["watch", "run", "why", "kernel"])
def test_each_view_shows_only_its_part(view):
    at = open_at(layer="max-pool", **{"pass": "backward"}, view=view)
    assert bool([b for b in at.button if b.key == "run"]) == (view in ("run", "why"))
    assert bool(at.code) == (view == "kernel") and len(stages(at)) == (view == "watch")
    assert not at.number_input and "<h1" not in texts(at)


def test_forward_and_backward_are_one_link_apart():
    at = open_at(layer="max-pool", H="7", R="2", S="2", pad_h="0")
    there = links(at)["backward"]
    assert (
        there.items() >= {"layer": "max-pool", "pass": "backward", "H": "7", "R": "2", "S": "2", "pad_h": "0"}.items()
    )
    at = open_at(**there)
    assert re.match(r"max-pool-backward/scatter BLOCK=\d+ N1 C1 7x5 window 2x2", stages(at)[0])
    assert links(at)["forward"].items() >= {"layer": "max-pool", "H": "7", "R": "2"}.items()
    assert "pass" not in links(at)["forward"]


def test_a_link_to_another_layer_leaves_the_shape_of_this_one():
    at = open_at(layer="relu", N="2", keep="bits", engine="cpu")
    assert links(at)["bias"] == {"layer": "bias", "engine": "cpu"}


def test_the_stage_names_the_part_that_it_shows():
    assert "The stage shows a part" not in texts(open_at(layer="relu"))
    at = open_at(layer="relu", N="64", C="256", P="56", Q="56")
    assert "The stage shows a part of N 64, C 256, 56×56: N 1, C 3, 6×6." in texts(at)


# -- bad input -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"layer": "swish"}, "layer must be one of relu, gelu, bias"),
        ({"layer": "sgd", "pass": "backward"}, "pass must be one of update; got “backward”"),
        ({"layer": "relu", "rung": "gather"}, "rung must be one of scalar, float4"),
        ({"layer": "relu", "keep": "nothing"}, "keep must be one of y, bytes, bits"),
        ({"layer": "relu", "N": "0"}, "N must be 1 to 1,048,576"),
        ({"layer": "relu", "N": "1000000", "C": "60000"}, "must stay below 2^31"),
        (
            {"layer": "relu", "N": "400000", "C": "5", "P": "20", "Q": "20"},
            "a shape may move at most 4.29 GB on this page",
        ),
        ({"layer": "max-pool", "R": "8"}, "the window must fit the padded input"),
        ({"layer": "avg-pool", "pad_h": "2"}, "pad_h &lt;= R // 2, got 2 &gt; 1"),
        ({"layer": "sgd", "sizes": "5 x"}, "sizes are numbers of elements"),
        ({"layer": "cross-entropy", "BLOCK": "7"}, "BLOCK must be one of 32, 128, 256"),
    ],
)
def test_bad_input_is_named_and_replaced(params, words):
    at = open_at(**params)
    html = texts(at)
    assert words in html and "kt-note" in html and len(stages(at)) == 1


# -- Run, home -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "params", [{"layer": "relu", "keep": "bits"}, {"layer": "max-pool", "pass": "backward"}], ids=str
)
def test_run_measures_the_rungs_that_a_processor_runs(params):
    at = open_at(**params, engine="cpu", view="run")
    finish(at, "run", "job")
    html = texts(at)
    assert "kt-badge-measured" in html and 'role="alert"' not in html
    layer, side, _ = address.read(params)
    rungs = address.of(layer, side)[1].ladder.rungs
    assert set(at.session_state["ran"].rows) == {rung.name for rung in rungs if "cpu" in rung.engines}


def test_the_card_of_the_home_page_is_a_moment_of_this_page():
    (teaser,) = [teaser for teaser in _teasers.TEASERS if teaser.page == "layers/page.py"]
    scene = teaser.build_scene()
    assert stages(open_at(**teaser.params)) == [scene.key] and "atomic" in scene.caption(teaser.step)
    assert heads(open_at(**teaser.params))[0]["meta"]["steps"] == scene.steps


def test_cross_entropy_has_the_same_numbers_in_all_its_passes():
    scenes = [
        address.scene("cross-entropy", side, start("cross-entropy", side))[0] for side in LAYERS["cross-entropy"].passes
    ]
    for name in ("x", "labels"):
        for scene in scenes[1:]:
            np.testing.assert_array_equal(scene.cells(name), scenes[0].cells(name))
    np.testing.assert_allclose(scenes[1].cells("dx"), scenes[2].cells("dx"), rtol=1e-4, atol=1e-6)


def chapter_of(title):
    """Returns the panel and the evidences of a chapter."""
    lesson = next(lesson for lesson in WITH_STORY if lesson.path == "layers")
    n = next(n for n, chapter in enumerate(story(lesson).chapters) if chapter.title == title)
    return open_chapter(lesson, n)[1:]


def test_the_chapter_on_windows_says_what_the_shape_on_the_stage_has():
    _, evidences = chapter_of("The largest of a window")
    s = evidences["stage"].shape
    assert (s.R, s.S, s.u, s.v, s.pad_h, s.pad_w) == (3, 3, 2, 2, 1, 1)
    pixel = s.W + 1  # row 1, column 1
    assert windows(s).reversed(s.pixels).counts[pixel] == 4
    again, _ = address.readings("max-pool", "backward", "max-pool-backward/scatter", s, {})
    assert again == s.outputs


def test_most_windows_that_a_thread_of_the_gather_checks_took_another_pixel():
    _, evidences = chapter_of("Gather: none collides")
    s = evidences["stage"].shape
    assert windows(s).counts.sum() > 2 * s.outputs  # each window took one of the pixels that check it
