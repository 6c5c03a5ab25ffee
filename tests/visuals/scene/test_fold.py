"""Folding repeated steps of any scene."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from visuals.scene.fold import folded, repeats
from visuals.scene.parts import Captions, Group, Lanes, Read, Reading, Tensor, Write
from visuals.scene.scene import Scene


def test_the_first_two_and_the_last_of_a_repetition_stay():
    assert repeats([0, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 0], {1}) == [(3, 4)]
    assert repeats([1] * 9, {1}) == [(2, 7)]
    assert repeats([1] * 9, {0}) == [] == repeats([1, 1, 1, 1], {1})
    assert repeats([1, 1, 1, 1, 1, 2, 2, 2, 2, 2], {1, 2}) == [(2, 3), (7, 8)]


@st.composite
def scenes(draw):
    """Draws a scene whose steps are of two kinds: x is written now and then, y copies it or gets numbers at every step."""
    steps = draw(st.integers(1, 24))
    cell = st.lists(st.integers(0, 3), min_size=steps, max_size=steps)
    kinds = np.array(draw(st.lists(st.integers(0, 1), min_size=steps, max_size=steps)))
    x_cells, y_cells, values = (np.array(draw(cell)) for _ in range(3))
    t, other = np.arange(steps), np.flatnonzero(kinds == 0)
    return Scene(
        key="k",
        title="",
        steps=steps,
        step_name="step",
        order_name="",
        order_note="",
        tensors=(
            Tensor("x", "x", "x", "input", 1, 1, 4, np.zeros(4)),
            Tensor("y", "y", "y", "output", 1, 1, 4),
            Tensor("z", "z", "z", "output", 1, 1, 4),
        ),
        groups=(Group((("x", "y", "z"),)),),
        writes=tuple(
            w
            for w in (
                Write("x", other, values[other].astype("f4"), cells=x_cells[other]),
                Write("y", t, source="x", index=y_cells, cells=x_cells),
                Write("z", t[::2], values[::2].astype("f4"), cells=y_cells[::2]),
                Write("z", t[1::2], source="x", index=x_cells[1::2], cells=y_cells[1::2]),
            )
            if len(w.steps)
        ),
        reads=(Read("x", np.arange(steps + 1), y_cells),),
        captions=Captions(("{0}", "{0} again"), kinds, t[:, None]),
        readings=(Reading("n", np.cumsum(values)),),
        lanes=Lanes(t, np.uint32(1) << t.astype(np.uint32)),
    )


@settings(max_examples=25)
@given(scenes())
def test_after_a_folded_step_everything_is_as_after_its_last_step(scene):
    runs = repeats(scene.captions.kind, {1})
    small = folded(scene, runs, "{0} to {1}", lambda run: run)
    inside = {t for first, last in runs for t in range(first, last)}
    ends = [t for t in range(scene.steps) if t not in inside]
    assert small.steps == len(ends)
    first = {last: first for first, last in runs}
    assert small.folds == tuple((ends.index(last), start) for start, last in runs)
    for new, old in enumerate(ends):
        for name in "xyz":
            np.testing.assert_array_equal(small.cells(name, new), scene.cells(name, old))
        assert small.readings[0].values[new] == scene.readings[0].values[old]
        assert small.lanes.warp[new] == scene.lanes.warp[old]
        start = first.get(old, old)
        assert small.caption(new) == (f"{start} to {old}" if old in first else scene.caption(old))
        read, whole = small.reads[0], scene.reads[0].cells[start : old + 1]
        assert set(read.cells[read.start[new] : read.start[new + 1]]) == set(whole)
    written = [(int(s), int(c)) for w in small.writes if w.target == "z" for s, c in zip(w.steps, w.cells, strict=True)]
    assert len(written) == len(set(written))  # a cell is written once in a step
