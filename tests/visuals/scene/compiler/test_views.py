"""Every view fits its kernel: each step is executed, each case is said or can be said, each name is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.engines.emulator.watch.recording import record
from kernels.heads.shape import HeadsShape
from kernels.ladders import find, ladder_of
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape
from kernels.runner import inputs_of
from kernels.softmax.shape import SoftmaxShape
from visuals.heads import views as heads
from visuals.pooling import views as pooling
from visuals.scene.compiler.compile import expressions_of, moments_of, watched_names
from visuals.scene.compiler.program import every_block
from visuals.scene.compiler.steps import MarkError
from visuals.scene.compiler.view import Say, View
from visuals.softmax import views as softmax
from visuals.softmax.scene import softmax_scene

ROW = np.linspace(-3, 3, 40).astype(np.float32)[None]
Run = tuple[Any, Mapping[str, int], Mapping[str, np.ndarray]]


def default_runs(views: Iterable[str], shapes: Mapping[str, Any]) -> dict[str, Run]:
    """Returns runs with the default tile sizes at the shapes of ladders."""
    out = {}
    for rung in views:
        shape, tiles = shapes[rung.partition("/")[0].removesuffix("-backward")], find(rung).default_tiles
        out[rung] = shape, tiles, inputs_of(ladder_of(rung), shape, find(rung).build(shape, tiles))
    return out


# By rung: a shape, tile sizes and inputs with which every line of the view is executed.
SOFTMAX: dict[str, Run] = {
    "softmax/unsafe": (SoftmaxShape(1, 40), {"BLOCK": 8}, {"x": ROW}),
    "softmax/three-pass": (SoftmaxShape(1, 40), {"BLOCK": 8}, {"x": ROW}),
    "softmax/online": (SoftmaxShape(1, 40), {"BLOCK": 8}, {"x": ROW}),
    "softmax/warp-shuffle": (SoftmaxShape(1, 40), {"WARPS": 1}, {"x": ROW}),
    "softmax/registers": (SoftmaxShape(1, 40), {"BLOCK": 128, "PER": 4}, {"x": ROW}),
    "softmax/cluster": (SoftmaxShape(1, 40), {"CLUSTER": 2, "BLOCK": 32, "PER": 4}, {"x": ROW}),
    "softmax/split": (SoftmaxShape(1, 40), {"BLOCKS": 4, "BLOCK": 32, "LOADS": 1}, {"x": ROW}),
    "softmax/one-launch": (SoftmaxShape(1, 40), {"BLOCKS": 4, "BLOCK": 32, "PER": 4}, {"x": ROW}),
}
POOLING = {
    "max-pool": MaxPoolShape(1, 2, 5, 5, 3, 3, stride=2, pad=1),
    "avg-pool": AvgPoolShape(1, 2, 5, 5, 3, 3, stride=2, pad=1),
    "global-avg-pool": GlobalShape(2, 3, 4, 5),
}
HEADS = dict.fromkeys(("split-heads", "merge-heads"), HeadsShape(1, 3, 2, 4, 3))
RUNS = SOFTMAX | default_runs(pooling.VIEWS, POOLING) | default_runs(heads.VIEWS, HEADS)
VIEWS: dict[str, View] = {
    **softmax.VIEWS,
    **pooling.VIEWS,
    **{rung: view(RUNS[rung][0], rung.partition("/")[0], RUNS[rung][1]) for rung, view in heads.VIEWS.items()},
}


def problems(rung: str, view: View) -> Iterator[str]:
    """Yields what of a view does not fit its kernel."""
    shape, tiles, inputs = RUNS[rung]
    names = watched_names(view)
    recorded = record(find(rung).build(shape, tiles), inputs, every_block, lambda _: names)
    for recording, steps in zip(recorded.launches, view.launches, strict=True):
        moments = list(moments_of(recording, view, steps))
        for kind in steps.keys() - {m.visit.kind for m in moments}:
            yield f"{rung}: {recording.launch.source} never comes to {kind}"
        for m in {m.visit.kind: m for m in reversed(moments)}.values():
            for expression in expressions_of(m.step):
                try:
                    expression.value(m)
                except KeyError as error:
                    yield f"{rung}: {error.args[0]}"


def test_every_rung_with_a_view_has_a_run():
    assert VIEWS.keys() == RUNS.keys()


@pytest.mark.parametrize("rung", VIEWS)
def test_a_view_fits_its_kernel(rung):
    assert not list(problems(rung, VIEWS[rung]))


def changed(kind: str, **fields: object) -> View:
    """Returns the view of softmax/online with another step of a kind."""
    (steps,) = softmax.ONLINE.launches
    return replace(softmax.ONLINE, launches=({**steps, kind: replace(steps[kind], **fields)},))


def test_a_name_that_the_kernel_lost_is_named_by_file_and_line():
    assert list(problems("softmax/online", changed("root", cases=(Say("The maximum is {maximum}."),)))) == [
        "softmax/online: 03_online.cu:36: nothing is called maximum"
    ]


def test_a_line_that_the_kernel_lost_is_named():
    with pytest.raises(MarkError, match=r"03_online.cu has no line like 'float max = partial_m'"):
        list(problems("softmax/online", changed("root", at="float max = partial_m")))


def test_a_line_that_is_never_executed_is_named():
    view = changed("root", at="partial_l[thread + stride]}", inside="float m = partial_m[0]")
    assert "softmax/online: softmax/03_online.cu never comes to root" in list(problems("softmax/online", view))


@pytest.mark.parametrize("rung", SOFTMAX)
def test_the_scene_is_the_same_each_time(rung):
    _, tiles, inputs = RUNS[rung]
    first, second = (softmax_scene(rung, tiles, inputs["x"][0]) for _ in range(2))
    assert [first.caption(t) for t in range(first.steps)] == [second.caption(t) for t in range(second.steps)]
    for tensor in first.tensors:
        np.testing.assert_array_equal(first.cells(tensor.name), second.cells(tensor.name))
