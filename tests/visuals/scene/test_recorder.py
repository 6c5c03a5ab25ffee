"""The recorder of a scene's steps: what it records of a step is in the writes, reads, counts and lanes of that step."""

from __future__ import annotations

import numpy as np
import pytest

from visuals.scene.recorder import Recorder, part_note


def recorded() -> Recorder:
    r = Recorder({"load": (3, "Loads {0}."), "add": (5, "Adds {0} and {1}.")})
    first = r.step("load", 7, warp=2, mask=0b11, read=4)
    r.put("sum", np.zeros(2))
    r.look("x", np.array([3, 1, 3]))
    r.count(read=8, written=1)
    r.step("add", 1, 2)
    r.put("sum", np.array([5.0]), np.array([1]))
    r.put("sum", np.zeros(0), np.zeros(0, int))
    r.copy("tile", "x", np.array([-1, 2]), at=first)
    return r


def test_writes_are_joined_by_tensor_and_source_with_the_step_of_each():
    values, copies = recorded().writes()
    assert (values.target, copies.target, copies.source) == ("sum", "tile", "x")
    assert [values.steps.tolist(), values.cells.tolist(), values.values.tolist()] == [[0, 0, 1], [0, 1, 1], [0, 0, 5]]
    assert [copies.steps.tolist(), copies.cells.tolist(), copies.index.tolist()] == [[0, 0], [0, 1], [-1, 2]]


def test_a_step_that_writes_all_cells_of_a_large_tensor_is_a_write_without_a_list_of_them():
    r = Recorder()
    for half in (np.arange(0, 256, 2), np.arange(255, 0, -2)), (np.arange(128),):
        r.step(0)
        for cells in half:
            r.put("tile", cells, cells)
    whole, rest = r.writes({"tile": 256})
    assert whole.cells is None and whole.steps.tolist() == [0]
    np.testing.assert_array_equal(whole.values, np.arange(256))
    assert set(rest.steps.tolist()) == {1} and rest.cells.tolist() == list(range(128))
    assert len(r.writes()) == len(r.writes({"tile": 512})) == 1


def test_reads_captions_marks_and_lanes_are_those_of_each_step():
    r = recorded()
    (read,) = r.reads()
    assert (read.source, read.start.tolist(), read.cells.tolist()) == ("x", [0, 2, 2], [1, 3])
    captions, lanes = r.captions(), r.lanes()
    assert captions.kind.tolist() == [0, 1] and captions.args.tolist() == [[7, 0], [1, 2]]
    assert captions.templates == ("Loads {0}.", "Adds {0} and {1}.") and r.marks().tolist() == [3, 5]
    assert lanes.warp.tolist() == [2, -1] and lanes.mask.tolist() == [3, 0]


def test_counts_add_up():
    r = recorded()
    assert r.so_far("read").tolist() == [12, 12] and r.so_far("shared").tolist() == [0, 0]
    assert (r.total("written"), r.total("read", first_step=1)) == (1, 0)
    r.count(read=2**31)
    assert r.so_far("read").dtype == np.float32  # a payload has no larger integers


def test_kinds_may_be_the_numbers_of_their_templates():
    r = Recorder()
    assert [r.step(1, 2), r.step(0, 3)] == [0, 1]
    captions = r.captions(("a {0}", "b {0}"), int)
    assert captions.kind.tolist() == [1, 0] and captions.args.dtype.kind == "i"


@pytest.mark.parametrize(
    ("axes", "plane", "note"),
    [
        (((0, 4, 4), (0, 1024, 1024)), "", "4 × 1,024"),
        (((2, 4, 9), (1024, 64, 2048)), "", "part 2–5, 1,024–1,087 of 9 × 2,048"),
        (((0, 3, 3), (0, 4, 4), (0, 5, 5)), "channel", "3 channels of 4 × 5"),
        (((0, 1, 1), (0, 4, 8), (0, 5, 5)), "channel", "part 0–3, 0–4 of 8 × 5"),
        (((0, 2, 3), (0, 4, 4), (0, 5, 5)), "channel", "part 0–1, 0–3, 0–4 of 3 × 4 × 5"),
    ],
)
def test_note_on_the_visible_part(axes, plane, note):
    assert part_note(*axes, plane=plane) == note
