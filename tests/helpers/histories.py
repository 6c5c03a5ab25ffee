"""Hypothesis strategy: writes to three small tensors, in any order, with any copies without a cycle."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from visuals.scene.parts import Captions, Group, Tensor, Write
from visuals.scene.scene import Scene

CELLS = 5


@st.composite
def histories(draw):
    """Draws steps, the initial values of tensors, and writes in the order of declaration.

    A write is (target, source, [(step, cell, value)]). With a source the value is (source, cell). Of the tensors a, b, c
    each can copy those before it.
    """
    steps = draw(st.integers(1, 6))
    numbers = st.integers(-9, 9).map(float)
    begin = {name: draw(st.none() | st.lists(numbers, min_size=CELLS, max_size=CELLS)) for name in ("a", "b", "c")}
    cell, writes = st.integers(0, CELLS - 1), []
    for name, sources in (("a", ()), ("b", ("a",)), ("c", ("a", "b"))):
        for source in draw(st.lists(st.sampled_from(("", *sources)), max_size=3)):
            positions = draw(st.lists(st.tuples(st.integers(0, steps - 1), cell), min_size=1, max_size=8))
            value_strategy = st.tuples(st.just(source), st.integers(-1, CELLS - 1)) if source else numbers
            writes.append((name, source, [(t, i, draw(value_strategy)) for t, i in positions]))
    return steps, begin, draw(st.permutations(writes))


def scene_of(steps, begin, history) -> Scene:
    writes = []
    for target, source, events in history:
        when, cells, values = zip(*events, strict=True)
        fields = {"index": np.array([i for _, i in values])} if source else {"values": np.array(values, "f4")}
        writes.append(Write(target, np.array(when), source=source, cells=np.array(cells), **fields))
    tensors = [
        Tensor(name, name, name, "input", 1, 1, CELLS, None if values is None else np.array(values, "f4"))
        for name, values in begin.items()
    ]
    captions = Captions(("Step {0}.",), np.zeros(steps, int), np.arange(steps)[:, None])
    groups = (Group((("a", "b", "c"),)),)
    return Scene("history", "history", tuple(tensors), groups, steps, "step", "", "", tuple(writes), captions)
