"""Every view fits its kernel: each step is executed, each case is said or can be said, each name is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from kernels import sources
from kernels.embedding.shape import EmbeddingBackwardShape, EmbeddingShape
from kernels.engines.emulator.watch.recording import record
from kernels.ladders import find, ladder_of
from kernels.linear.ladder import SMALL
from kernels.runner import inputs_of
from kernels.softmax.shape import SoftmaxShape
from visuals.embedding import views as embedding
from visuals.linear import views as linear
from visuals.linear.scene import SCENES, followed
from visuals.scene.compiler.compile import expressions_of, moments_of, watched_names
from visuals.scene.compiler.program import every_block
from visuals.scene.compiler.steps import MarkError, lit_line
from visuals.scene.compiler.view import Say, View
from visuals.softmax import views as softmax
from visuals.softmax.scene import softmax_scene

ROW = np.linspace(-3, 3, 40).astype(np.float32)[None]
# By rung: a shape, tile sizes and inputs with which every line of the view is executed.
RUNS = {
    "softmax/unsafe": (SoftmaxShape(1, 40), {"BLOCK": 8}, {"x": ROW}),
    "softmax/three-pass": (SoftmaxShape(1, 40), {"BLOCK": 8}, {"x": ROW}),
    "softmax/online": (SoftmaxShape(1, 40), {"BLOCK": 8}, {"x": ROW}),
    "softmax/warp-shuffle": (SoftmaxShape(1, 40), {"WARPS": 1}, {"x": ROW}),
    "softmax/registers": (SoftmaxShape(1, 40), {"BLOCK": 128, "PER": 4}, {"x": ROW}),
    "softmax/cluster": (SoftmaxShape(1, 40), {"CLUSTER": 2, "BLOCK": 32, "PER": 4}, {"x": ROW}),
    "softmax/split": (SoftmaxShape(1, 40), {"BLOCKS": 4, "BLOCK": 32, "LOADS": 1}, {"x": ROW}),
    "softmax/one-launch": (SoftmaxShape(1, 40), {"BLOCKS": 4, "BLOCK": 32, "PER": 4}, {"x": ROW}),
}
SMALL_SORT = {"BLOCK": 32, "CHUNK": 4}
TOKENS = np.array([2, 0, 2, 2, 1, 2, 4, 4], np.int32)  # token 3 does not occur


def _gradient(tiles: dict[str, int], *columns: int):
    """Returns runs of an embedding's gradient at so many columns."""
    return [
        (EmbeddingBackwardShape(8, 5, d), tiles, {"tokens": TOKENS, "dy": np.ones((8, d), np.float32)}) for d in columns
    ]


def _rows(tiles: dict[str, int]):
    return [(EmbeddingShape(8, 5, 4), tiles, {"tokens": TOKENS, "table": np.ones((5, 4), np.float32)})]


EMBEDDING = {
    "embedding/elements": _rows({"BLOCK": 32}),
    "embedding/rows": _rows({"WARPS": 2, "LOADS": 1}),
    "embedding-backward/atomics": _gradient({"BLOCK": 32}, 4),
    "embedding-backward/sorted": _gradient(SMALL_SORT, 4),
    "embedding-backward/runs": _gradient(
        SMALL_SORT | {"ROWS": 4}, 3, 4
    ),  # rows that are aligned to 16 bytes, and others
}
LINEAR_TILES = SMALL | {"SPLITS": 2, "BLOCK": 8}
# A sum of 40 terms or of 20, of a whole block or of less: tiles that are inside the matrices, before the loop and in it, and others.
LINEAR_SIZES = (
    (32, 32, 40),
    (32, 40, 32),
    (40, 32, 32),
    (3, 4, 36),
    (3, 36, 4),
    (36, 3, 4),
    (36, 36, 36),
    (32, 32, 36),
)


def _linear(rung: str):
    ladder, found = ladder_of(rung), find(rung)
    tiles = {name: size for name, size in LINEAR_TILES.items() if name in found.tiles}
    for size in LINEAR_SIZES if "BM" in tiles else LINEAR_SIZES[:1]:
        shape = ladder.shape(*size)
        yield shape, tiles, inputs_of(ladder, shape, found.build(shape, tiles))


LINEAR = {rung: list(_linear(rung)) for rung in SCENES}
RUNS_OF_VIEWS = {rung: [run] for rung, run in RUNS.items()} | EMBEDDING | LINEAR
VIEWS: dict[str, View] = {
    **softmax.VIEWS,
    **embedding.VIEWS,
    **{rung: linear.view(rung, runs[0][1]) for rung, runs in LINEAR.items()},
}


def problems(rung: str, view: View) -> Iterator[str]:
    """Yields what of a view does not fit its kernel."""
    names, runs = watched_names(view), RUNS_OF_VIEWS[rung]
    blocks = followed if rung in LINEAR else every_block
    recorded = [record(find(rung).build(*run[:2]), run[2], blocks, lambda _: names).launches for run in runs]
    for steps, *recordings in zip(view.launches, *recorded, strict=True):
        recording, moments = recordings[0], [m for r in recordings for m in moments_of(r, view, steps)]
        for kind in steps.keys() - {m.visit.kind for m in moments}:
            yield f"{rung}: {recording.launch.source} never comes to {kind}"
        for m in {m.visit.kind: m for m in reversed(moments)}.values():
            for expression in expressions_of(m.step):
                try:
                    expression.value(m)
                except KeyError as error:
                    yield f"{rung}: {error.args[0]}"


def test_every_rung_with_a_view_has_a_run():
    assert VIEWS.keys() == RUNS_OF_VIEWS.keys()


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


@pytest.mark.parametrize("rung", softmax.VIEWS)
def test_the_scene_is_the_same_each_time(rung):
    _, tiles, inputs = RUNS[rung]
    first, second = (softmax_scene(rung, tiles, inputs["x"][0]) for _ in range(2))
    assert [first.caption(t) for t in range(first.steps)] == [second.caption(t) for t in range(second.steps)]
    for tensor in first.tensors:
        np.testing.assert_array_equal(first.cells(tensor.name), second.cells(tensor.name))
