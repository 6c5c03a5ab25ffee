"""The Scene contract: invalid scenes raise, the picture at a step is right, and so are the captions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from tests.helpers import scenes
from tests.helpers.histories import CELLS, histories, scene_of
from tests.helpers.offenders import every
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.part import part_of
from visuals.scene.parts import MAX_STEPS, Captions, Flow, Group, Lanes, Reading, SceneError, Tensor, Write
from visuals.scene.scene import Scene, number

GOOD, TINY = scenes.tiled(), scenes.softmax()


# -- what the contract refuses ----------------------------------------------------------------------
def tensor(name, /, **fields):
    return {"tensors": tuple(replace(t, **fields) if t.name == name else t for t in GOOD.tensors)}


def write(target, /, **fields):
    return {"writes": tuple(replace(w, **fields) if w.target == target else w for w in GOOD.writes)}


def read(**fields):
    return {"reads": (replace(GOOD.reads[0], **fields),)}


def matmul(**fields):
    return {"matmuls": (replace(GOOD.matmuls[0], **fields),)}


def reading(**fields):
    return {"readings": (replace(GOOD.readings[0], **fields),)}


def captions(**fields):
    return {"captions": replace(GOOD.captions, **fields)}


def template(text):
    return captions(templates=(text, *GOOD.captions.templates[1:]))


def next_file(**fields):
    return {"next_sources": (replace(GOOD.source, **{"lines": np.array([0])} | fields),)}


def flow(**fields):
    steps = np.zeros(GOOD.steps, int)
    return {"flows": (replace(Flow(0, 1, ("8 B",), steps, steps), **fields),)}


STEPS, NUMBERS = GOOD.steps, np.zeros((GOOD.steps, 7))
START = GOOD.reads[0].start
WITH_HOLE = np.r_[np.zeros(63, "f4"), np.nan]
BACK = Write("A", np.array([14]), source="As", index=np.array([0]), cells=np.array([0]))

FAULTS = {
    "no steps": ({"steps": 0}, "1 to 100,000 steps, not 0"),
    "too many steps": ({"steps": MAX_STEPS + 1}, "1 to 100,000 steps, not 100,001"),
    "a name twice": ({"tensors": (*GOOD.tensors, GOOD.tensors[0])}, "two tensors share a name"),
    "a name of two words": (tensor("A", name="A 1"), "'A 1' is no name of a tensor"),
    "no name": (tensor("A", name=""), "'' is no name of a tensor"),
    "an unknown role": (tensor("A", role="colour"), "A: role 'colour' is none of input, filter"),
    "no rows": (tensor("A", rows=0), "A is empty"),
    "padding below zero": (tensor("A", pad=(0, 0, -1, 0)), "A: padding below zero"),
    "too few column numbers": (tensor("A", col_index=np.arange(5)), "A: a column has no index"),
    "too few values": (tensor("A", values=np.zeros(3, "f4")), "A: 3 values for 48 cells"),
    "values not finite": (tensor("B", values=WITH_HOLE[-48:]), "B has values that are not finite"),
    "values beyond float32": (tensor("B", values=np.full(48, 1e39)), "B has values that are not finite"),
    "too many cells": (tensor("As", rows=1_000_000), "4,000,192 cells; at most 1,000,000"),
    "an unknown place": ({"groups": (Group((), "attic"), *GOOD.groups)}, "place 'attic' is none of"),
    "a tensor not shown": ({"groups": GOOD.groups[1:]}, "must name every tensor once"),
    "a tensor shown twice": ({"groups": (*GOOD.groups, GOOD.groups[0])}, "must name every tensor once"),
    "rows that cannot be aligned": (
        {"groups": (replace(GOOD.groups[0], aligned=True), *GOOD.groups[1:])},
        "A, B, C cannot be aligned: their rows differ",
    ),
    "a stranger shown": ({"groups": (*GOOD.groups, Group((("Z",),)))}, "must name every tensor once"),
    "a ragged table": ({"groups": (Group((("A",), ("B", "C")), table=True), *GOOD.groups[1:])}, "rows of one length"),
    "an empty place in no table": ({"groups": (*GOOD.groups, Group((("",),)))}, "must name every tensor once"),
    "a write into no tensor": (write("As", target="Z"), "a write names 'Z', which is no tensor"),
    "a write past the end": (write("As", cells=GOOD.write("As").cells + 1), "a write leaves As"),
    "a write before the start": (write("As", cells=GOOD.write("As").cells - 1), "a write leaves As"),
    "cells that are no integers": (write("As", cells=np.full(32, 0.5)), "a write leaves As"),
    "no steps of a write": (write("As", steps=np.zeros(0, int)), "steps of a write into As do not divide"),
    "steps that do not divide": (write("As", steps=np.zeros(5, int)), "steps of a write into As do not divide"),
    "a write after the end": (write("As", steps=np.array([STEPS])), "a write into As leaves the steps"),
    "a write before step 0": (write("As", steps=np.array([-1])), "a write into As leaves the steps"),
    "neither values nor a source": (write("As", source=""), "As needs values or a source, one of them"),
    "values and a source": (write("As", values=np.zeros(32)), "As needs values or a source, one of them"),
    "too few written": (write("acc", values=np.zeros(5, "f4")), "acc: 5 values for 144 writes"),
    "written not finite": (write("acc", values=np.full(144, np.inf)), "written into acc are not finite"),
    "a copy of no tensor": (write("As", source="Z"), "a write names 'Z', which is no tensor"),
    "a copy without index": (write("As", index=None), "the copy into As misses cells"),
    "a copy of too few": (write("As", index=np.zeros(3, int)), "the copy into As misses cells"),
    "a copy past the end": (write("As", index=GOOD.write("As").index + 30), "the copy into As leaves A"),
    "a copy before the padding": (write("As", index=GOOD.write("As").index - 2), "the copy into As leaves A"),
    "a copy of itself": (write("As", source="As", index=np.zeros(32, int)), "copies go round in a circle"),
    "a copy by way of others": ({"writes": (*GOOD.writes, BACK)}, "copies go round in a circle"),
    "a copy of air": ({"writes": (GOOD.writes[2],)}, "into C reads cells of acc that nothing has written"),
    "a read of no tensor": (read(source="Z"), "a read names 'Z', which is no tensor"),
    "reads of too few steps": (read(start=START[:-1]), "the reads of As do not divide into steps"),
    "reads that begin late": (read(start=START + 1), "the reads of As do not divide into steps"),
    "reads left over": (read(cells=np.zeros(99, int)), "the reads of As do not divide into steps"),
    "reads that go back": (read(start=np.r_[0, 9, START[2:]]), "the reads of As do not divide into steps"),
    "a read past the end": (read(cells=GOOD.reads[0].cells + 1), "the reads leave As"),
    "roles of too few": (tensor("A", roles=np.zeros(1, int)), "A: not every cell has a role"),
    "no such role": (tensor("A", roles=np.full(GOOD.tensor("A").size, 4)), "A: not every cell has a role"),
    "a matmul of no tensor": (matmul(left="Z"), "a matmul names no tensor"),
    "a matmul of other extents": (matmul(right="A"), "C = A x A: the extents do not agree"),
    "a matmul of other output": (matmul(out="acc"), "acc = A x B: the extents do not agree"),
    "a matmul of planes": (tensor("A", planes=2, rows=4) | matmul(out="C"), "the extents do not agree"),
    "a rest of too few": (matmul(rest=np.zeros(3)), "the rest of C misses cells"),
    "a rest not finite": (matmul(rest=WITH_HOLE), "the rest of C is not finite"),
    "terms of too few steps": (matmul(upto=np.zeros(3, int)), "C: the terms summed by each step"),
    "more terms than there are": (matmul(upto=np.full(STEPS, 7)), "C: the terms summed by each step"),
    "a reading of too few": (reading(values=np.zeros(3)), "reading 'global loads' has not one value a step"),
    "a reading not finite": (reading(values=np.full(STEPS, np.nan)), "'global loads' has values that are not"),
    "an unknown badge": (reading(kind="guessed"), "kind 'guessed' is no badge"),
    "a reading's role": (reading(role="sum"), "reading 'global loads': role 'sum' is none of"),
    "captions of too few": (captions(kind=np.zeros(2, int)), "captions and steps differ in number"),
    "numbers of too few": (captions(args=NUMBERS[1:]), "captions and steps differ in number"),
    "numbers without rows": (captions(args=np.zeros(STEPS)), "from one row of numbers a step"),
    "no such template": (captions(kind=np.full(STEPS, 6)), "a step has no caption"),
    "no template": (captions(kind=np.full(STEPS, -1)), "a step has no caption"),
    "more places than numbers": (template("sum {7}"), "the caption 'sum {7}' cannot be filled from 7 numbers"),
    "a place without number": (template("sum {}"), "the caption 'sum {}' cannot be filled"),
    "a place with a format": (template("sum {0:.2f}"), "cannot be filled"),
    "a place with a name": (template("sum {total}"), "cannot be filled"),
    "an open brace": (template("sum { 0"), "cannot be filled"),
    "a closing brace": (template("sum {0}}"), "cannot be filled"),
    "a mark of no role": (template("[sum](total)"), "role 'total' is none of"),
    "numbers not finite": (captions(args=NUMBERS + np.nan), "captions hold numbers that are not finite"),
    "a flow to itself": (flow(target=0), "a flow does not join two groups"),
    "a flow to no group": (flow(target=99), "a flow does not join two groups"),
    "labels of too few": (flow(text=np.zeros(2, int)), "a flow has not one label a step"),
    "no such label": (flow(text=np.ones(STEPS, int)), "a flow has a step without a label"),
    "a flow twice active": (flow(active=np.full(STEPS, 2)), "a flow is active (1) or not (0) at a step"),
    "lanes of too few": ({"lanes": Lanes(np.zeros(2, int), np.zeros(2, int))}, "lanes and steps differ"),
    "lines of too few": ({"source": replace(GOOD.source, lines=np.zeros(2, int))}, "source lines and steps"),
    "a line before the text": ({"source": replace(GOOD.source, lines=np.array([-1]))}, "has no such line"),
    "a line after the text": ({"source": replace(GOOD.source, lines=np.array([999]))}, "has no such line"),
    "a file that begins late": ({"source": replace(GOOD.source, since=1)}, "is shown from step 0 on"),
    "a next file alone": ({"source": None, "next_sources": (GOOD.source,)}, "the first source is missing"),
    "a next file at no step": (next_file(since=STEPS), "is shown at no step"),
    "a next file before the last": (next_file(since=0), "is shown at no step"),
    "a next file of too few lines": (next_file(since=2, lines=np.full(3, GOOD.source.first)), "source lines and steps"),
    "a reshape of numbers": (write("acc", reshapes=True), "a reshape into acc needs a source"),
}


@every("fault", FAULTS)
def test_a_scene_that_breaks_the_contract_raises(fault):
    fields, message = FAULTS[fault]
    with pytest.raises(SceneError) as caught:
        replace(GOOD, **fields)
    assert str(caught.value).startswith("scene 'tiled 8,8,6,1': ") and message in str(caught.value)


def test_a_copy_of_a_cell_that_is_written_later_raises():
    late = Write("y", np.array([0]), source="m", index=np.array([0]), cells=np.array([0]))
    first = replace(TINY.write("m"), steps=np.arange(8) + 1)
    with pytest.raises(SceneError, match="into y reads cells of m that nothing has written yet"):
        replace(TINY, writes=(first, late))
    replace(TINY, writes=(TINY.write("m"), late))  # at the same step it is written already


def test_escaped_braces_and_marks():
    scene = replace(TINY, captions=replace(TINY.captions, templates=("{{{0}}} [x](input)", "f(x)[0] (a) {{}}")))
    assert scene.caption(3) == "{3} x" and scene.marked_caption(3) == "{3} [x](input)"
    assert scene.caption(9) == "f(x)[0] (a) {}"


# -- the picture at a step --------------------------------------------------------------------------
def simulated(steps, start, writes):
    """Returns {name: cells} after every step, computed in plain loops (None: not written), and whether some copy read a
    cell that had not been written."""
    values = {name: list(cells or [None] * CELLS) for name, cells in start.items()}
    pictures, unwritten_read = [], False
    for t in range(steps):
        for name in values:  # in the order a, b, c: a copy sees its source after this step
            for target, source, events in writes:
                for step, i, value in events:
                    if (target, step) != (name, t):
                        continue
                    if source:
                        value = 0.0 if value[1] < 0 else values[source][value[1]]
                        unwritten_read |= value is None
                    values[target][i] = value
        pictures.append({name: list(cells) for name, cells in values.items()})
    return pictures, unwritten_read


@settings(max_examples=20)
@given(histories())
def test_cells_equal_step_by_step_simulation(history):
    pictures, unwritten_read = simulated(*history)
    if unwritten_read:
        with pytest.raises(SceneError, match="nothing has written yet"):
            scene_of(*history)
        return
    scene = scene_of(*history)
    for t, picture in enumerate(pictures):
        for name, cells in picture.items():
            expected = np.array([np.nan if v is None else v for v in cells], "f4")
            np.testing.assert_array_equal(scene.cells(name, t), expected)
    assert all(np.array_equal(scene.cells(n), scene.cells(n, scene.steps - 1), equal_nan=True) for n in "abc")


def test_write_without_cells_writes_all_and_short_steps_repeat():
    start = {"a": None, "b": [0.0] * CELLS, "c": None}
    scene = scene_of(3, start, [])
    scene = replace(scene, writes=(Write("a", np.array([2]), np.arange(5)),))
    assert np.isnan(scene.cells("a", 1)).all() and scene.cells("a").tolist() == [0, 1, 2, 3, 4]
    four = Write("b", np.array([0, 2]), np.arange(1, 5), cells=np.array([0, 1, 2, 3]))
    scene = replace(scene, writes=(four,))
    assert scene.cells("b", 1).tolist() == [1, 0, 3, 0, 0] and scene.cells("b").tolist() == [1, 2, 3, 4, 0]


def test_the_tiled_product_equals_numpy():
    A, B = GOOD.cells("A").reshape(8, 6), GOOD.cells("B").reshape(6, 8)
    np.testing.assert_allclose(GOOD.cells("C").reshape(8, 8), A @ B, rtol=1e-5, atol=1e-6)
    stored = GOOD.cells("C", STEPS - 2).reshape(8, 8)
    np.testing.assert_array_equal(stored[:4, :4].ravel(), GOOD.cells("acc"))
    assert np.isnan(stored[4:]).all() and np.isnan(stored[:, 4:]).all()
    assert GOOD.cells("As", 7).reshape(4, 4)[:, 2:].tolist() == [[0, 0]] * 4  # beyond K: zeros
    assert np.isnan(TINY.cells("e")).all()  # never stored
    np.testing.assert_allclose(TINY.cells("y").sum(), 1, rtol=1e-6)


# -- the text form ----------------------------------------------------------------------------------
def im2col(s: ConvShape) -> Scene:
    part = part_of(s)
    x, w = np.ones((1, part.C, s.H, s.W), "f4"), np.ones((part.K, part.C, s.R, s.S), "f4")
    return im2col_scene(s, part, x, w)


def warps(s: ConvShape) -> Scene:
    rng = np.random.default_rng(0)
    x, w = rng.random(s.x_shape).astype("f4"), rng.random(s.w_shape).astype("f4")
    return im2col_scene(s, part_of(s), x, w, "warps")


SCENES = {f"im2col {key}": (im2col, preset.shape) for key, preset in CONV_PRESETS.items()} | {
    "warps toy": (warps, CONV_PRESETS["toy"].shape),
    "warps padded": (warps, ConvShape(1, 3, 10, 10, 2, 3, 3, stride=2, pad=1)),
    "warps 32x32": (warps, ConvShape(1, 1, 32, 32, 2, 3, 3)),
    "tiled": (scenes.tiled,),
    "tiled in turn": (scenes.tiled, 8, 12, 6, 6),
    "softmax": (scenes.softmax,),
    "big": (scenes.big,),
    "long": (scenes.long,),
}


@pytest.mark.parametrize("key", SCENES)
def test_every_step_has_its_own_caption(key):
    make, *args = SCENES[key]
    scene = make(*args)
    captions = [scene.caption(t) for t in range(scene.steps)]
    for t, text in enumerate(captions):
        assert text.strip(), f"step {t} has no words"
        assert not set("[]") & set(text), f"step {t}: {text}"
        assert not set("{}") & set(text.replace("{e}", "")), f"step {t}: {text}"  # softmax names a set
    same = [t for t in range(1, scene.steps) if captions[t] == captions[t - 1]]
    assert scenes.counted_otherwise(scene) == []
    assert not same, f"steps {same[:5]} repeat the caption of the step before: {captions[same[0]]}"


def test_numbers_are_printed_plainly():
    expected = {
        3.0: "3",
        -0.0: "0",
        2.0**49: "562949953421312",
        2.0**80: "1.209·10^24",
        1 / 3: "0.3333",
        2 / 3: "0.6667",
        1.5: "1.5",
        1.0625: "1.062",
        1.1875: "1.188",
        1e-7: "0.0000001",
        -0.00012345678: "−0.0001235",
        0.9999999: "1",
        12345.678: "12346",
        -8174.6: "−8175",
        99999.5: "100000",
        -3e38: "−3.000·10^38",
        np.inf: "∞",
        -np.inf: "−∞",
        np.nan: "NaN",
    }
    assert {v: number(v) for v in expected} == expected


def test_captions_print_numbers_as_float32():
    """Numbers with a fraction are sent as float32, so server and browser print the same."""
    args = np.zeros((16, 5))
    args[0, :2] = 16_777_217.0, 1.06249999999  # float32: 16777216, 1.0625
    scene = replace(TINY, captions=Captions(("{0}, {1}", ""), np.zeros(16, int), args))
    assert scene.caption(0) == "16777216, 1.062"


def test_infinities_and_nan_need_finite_false():
    """Cells, readings and captions may hold them; operands of products stay finite."""
    wild = np.array([np.inf, -np.inf, np.nan, 1.0])
    captions = Captions(("{0}",), np.zeros(4, int), wild[:, None])
    odd = replace(
        TINY,
        steps=4,
        tensors=(Tensor("w", "w", "w", "input", 1, 1, 4, wild),),
        groups=(Group((("w",),)),),
        writes=(Write("w", np.arange(4), wild[::-1]),),
        reads=(),
        matmuls=(),
        annotations=(),
        sums=(),
        views=(),
        source=None,
        lanes=None,
        readings=(Reading("r", wild),),
        captions=captions,
        finite=False,
    )
    assert [odd.caption(t) for t in range(4)] == ["∞", "−∞", "NaN", "1"]
    np.testing.assert_array_equal(odd.cells("w"), wild[::-1].astype("f4"))
    with pytest.raises(SceneError, match="not finite"):
        replace(odd, finite=True)
