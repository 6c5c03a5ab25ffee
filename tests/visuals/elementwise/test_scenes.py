"""Scenes of the elementwise layers: they end with what the kernels stored, their bytes are those that are counted, and a backward scene
has the links of its forward scene."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.elementwise import ladder as elementwise
from kernels.elementwise.shape import (
    FORMS,
    KEPT,
    LAYOUTS,
    BiasBackwardShape,
    BiasShape,
    GeluShape,
    ReluBackwardShape,
    ReluShape,
    ResidualShape,
)
from kernels.model.program import RuleError
from tests.helpers.program_traces import traced
from visuals.elementwise.scene import MAX_ELEMENTS, channels, elementwise_scene
from visuals.scene.compiler import compile
from visuals.scene.compiler.moment import parted
from visuals.scene.payload import payload

RUNGS = {rung.name: (ladder, rung) for ladder in elementwise.LADDERS for rung in ladder.rungs if not rung.library}
GRADIENTS = {"dx": "x", "dy": "y", "db": "b", "da": "a"}  # a gradient has the place of its tensor
FORWARD = {"relu-backward": "relu", "gelu-backward": "gelu", "bias-backward": "bias", "residual-backward": "residual"}
extents = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 7))


def options(ladder) -> list[dict[str, str]]:
    """Returns the other fields of a ladder's shapes."""
    if issubclass(ladder.shape, ReluShape):
        return [{"keep": keep} for keep in KEPT]
    if issubclass(ladder.shape, GeluShape):
        return [{"form": form} for form in FORMS]
    return [{"layout": layout} for layout in LAYOUTS] if issubclass(ladder.shape, BiasShape) else [{}]


def small(rung) -> dict[str, int]:
    return dict(rung.sets[0])


def check(name: str, shape) -> None:
    """Asserts that a scene ends with what the kernels stored, and has read and written as many bytes."""
    _, rung = RUNGS[name]
    scene = elementwise_scene(name, shape, small(rung))
    t = traced(name, shape, tuple(sorted(small(rung).items())))
    for b in t.program.buffers:
        stored = t.arrays[b.name]
        expected = parted(stored, "bit" if stored.dtype == np.uint32 else "")
        np.testing.assert_array_equal(scene.cells(b.name), expected, err_msg=b.name)
    total = t.counters.total
    readings = {r.label: r.values[-1] for r in scene.readings}
    assert readings["bytes read from global memory"] == total["bytes_ld"]
    assert readings["bytes written to global memory"] == total["bytes_st"]
    for step in range(scene.steps):
        assert "{" not in scene.caption(step)
        source, line = scene.source_at(step)
        assert line >= source.first


@pytest.mark.parametrize("name", RUNGS)
def test_a_scene_ends_with_what_the_kernels_stored(name):
    ladder, _ = RUNGS[name]
    for fields in options(ladder):
        check(name, ladder.shape(2, 3, 4, 6, **fields))


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=2)
@given(data=st.data(), extents=extents)
def test_it_does_at_any_shape(name, data, extents):
    ladder, _ = RUNGS[name]
    check(name, ladder.shape(*extents, **data.draw(st.sampled_from(options(ladder)))))


def test_a_scene_that_leaves_out_a_write_is_detected(monkeypatch):
    """A deliberate fault: the last warp is not recorded."""
    original = compile.moments_of
    monkeypatch.setattr(compile, "moments_of", lambda *args: list(original(*args))[:-1])
    with pytest.raises(AssertionError):
        check("relu/scalar", ReluShape(2, 3, 4, 6))


# -- forward and backward --------------------------------------------------------------------------------
@pytest.mark.parametrize(("backward", "layout"), [*((name, "nchw") for name in FORWARD), ("bias-backward", "nhwc")])
def test_backward_runs_along_the_links_of_forward(backward, layout):
    """Read and write change places: what a warp read of x or b forward, its gradient gets from the same elements of dy."""
    forward = RUNGS[f"{FORWARD[backward]}/scalar"]
    name = "atomics" if backward == "bias-backward" else "scalar"
    ladder, rung = RUNGS[f"{backward}/{name}"]
    fields = {"layout": layout} if issubclass(ladder.shape, BiasShape) else {}
    shape = ladder.shape(1, 3, 4, 6, **fields)
    ahead = elementwise_scene(forward[1].name, forward[0].shape(1, 3, 4, 6, **fields), small(forward[1]))
    back = elementwise_scene(rung.name, shape, small(rung))
    first = back.steps - ahead.steps  # the launch that sets db to 0
    for gradient, of in GRADIENTS.items():
        if write := next((w for w in back.writes if w.target == gradient), None):
            for step in range(ahead.steps):
                read = next(r for r in ahead.reads if r.source == of)
                seen = set(np.asarray(read.cells)[read.start[step] : read.start[step + 1]].tolist())
                assert seen == set(np.asarray(write.cells)[np.asarray(write.steps) == step + first].tolist())
    places = [[GRADIENTS.get(n, n) for row in scene.groups[0].rows for n in row] for scene in (ahead, back)]
    assert {"x", "y"} & set(places[0]) <= set(places[1]) | {"x"}
    assert places[1][-1] == "y"


def test_channels_are_those_of_the_layouts():
    shape = BiasShape(2, 3, 2, 2)
    assert channels(shape).tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [0] * 4 + [1] * 4 + [2] * 4
    assert channels(shape.with_(layout="nhwc")).tolist() == [0, 1, 2] * 8


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_note_on_a_bias_gradient_lists_the_elements_of_its_channel(layout):
    shape = BiasBackwardShape(2, 3, 2, 4, layout)
    scene = elementwise_scene("bias-backward/two-launches", shape, {"BLOCK": 32, "PER": 2})
    (note,) = scene.annotations
    dy = scene.cells("dy")
    np.testing.assert_array_equal(dy[note.links["dy"]].sum(axis=1), scene.cells("db"))  # whole numbers: exact


