"""Some blocks of a launch are watched; the others follow in one step, with the bytes that all of them have moved."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.conv.shape import ConvShape
from kernels.softmax.shape import SoftmaxShape
from visuals.scene.compiler.program import every_block, first_blocks, scene_of_rung
from visuals.scene.compiler.steps import Visit, complete, joined, merged
from visuals.scene.compiler.view import Buffer, Bytes, Say, View, Writers, step
from visuals.scene.parts import Group
from visuals.softmax.views import ONLINE

READ, WRITTEN = Bytes("read", "", "ld"), Bytes("written", "", "st")
VIEW = replace(ONLINE, others=("The other blocks ({others}) do the same.",), readings=(READ, WRITTEN))


def made(rows: int, blocks=every_block, view=VIEW):
    x = np.linspace(-3, 3, rows * 40).astype(np.float32).reshape(rows, 40)
    return scene_of_rung("softmax/online", SoftmaxShape(rows, 40), {"BLOCK": 8}, {"x": x}, view, "", blocks=blocks)


def test_the_other_blocks_follow_in_one_step():
    scene = made(3, first_blocks(1))
    assert scene.caption(scene.steps - 1) == "The other blocks (2) do the same."
    np.testing.assert_allclose(scene.cells("y").reshape(3, 40).sum(axis=1), 1, rtol=1e-6)


def test_bytes_of_the_other_blocks_are_added_in_their_step():
    read, written = made(3, first_blocks(1)).readings
    row = 4 * 40
    assert (read.values[-2], read.values[-1]) == (2 * row, 3 * 2 * row)
    assert (written.values[-2], written.values[-1]) == (row, 3 * row)


@pytest.mark.parametrize("blocks", [every_block, first_blocks(2)])
def test_a_launch_without_other_blocks_has_no_step_for_them(blocks):
    scene = made(1, blocks)
    assert not any("other blocks" in scene.caption(t) for t in range(scene.steps))


def test_repetitions_of_all_steps_with_the_same_sentence_are_folded():
    (steps,) = ONLINE.launches
    fold = "{last - first + 1} times."
    folded = {kind: replace(step, fold=fold if kind in ("gather", "result") else "") for kind, step in steps.items()}
    scene = made(3, first_blocks(1), replace(VIEW, launches=(folded,)))
    captions = [scene.caption(t) for t in range(scene.steps)]
    assert captions.count("2 times.") == 2
    assert captions[-1].startswith("The other blocks") and "Pass 2, loop iteration 5 of 5" in captions[-2]
    np.testing.assert_array_equal(scene.cells("y"), made(3, first_blocks(1)).cells("y"))


def test_a_repetition_is_of_one_group_of_threads():
    (steps,) = ONLINE.launches
    folded = {kind: replace(step, fold="Again." if kind == "gather" else "") for kind, step in steps.items()}
    scene = made(1, view=replace(VIEW, launches=(folded,), group=1, alone=1, detailed=1))
    captions = [scene.caption(t) for t in range(scene.steps)]
    assert captions.index("Again.") == 2 and "Again." not in captions[3:]
    assert set(scene.lanes.mask[:5].tolist()) == {1}  # the last iteration of the first thread is not folded


def test_a_tensor_has_the_threads_that_write_a_buffer():
    who = Writers("who", "workspace", "threads", of="y")
    view = replace(VIEW, tensors=(*VIEW.tensors, who, replace(who, name="fours", per=4)))
    scene = made(2, first_blocks(1), replace(view, groups=(*view.groups, Group((("who",), ("fours",))))))
    np.testing.assert_array_equal(scene.cells("who", 0), np.arange(40) % 8)
    np.testing.assert_array_equal(scene.cells("fours"), np.arange(10) % 2)  # a column for each four


def test_numbers_of_a_view_are_names():
    scene = made(2, first_blocks(1), replace(VIEW, others=("{others + own} rows.",), names={"own": "4"}))
    assert scene.caption(scene.steps - 1) == "5 rows."


def test_an_element_is_that_of_a_tensor_before_that_of_a_pointer_with_its_name():
    (steps,) = ONLINE.launches
    root = replace(steps["root"], cases=(Say("x[39] is {x[39 + 0 * thread]}."),))
    scene = made(1, view=replace(VIEW, launches=({**steps, "root": root},)))
    assert any(scene.caption(t) == "x[39] is 3." for t in range(scene.steps))


def test_joined_steps_go_on_to_the_next_step():
    visits = [Visit("a", 0, 1, 2), Visit("a", 2, 3, 4), Visit("b", 4, 5, 6), Visit("a", 6, 7, 8), Visit("a", 8, 9, 20)]
    assert [(v.first, v.stop) for v in joined(visits, lambda visit: visit.kind)] == [(0, 4), (4, 6), (6, 20)]


def test_a_barrier_is_complete_when_the_last_warp_comes():
    masks = np.zeros((9, 2), np.uint32)
    masks[2, 0] = masks[5, 1] = masks[7] = 1
    watched: Any = SimpleNamespace(barriers=np.array([2, 5, 7]), masks=masks)
    assert list(complete(watched)) == [5, 7]


def test_steps_of_a_group_that_follow_each_other_are_merged():
    first, other = range(2), range(2, 4)
    found = [Visit("a", 0, 1, 2, threads=first), Visit("a", 5, 6, 7, threads=first), Visit("a", 3, 4, 5, threads=other)]
    steps = {"a": step("", merge=True)}
    assert [(v.first, v.stop) for v in merged(iter(found), steps)] == [(0, 7), (3, 5)]
    assert len(list(merged(iter(found), {"a": step("")}))) == 3


def test_a_call_of_a_library_is_a_step_that_reads_and_writes_whole_buffers():
    col, out = Buffer("col", "workspace", "col"), Buffer("y", "output", "y", shape=(2, 4), part=(range(1, 2), range(4)))
    copy = {"copy": step("column[(r * shape.S + s)", "Each thread copies its window.", merge=True)}
    groups = (Group((("col", "w", "y"),)),)
    tensors = (col, Buffer("w", "filter", "w", shape=(2, 4)), out)
    view = View(tensors, groups, (copy,), (READ,), calls={"cublas_sgemm": "The library multiplies."})
    x, w = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3), np.arange(8, dtype=np.float32).reshape(2, 1, 2, 2)
    shape = ConvShape(1, 1, 3, 3, 2, 2, 2)
    scene = scene_of_rung("conv/im2col-cublas", shape, {"BLOCK": 64}, {"x": x, "w": w}, view, "")
    assert [scene.caption(t) for t in range(scene.steps)] == [
        "Each thread copies its window.",
        "The library multiplies.",
    ]
    assert scene.tensor("y").note == "part 1–1, 0–3 of 2 × 4" and scene.tensor("y").partial
    assert np.isnan(scene.cells("y", 0)).all()
    np.testing.assert_array_equal(scene.cells("y"), w.reshape(2, 4)[1] @ scene.cells("col").reshape(4, 4))
    assert {read.source: len(read.cells[read.start[1] :]) for read in scene.reads} == {"col": 16, "w": 8}
    source, line = scene.source_at(1)
    assert (source.file, line) == ("cublas_sgemm", 1) and source.text.startswith("cublas_sgemm(w, col, y);")
