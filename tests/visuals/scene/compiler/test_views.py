"""Every view fits its kernel: each step is executed, each case is said or can be said, each name is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from kernels.engines.emulator.watch.recording import record
from kernels.ladders import find
from tests.helpers.view_runs import ViewRun
from visuals.scene.compiler.cells import OfCells
from visuals.scene.compiler.compile import expressions_of, moments_of, watched_names
from visuals.scene.compiler.expressions import template
from visuals.scene.compiler.steps import MarkError, lit_line, place_of
from visuals.scene.compiler.view import Say
from visuals.softmax import views as softmax
from visuals.softmax.scene import softmax_scene

FIRST = np.zeros(1, int)
VISUALS = Path(__file__).parents[2]
TOPICS = sorted(".".join(path.parent.relative_to(VISUALS).parts) for path in VISUALS.rglob("view_runs.py"))


def runs_of(topic: str) -> dict[str, list[ViewRun]]:
    """Returns the runs of a topic by the name of their view."""
    found: dict[str, list[ViewRun]] = {}
    for run in import_module(f"tests.visuals.{topic}.view_runs").runs():
        found.setdefault(run.name, []).append(run)
    return found


SOFTMAX = runs_of("softmax")


def problems(runs: Sequence[ViewRun]) -> Iterator[str]:
    """Yields what of a view does not fit its kernel."""
    name, view = runs[0].name, runs[0].view
    names = watched_names(view)
    recorded = [
        record(find(run.rung).build(run.shape, run.tiles), run.inputs, run.blocks, lambda _: names, run.order).launches
        for run in runs
    ]
    for steps, *recordings in zip(view.launches, *recorded, strict=True):
        moments = [m for recording in recordings for m in moments_of(recording, view, steps)]
        for kind in steps.keys() - {m.visit.kind for m in moments}:
            yield f"{name}: {recordings[0].launch.source} never comes to {kind}"
        for m in {m.visit.kind: m for m in reversed(moments)}.values():
            of_cells = {expression for text in m.step.cells.values() for expression in template(text)[1]}
            for expression in expressions_of(m.step):
                try:
                    expression.value(OfCells(m, "", FIRST, FIRST) if expression in of_cells else m)
                except KeyError as error:
                    yield f"{name}: {error.args[0]}"


@pytest.mark.parametrize("topic", TOPICS)
def test_the_views_of_a_topic_fit_its_kernels(topic):
    assert not [problem for runs in runs_of(topic).values() for problem in problems(runs)]


def changed(kind: str, **fields: object) -> list[ViewRun]:
    """Returns a run of softmax/online with another step of a kind."""
    (steps,) = softmax.ONLINE.launches
    view = replace(softmax.ONLINE, launches=({**steps, kind: replace(steps[kind], **fields)},))
    return [replace(run, view=view) for run in SOFTMAX["softmax/online"]]


def test_a_name_that_the_kernel_lost_is_named_by_file_and_line():
    assert list(problems(changed("root", cases=(Say("The maximum is {maximum}."),)))) == [
        "softmax/online: 03_online.cu:36: nothing is called maximum"
    ]


def test_a_line_that_the_kernel_lost_is_named():
    with pytest.raises(MarkError, match=r"03_online.cu has no line like 'float max = partial_m'"):
        list(problems(changed("root", at="float max = partial_m")))


def test_a_line_that_is_never_executed_is_named():
    runs = changed("root", at="partial_l[thread + stride]}", inside="float m = partial_m[0]")
    assert "softmax/online: softmax/03_online.cu never comes to root" in list(problems(runs))


def test_groups_of_threads_take_a_step_one_after_the_other():
    (run,) = changed("root", by="thread // 4", lit="y[col] =")
    names = watched_names(run.view)
    (recording,) = record(find(run.rung).build(run.shape, run.tiles), run.inputs, run.blocks, lambda _: names).launches
    moments = [m for m in moments_of(recording, run.view, run.view.launches[0]) if m.visit.kind == "root"]
    assert [m.visit.threads for m in moments] == [range(4), range(4, 8)]
    assert [m.active.sum() for m in moments] == [4, 4]
    file, text = next(iter(recording.files.items()))
    lines, place = text.splitlines(), place_of(moments[0].step.lit, recording.files)
    lit = {lit_line(place, m.visit, recording.watched, file) for m in moments}
    assert {lines[number - 1].strip()[:6] for number in lit} == {"y[col]"}


@pytest.mark.parametrize("rung", softmax.VIEWS)
def test_the_scene_is_the_same_each_time(rung):
    (run,) = SOFTMAX[rung]
    first, second = (softmax_scene(rung, run.tiles, run.inputs["x"][0]) for _ in range(2))
    assert [first.caption(t) for t in range(first.steps)] == [second.caption(t) for t in range(second.steps)]
    for tensor in first.tensors:
        np.testing.assert_array_equal(first.cells(tensor.name), second.cells(tensor.name))
