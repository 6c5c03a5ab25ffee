"""What the steps of a view write: copies are those of every visit of a line, not of numbers that are equal by chance."""

from __future__ import annotations

import numpy as np

from visuals.scene.compiler.cells import Cells, Written
from visuals.scene.compiler.view import View, step
from visuals.scene.recorder import Recorder

LINE = step("a", "A sentence.")


def writes(*sources: str):
    """Returns the writes of a line whose visits seem to copy these tensors."""
    recorder = Recorder()
    cells = Cells(View((), (), ()), recorder, 1, 1)
    for n, source in enumerate(sources):
        recorder.step(0)
        cell = np.array([n])
        cells._written.append(Written(n, LINE, "y", cell, np.array([5.0]), source, cell))
    cells.finish()
    return recorder.writes()


def test_a_line_that_always_copies_is_a_copy():
    (write,) = writes("x", "x", "x")
    assert write.source == "x" and write.cells.tolist() == [0, 1, 2]


def test_a_line_that_copies_only_sometimes_writes_numbers():
    (write,) = writes("x", "", "z")
    assert not write.source and write.values.tolist() == [5, 5, 5] and write.steps.tolist() == [0, 1, 2]