# -- steps -------------------------------------------------------------------------------------------
def test_float4_of_a_warp_are_loaded_before_the_first_is_stored():
    scene = elementwise_scene("relu/float4", ReluShape(1, 1, 25, 40), {"BLOCK": 32, "PER": 4})
    captions = [scene.caption(t) for t in range(8)]
    assert all("None is used yet" in text for text in captions[:4])
    assert all("stores it" in text for text in captions[4:])
    assert "float4 number 4 of 4" in captions[3] and "elements 384 to 511" in captions[3]


def test_a_ballot_is_a_step_of_its_own():
    shape = ReluShape(1, 1, 5, 9, "bits")
    scene = elementwise_scene("relu/scalar", shape, {"BLOCK": 32})
    x = scene.cells("x")
    assert scene.steps == 4
    assert f"Positive elements: {int((x[:32] > 0).sum())}" in scene.caption(1)
    assert np.isnan(scene.cells("mask", 0)).all() and (scene.cells("mask", 1)[:32] == (x[:32] > 0)).all()


def test_lanes_beyond_the_end_are_idle():
    scene = elementwise_scene("residual/scalar", ResidualShape(1, 1, 1, 40), {"BLOCK": 64})
    assert int(scene.lanes.mask[1]) == 0xFF
    scene = elementwise_scene("residual/scalar", ResidualShape(1, 1, 1, 30), {"BLOCK": 64})
    assert int(scene.lanes.mask[1]) == 0xFFFFFFFF and "beyond the end" in scene.caption(1)  # all lanes return


@pytest.mark.parametrize("name", ["bias-backward/block", "bias-backward/two-launches"])
def test_the_tree_is_the_traced_one_and_every_barrier_is_a_step(name):
    shape = BiasBackwardShape(3, 2, 5, 5)
    scene = elementwise_scene(name, shape, {"BLOCK": 32, "PER": 2})
    t = traced(name, shape, (("BLOCK", 32), ("PER", 2)))
    n = 1 if name.endswith("block") else 0
    levels = 5  # 32 threads
    barriers = [step for step in range(scene.steps) if "wait at a barrier" in scene.caption(step)]
    launches = 1 if n else 2
    second = 0 if n else int(np.ceil(np.log2(32 // 2))) + 1  # the second launch has two columns
    assert len(barriers) == levels + 1 + second and launches * 1 <= len(barriers)
    trace = t.traces[n]
    shared = trace.write & (trace.buffer == trace.buffers.index("partial"))
    cells = scene.cells(f"partial{n}")
    np.testing.assert_array_equal(cells[:32], trace.value[shared][:32])
    np.testing.assert_array_equal(scene.cells(f"acc{n}"), trace.value[shared][:32])


def test_neighbours_with_other_channels_are_in_different_lines():
    """Thread t is in line t % columns. The threads that are left over are not shown."""
    shape, tiles = BiasBackwardShape(2, 5, 3, 4, "nhwc"), {"BLOCK": 32, "PER": 2}
    scene = elementwise_scene("bias-backward/block", shape, tiles)
    trace = traced("bias-backward/block", shape, tuple(tiles.items())).traces[1]
    stored = trace.value[trace.write & (trace.buffer == trace.buffers.index("partial"))][:32]
    partial = scene.tensor("partial1")
    assert (partial.planes, partial.rows, partial.cols, partial.plane_name) == (4, 5, 6, "level")
    for tensor in ("partial1", "acc1"):
        np.testing.assert_array_equal(scene.cells(tensor)[:30].reshape(5, 6).T.ravel(), stored[:30])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_note_has_the_numbers_of_its_own_cell_and_links_them(layout):
    shape = BiasShape(2, 3, 3, 5, layout)
    scene = elementwise_scene("bias/float4", shape, {"BLOCK": 32, "PER": 1})
    (note,) = scene.annotations
    x, b = (scene.cells(name)[note.links[name][:, 0]] for name in "xb")
    np.testing.assert_array_equal(note.captions.args, np.stack([x, b], axis=1))
    np.testing.assert_array_equal(x + b, scene.cells("y"))
    np.testing.assert_array_equal(note.links["b"][:, 0], channels(shape))


def test_atomic_additions_show_the_sum_so_far():
    shape = BiasBackwardShape(1, 2, 4, 10)
    scene = elementwise_scene("bias-backward/atomics", shape, {"BLOCK": 32})
    dy = scene.cells("dy")
    np.testing.assert_array_equal(scene.cells("db", 0), [0, 0])
    np.testing.assert_array_equal(scene.cells("db", 1), [dy[:32].sum(), 0])
    np.testing.assert_array_equal(scene.cells("db", 2), [dy[:40].sum(), dy[40:64].sum()])


# -- limits -------------------------------------------------------------------------------------------
def test_too_large_shapes_are_refused():
    with pytest.raises(RuleError, match=f"at most {MAX_ELEMENTS:,} elements are shown"):
        elementwise_scene("relu/scalar", ReluShape(1, 3, 64, 64), {"BLOCK": 32})


def test_a_scene_is_small_enough_to_send():
    scene = elementwise_scene("relu-backward/scalar", ReluBackwardShape(2, 4, 16, 16, "bits"), {"BLOCK": 64})
    assert sum(len(part) if isinstance(part, bytes) else len(str(part)) for part in payload(scene)) < 200_000
