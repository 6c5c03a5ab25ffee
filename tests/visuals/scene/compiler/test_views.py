"""Every view fits its kernel: each step is executed, each case is said or can be said, each name is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from kernels import sources
from kernels.engines.emulator.watch.recording import record
from kernels.ladders import find, ladder_of
from kernels.model.program import Tiles
from kernels.model.shape import Shape
from kernels.runner import inputs_of
from kernels.softmax.shape import SoftmaxShape
from visuals.cross_entropy import views as cross_entropy
from visuals.norm import views as norm
from visuals.norm.scene import view_of
from visuals.scene.compiler.compile import expressions_of, moments_of, watched_names
from visuals.scene.compiler.program import every_block
from visuals.scene.compiler.steps import MarkError, lit_line
from visuals.scene.compiler.view import Say, View
from visuals.softmax import views as softmax
from visuals.softmax.scene import softmax_scene

ROW = np.linspace(-3, 3, 40).astype(np.float32)[None]
# By rung: a shape, tile sizes and inputs with which every line of the view is executed.
SOFTMAX = {
    "softmax/unsafe": (SoftmaxShape(1, 40), {"BLOCK": 8}, {"x": ROW}),
    "softmax/three-pass": (SoftmaxShape(1, 40), {"BLOCK": 8}, {"x": ROW}),
    "softmax/online": (SoftmaxShape(1, 40), {"BLOCK": 8}, {"x": ROW}),
    "softmax/warp-shuffle": (SoftmaxShape(1, 40), {"WARPS": 1}, {"x": ROW}),
    "softmax/registers": (SoftmaxShape(1, 40), {"BLOCK": 128, "PER": 4}, {"x": ROW}),
    "softmax/cluster": (SoftmaxShape(1, 40), {"CLUSTER": 2, "BLOCK": 32, "PER": 4}, {"x": ROW}),
    "softmax/split": (SoftmaxShape(1, 40), {"BLOCKS": 4, "BLOCK": 32, "LOADS": 1}, {"x": ROW}),
    "softmax/one-launch": (SoftmaxShape(1, 40), {"BLOCKS": 4, "BLOCK": 32, "PER": 4}, {"x": ROW}),
}


def drawn(rung: str, shape: Shape, tiles: Tiles) -> tuple[Shape, Tiles, dict[str, np.ndarray]]:
    """Returns a run with seeded inputs."""
    return shape, tiles, inputs_of(ladder_of(rung), shape, find(rung).build(shape, tiles))


CROSS_ENTROPY = {
    rung: drawn(rung, ladder_of(rung).shape(4, 131), {name: tiles[name] for name in find(rung).tiles})
    for rung, tiles in ((rung, {"BLOCK": 32, "LOADS": 1, "SPLITS": 2}) for rung in cross_entropy.VIEWS)
}


def of_norm(rung: str) -> tuple[Shape, Tiles, dict[str, np.ndarray]]:
    extents = (2, 3, 8, 24, "nhwc" if "nhwc" in rung else "nchw") if rung.startswith("batch") else (20, 44)
    wanted = {"BLOCK": 32, "BLOCKS": 12, "WARPS": 8 if "one-sum" in rung else 1, "PER": 4}
    return drawn(rung, ladder_of(rung).shape(*extents), {name: wanted[name] for name in find(rung).tiles})


NORM = {rung: of_norm(rung) for rung in norm.VIEWS}
RUNS = {**SOFTMAX, **CROSS_ENTROPY, **NORM}
NORM_VIEWS = {rung: view_of(rung, shape, inputs) for rung, (shape, _, inputs) in NORM.items()}
VIEWS: dict[str, View] = {**softmax.VIEWS, **cross_entropy.VIEWS, **NORM_VIEWS}


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


def test_groups_of_threads_take_a_step_one_after_the_other():
    view = changed("root", by="thread // 4", lit="y[col] =")
    shape, tiles, inputs = RUNS["softmax/online"]
    names = watched_names(view)
    (recording,) = record(find("softmax/online").build(shape, tiles), inputs, every_block, lambda _: names).launches
    moments = [m for m in moments_of(recording, view, view.launches[0]) if m.visit.kind == "root"]
    assert [m.visit.threads for m in moments] == [range(4), range(4, 8)]
    assert [m.active.sum() for m in moments] == [4, 4]
    files = sources.files(recording.launch.source)
    lines = next(iter(files.values())).splitlines()
    assert {lines[lit_line(m.step, m.visit, recording.watched, files) - 1].strip()[:6] for m in moments} == {"y[col]"}


@pytest.mark.parametrize("rung", SOFTMAX)
def test_the_scene_is_the_same_each_time(rung):
    _, tiles, inputs = SOFTMAX[rung]
    first, second = (softmax_scene(rung, tiles, inputs["x"][0]) for _ in range(2))
    assert [first.caption(t) for t in range(first.steps)] == [second.caption(t) for t in range(second.steps)]
    for tensor in first.tensors:
        np.testing.assert_array_equal(first.cells(tensor.name), second.cells(tensor.name))
