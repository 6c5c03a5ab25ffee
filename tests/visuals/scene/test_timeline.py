"""A timeline's cells are its events, each written in the step of its column; long loops leave out whole rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visuals.scene.parts import Source
from visuals.scene.payload import payload
from visuals.scene.program_order import HEAD, tiles_to_run
from visuals.scene.timeline import Event, Row, Step, timeline_scene

SOURCE = Source("kernel.cu", "line\n" * 12, np.zeros(1, int), first=4)


def scene_of(rows, events, count, reads=()):
    steps = [Step(f"Step {n}.", n, tuple(r for t, r in reads if t == n)) for n in range(count)]
    return timeline_scene("key", "title", rows, events, steps, SOURCE, "order", "note", "one block")


@st.composite
def timelines(draw):
    """Draws (rows, events, steps): no two events in one cell."""
    count = draw(st.integers(1, 12))
    rows = [
        Row(f"row{n}", f"row {n}", "input", draw(st.integers(1, 3)), idle="idle")
        for n in range(draw(st.integers(1, 4)))
    ]
    events, taken = [], set()
    for _ in range(draw(st.integers(0, 12))):
        row = draw(st.sampled_from(rows))
        lane, start = draw(st.integers(0, row.lanes - 1)), draw(st.integers(0, count - 1))
        end = draw(st.integers(start, count - 1))
        cells = {(row.name, lane, step) for step in range(start, end + 1)}
        if not cells & taken:
            taken |= cells
            events.append(Event(row.name, lane, start, end, draw(st.integers(1, 300)), f"event {len(events)}"))
    return rows, events, count


@settings(max_examples=20)
@given(timelines())
def test_each_cell_has_the_number_of_its_event_from_its_column_on(case):
    rows, events, count = case
    scene = scene_of(rows, events, count)
    payload(scene)
    for row in rows:
        expected = np.full((row.lanes, count), np.nan)
        texts = np.full((row.lanes, count), "idle", object)
        for event in events:
            if event.row == row.name:
                expected[event.lane, event.start : event.end + 1] = event.number
                texts[event.lane, event.start : event.end + 1] = event.text
        for step in range(count):
            seen = np.where(np.arange(count) <= step, expected, np.nan)
            np.testing.assert_array_equal(scene.cells(row.name, step).reshape(row.lanes, count), seen)
        captions = next(a.captions for a in scene.annotations if a.tensor == row.name)
        assert [captions.templates[kind] for kind in captions.kind] == texts.ravel().tolist()
    assert [scene.caption(n) for n in range(count)] == [f"Step {n}." for n in range(count)]
    assert scene.source.lines.min() >= SOURCE.first


def test_two_events_in_one_cell_are_an_error():
    events = [Event("row", 0, 0, 1, 1, ""), Event("row", 0, 1, 1, 2, "")]
    with pytest.raises(ValueError, match="two events of row"):
        scene_of([Row("row", "row", "input")], events, 2)


def test_a_step_marks_the_cells_that_it_depends_on_and_rows_stay_in_one_piece():
    rows = [Row("copy", "copy", "input", 2), Row("use", "use", "output")]
    events = [Event("copy", 1, 0, 1, 1, ""), Event("use", 0, 2, 2, 1, "")]
    scene = scene_of(rows, events, 3, [(2, ("copy", 1, 1))])
    (read,) = scene.reads
    assert read.source == "copy" and read.cells.tolist() == [4] and read.start.tolist() == [0, 0, 0, 1]
    assert all(tensor["timed"] for tensor in payload(scene)[0]["tensors"])


@given(st.integers(1, 10_000), st.integers(1, 6))
def test_tiles_left_out_of_a_run_go_round_all_buffers(tiles, lanes):
    run = tiles_to_run(tiles, lanes)
    assert run <= tiles and (tiles - run) % lanes == 0
    assert run == tiles or HEAD + lanes <= run < 20
