"""Views of groups: threads that take their steps one after the other, and what is known of their accesses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernels.engines.emulator.watch.recording import Recorded, record
from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from kernels.model.program import INPUT
from kernels.runner import seeded_inputs
from kernels.softmax.shape import SoftmaxShape
from visuals.scene.compiler.compile import compile_scene, moments_of, watched_names
from visuals.scene.compiler.moment import Moment
from visuals.scene.compiler.program import every_block
from visuals.scene.compiler.view import BLOCK, Bytes, Number, PerThread, Shared, View, box, in_turn, step
from visuals.scene.parts import Group
from visuals.softmax import views as softmax

# Eight threads; each reads five numbers of x, then they wait at a barrier.
ROW = np.tile(np.float32([3, 1, 3, 3]), 10)[None]
ALONE = replace(softmax.ONLINE, group=1, alone=4, detailed=1)


def recorded(view: View, rung: str = "softmax/online", x: np.ndarray = ROW) -> Recorded:
    program, names = find(rung).build(SoftmaxShape(*x.shape), {"BLOCK": 8}), watched_names(view)
    return record(program, {"x": x}, every_block, lambda _: names)


def moments(view: View) -> list[Moment]:
    """Returns the steps before the first barrier."""
    (recording,), (steps,) = recorded(view).launches, view.launches
    return [m for m in moments_of(recording, view, steps) if m.visit.kind in ("gather", "store")]


def test_only_the_first_thread_is_shown_in_detail_and_the_last_ones_are_one_group():
    steps = [(m.visit.kind, m.visit.threads) for m in moments(ALONE)]
    assert steps[:6] == [("gather", range(1))] * 5 + [("store", range(1))]
    assert steps[6:] == [("gather", threads) for threads in (range(1, 2), range(2, 3), range(3, 4), range(4, 8))]


def test_one_step_has_all_accesses_of_its_thread():
    detailed, first = moments(ALONE)[0], moments(ALONE)[6]
    assert (detailed.value("x.times").at(0), first.value("x.times").at(1)) == (1, 5)
    assert list(first.accessed("x").cell) == [1, 9, 17, 25, 33]  # in the order of time
    assert first.value("partial_l").at(1) == first.value("l").at(1)  # what it stores, too
    assert first.value("x.ties").at(1) == 5  # all are 1
    assert not first.value("x.times").at(2)


def test_a_step_of_all_threads_is_one_step():
    (steps,) = ALONE.launches
    together = {**steps, "gather": replace(steps["gather"], together=True)}
    found = moments(replace(ALONE, launches=(together,)))
    assert [m.visit.threads for m in found if m.visit.kind == "gather"] == [None] * 5


def test_names_are_expressions():
    first = moments(replace(ALONE, names={"twice": "2 * x", "more": "twice + 1"}))[0]
    assert first.value("more").at(0) == 2 * first.value("x").at(0) + 1


def test_elements_that_were_read_before():
    again = Bytes("again", "x", "ld", per="4", again=True)
    view = replace(softmax.THREE_PASS, readings=(again,))
    of_passes = recorded(view, "softmax/three-pass")
    scene = compile_scene(of_passes, view, "key", "title")
    assert scene.readings[0].values[-1] == 2 * ROW.size  # passes 2 and 3
    (steps,) = view.launches
    first, second = (
        next(m for m in moments_of(of_passes.launches[0], view, steps) if m.visit.kind == kind)
        for kind in ("maximum", "sum")
    )
    assert (first.value("x.again").at(0), second.value("x.again").at(0)) == (0, 1)


def test_registers_of_the_thread_whose_step_it_is():
    m = PerThread("m", "filter", "m", of="running.m m", **in_turn(1))
    tensors = tuple(m if shown.name == "m" else shown for shown in ALONE.tensors)
    view = replace(ALONE, tensors=tensors)
    scene = compile_scene(recorded(view), view, "key", "title", tensors={"x": {"plane_name": "row"}})
    assert (scene.tensor("m").size, scene.tensor("l").cols, scene.tensor("x").plane_name) == (1, 8, "row")
    assert [scene.cells("m", t)[0] for t in range(10)] == [3, 3, 3, 3, 3, 3, 1, 3, 3, 3]


def test_a_step_for_each_value():
    (steps,) = softmax.ONLINE.launches
    by_parity = {**steps, "gather": replace(steps["gather"], apart="thread % 2")}
    first, second, *_ = moments(replace(softmax.ONLINE, launches=(by_parity,)))
    assert [np.flatnonzero(m.active).tolist() for m in (first, second)] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert set(first.accessed("x").thread) == {0, 2, 4, 6} and first.count("x") == 4
    assert first.visit.number == second.visit.number == 1


def test_a_counter_of_several_tensors():
    view = replace(softmax.ONLINE, readings=(Bytes("moved", "partial_m partial_l", "st"),))
    scene = compile_scene(recorded(view), view, "key", "title")
    assert scene.readings[0].values[-1] == 2 * 4 * (8 + 4 + 2 + 1)


def test_one_block_after_the_other_in_the_same_places():
    at = {"place": ("block", "thread"), "part": (range(2), range(1, 4))}
    variables = {name: PerThread(name, "filter", name, of=f"running.{name} {name}", **at) for name in "ml"}
    boxes = {name: Shared(name, "filter", name, **box(0, 2, 4, 4)) for name in ("partial_m", "partial_l")}
    tensors = tuple((variables | boxes).get(shown.name, shown) for shown in ALONE.tensors)
    view = replace(softmax.ONLINE, tensors=tensors, group=BLOCK)
    two = recorded(view, x=np.concatenate([ROW, ROW + 1]))
    threads = [m.visit.threads or range(0) for m in moments_of(two.launches[0], view, view.launches[0])]
    blocks = [of.start // 8 for of in threads]
    assert blocks == sorted(blocks) and blocks.count(0) == blocks.count(1) > 8
    scene = compile_scene(two, view, "key", "title")
    m = scene.tensor("m")
    assert (m.rows, m.cols, m.origin, scene.tensor("partial_m").size) == (2, 3, (0, 0, 1), 8)
    assert list(scene.cells("m")) == [3, 3, 3, 4, 4, 4]
    half = scene.steps // 2
    assert np.nanmax(scene.cells("partial_m", half - 1)) == 3 and np.nanmax(scene.cells("partial_m")) == 4


def test_numbers_in_one_place_add_up():
    at = {"place": ("0", "thread // 4"), "part": (range(1), range(2))}
    added = PerThread("l", "workspace", "l", of="running.l", adds=True, **at)
    tensors = tuple(added if shown.name == "l" else shown for shown in softmax.ONLINE.tensors)
    view = replace(softmax.ONLINE, tensors=tensors)
    scene, threads = (compile_scene(recorded(of), of, "key", "title") for of in (view, softmax.ONLINE))
    assert list(scene.cells("l", 4)) == [threads.cells("l", 4)[:4].sum(), threads.cells("l", 4)[4:8].sum()]


def test_a_hollow_tensor_shows_where_numbers_would_be():
    hollow = PerThread(
        "m", "filter", "m", of="running.m", place=("0", "thread"), part=(range(1), range(8)), hollow=True
    )
    tensors = tuple(hollow if shown.name == "m" else shown for shown in softmax.ONLINE.tensors)
    view = replace(softmax.ONLINE, tensors=tensors)
    scene = compile_scene(recorded(view), view, "key", "title")
    assert np.isnan(scene.cells("m")).all()
    (read,) = [read for read in scene.reads if read.source == "m"]
    assert list(read.cells[: read.start[1]]) == list(range(8))


def test_numbers_of_threads_are_in_an_order_of_their_own():
    shown = (
        PerThread(
            "owner",
            "workspace",
            "",
            value="thread",
            place=("0", "x.at"),
            part=(range(1), range(40)),
            during=("gather",),
        ),
        PerThread(
            "row",
            "input",
            "",
            value="x",
            place=("0", "where(thread < 4, thread, -1)"),
            part=(range(1), range(4)),
            during=("gather",),
            rows=("gather",),
        ),
    )
    groups = *ALONE.groups, Group((("owner", "row"),))
    view = replace(softmax.ONLINE, tensors=(*ALONE.tensors, *shown), groups=groups)
    scene = compile_scene(recorded(view), view, "", "")
    np.testing.assert_array_equal(scene.cells("owner"), np.arange(40) % 8)
    np.testing.assert_array_equal(scene.cells("row").reshape(5, 4), ROW.reshape(5, 8)[:, :4])
    assert [write.source for write in scene.writes if write.target == "row"] == ["x"]  # a copy


def test_a_line_is_a_step_for_each_value_of_an_expression():
    (steps,) = softmax.ONLINE.launches
    apart = {**steps, "gather": step(steps["gather"].at, "{part} of {parts}: {active} at {line}.", apart="thread % 3")}
    added = Number("read", "distinct(x.at)", "", ("gather",), adds=True)
    view = replace(softmax.ONLINE, launches=(apart,), readings=(added,))
    scene = compile_scene(recorded(view), view, "", "")
    line = scene.source_at(0)[1]
    assert [scene.caption(t) for t in range(3)] == [f"{n} of 3: {n_} at {line}." for n, n_ in ((1, 3), (2, 3), (3, 2))]
    assert scene.readings[0].values[:3].tolist() == [3, 6, 8] and scene.readings[0].values[-1] == 40


def test_a_line_is_a_step_of_its_loads_and_one_of_its_stores():
    (steps,) = softmax.ONLINE.launches
    both = {**steps, "y": step("y[col] =", "Loads.", op="ld"), "y.store": step("y[col] =", "Stores.", op="st")}
    both = {kind: both[kind] for kind in ("y", "y.store", *steps)}

    def arrange(recording, visits):
        return [part for v in visits for part in ((v, replace(v, kind="y.store")) if v.kind == "y" else (v,))]

    view = replace(softmax.ONLINE, launches=(both,), arrange=arrange)
    scene = compile_scene(recorded(view), view, "", "")
    last = scene.steps - 1
    assert [scene.caption(t) for t in (last - 1, last)] == ["Loads.", "Stores."]
    assert np.isfinite(scene.cells("y")).sum() - np.isfinite(scene.cells("y", last - 1)).sum() == 8
    (read,) = [read for read in scene.reads if read.source == "x"]
    assert np.diff(read.start)[-2:].tolist() == [8, 0]


def test_a_counter_of_first_reads_and_the_number_of_a_step():
    (steps,) = softmax.ONLINE.launches
    first = step(steps["gather"].at, "Level {level}.", level=3)
    counters = (Bytes("all", "x", "ld"), Bytes("first", "x", "ld", once=True), Bytes("again", "x", "ld", again=True))
    view = replace(softmax.ONLINE, launches=({**steps, "gather": first},), readings=counters)
    scene = compile_scene(recorded(view), view, "", "")
    assert scene.caption(0) == "Level 3."
    assert [reading.values[-1] for reading in scene.readings] == [2 * 4 * 40, 4 * 40, 4 * 40]


def test_planes_of_a_box_may_have_others_between_them():
    shown = Shared("part", "filter", "part", of="partial_m", **box(0, 1, 2, 2, 2, 4))
    store = next(
        m for m in moments(replace(softmax.ONLINE, tensors=(*softmax.ONLINE.tensors, shown))) if m.visit.kind == "store"
    )
    found = store.accessed("part")
    assert (found.cell.tolist(), found.thread.tolist()) == ([0, 1, 2, 3], [0, 1, 4, 5])


def test_bytes_are_of_the_steps_that_a_tensor_is_accessed_in():
    bytes_of = {}
    for during in ((), ("store",), ("root",)):
        shown = Shared("part", "filter", "part", of="partial_m", during=during)
        store = next(
            m
            for m in moments(replace(softmax.ONLINE, tensors=(*softmax.ONLINE.tensors, shown)))
            if m.visit.kind == "store"
        )
        bytes_of[during] = store.moved("st", "part", False)
    assert bytes_of == {(): 32, ("store",): 32, ("root",): 0}


def test_threads_that_come_back_to_a_line_wait():
    """Of a ring of two stages: its consumers come to the first tile before its copy, its producer to the third before the first is used."""
    program = find("gemm/wgmma-ring").build(GemmShape(64, 64, 192, dtype="fp16"), {"BM": 64, "BN": 64, "STAGES": 2})
    (recording,) = record(program, seeded_inputs(program.of_role(INPUT)), every_block, lambda _: frozenset()).launches
    steps = {
        "empty": step("wait(empty"),
        "copy": step("load_box(tile_a"),
        "full": step("wait(full"),
        "multiply": step("begin_"),
    }
    found = [
        (m.visit.kind, *(bool(m.value(name).of[int(m.active.argmax())]) for name in ("waits", "waited")))
        for m in moments_of(recording, View((), (), (steps,)), steps)
    ]
    waits = [(kind, n) for n, (kind, waits, _) in enumerate(found) if waits]
    assert [kind for kind, _ in waits[:2]] == ["full", "empty"]
    assert all(found[n + 1][0] != kind for kind, n in waits)  # others take steps
    assert [kind for kind, _, waited in found if waited] == [kind for kind, _ in waits]


def test_derived_numbers_of_one_name_are_one_tensor():
    found = [
        PerThread(
            "seen", "output", "seen", value=value, place=("0", "thread"), part=(range(1), range(8)), during=(kind,)
        )
        for kind, value in (("gather", "x"), ("store", "7"))
    ]
    groups = *ALONE.groups, Group((("seen",),), "registers")
    view = replace(ALONE, tensors=(*ALONE.tensors, *found), groups=groups)
    scene = compile_scene(recorded(view), view, "key", "title")
    assert [tensor.name for tensor in scene.tensors].count("seen") == 1
    assert scene.cells("seen")[0] == 7 and scene.cells("seen")[7] != 7  # one step of a later thread has both kinds
