"""The scenes of the norms: they end with what the kernels stored, numbers so far are correct, and forward and backward use
the same places and links."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find, ladder_of
from kernels.norm.ladder import LADDERS
from kernels.norm.shape import MapsShape
from tests.helpers.offenders import every
from visuals.norm.scene import SIDES, inputs_at, norm_scene, units
from visuals.norm.views import SAME, VIEWS
from visuals.scene.compiler.view import Shared
from visuals.scene.payload import payload

RUNGS = list(VIEWS)
FORWARD_AND_BACKWARD = (
    ("batch-norm/two-pass", "batch-norm-backward/two-pass"),
    ("batch-norm/split", "batch-norm-backward/split"),
    ("batch-norm/split-nhwc", "batch-norm-backward/split-nhwc"),
    ("layer-norm/three-reads", "layer-norm-backward/atomics"),
    ("rms-norm/two-reads", "rms-norm-backward/atomics"),
)


def is_split(rung: str) -> bool:
    return "split" in rung


def small(rung: str):
    """Returns (shape, tile sizes) that show several threads, several iterations, and several blocks."""
    shape = ladder_of(rung).shape
    if issubclass(shape, MapsShape):
        layout = "nhwc" if "nhwc" in rung else "nchw"
        made = shape(2, 3, 8, 24, layout) if is_split(rung) else shape(2, 3, 2, 5, layout)
    else:
        made = shape(5, 44)
    wide = is_split(rung) or "registers" in rung or "folded" in rung
    wanted = {"BLOCK": 32 if wide else 8, "BLOCKS": 12 if issubclass(shape, MapsShape) else 3, "WARPS": 1, "PER": 4}
    return made, {name: wanted[name] for name in find(rung).tiles}


@cache
def scene_of(rung: str):
    return norm_scene(rung, *small(rung))


def executed(rung: str, shape, tiles, given=None) -> tuple[dict[str, np.ndarray], emulator.Session]:
    """Returns every buffer after the measured kernels of a rung, flat, and their session."""
    program = find(rung).build(shape, find(rung).check(shape, tiles))
    session = emulator.Session(program, inputs_at(rung, shape, tiles, given or {}), Options(count=True))
    session.verify_run()
    return {b.name: np.array(session.fetch(b.name)).ravel() for b in program.buffers}, session


def readings(scene) -> dict[str, np.ndarray]:
    return {reading.label: np.asarray(reading.values) for reading in scene.readings}


def steps_with(scene, words: str) -> list[int]:
    return [t for t in range(scene.steps) if re.search(words, scene.caption(t))]


# -- cells -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", RUNGS)
def test_last_step_equals_what_the_kernel_stored(rung):
    """Every output and every partial result. The build for watching rounds some sums in another order."""
    scene = scene_of(rung)
    arrays, _ = executed(rung, *small(rung))
    for name, array in arrays.items():
        np.testing.assert_allclose(scene.cells(name), array, rtol=1e-4, atol=1e-5 * np.abs(array).max(), err_msg=name)


@pytest.mark.parametrize("rung", RUNGS)
def test_bytes_are_those_of_the_measured_kernels(rung):
    found = readings(scene_of(rung))
    _, session = executed(rung, *small(rung))
    last = [found[f"bytes {name} global memory"][-1] for name in ("read from", "written to")]
    assert last == [session.counters.total[f"bytes_{op}"] for op in ("ld", "st")]


@pytest.mark.parametrize("rung", RUNGS)
@settings(max_examples=2)
@given(data=st.data())
def test_scenes_exist_at_any_small_shape_and_end_with_the_outputs(rung, data):
    ladder = ladder_of(rung)
    extent = st.integers(1, 6)
    if issubclass(ladder.shape, MapsShape):
        layout = (
            "nhwc" if "nhwc" in rung else "nchw" if is_split(rung) else data.draw(st.sampled_from(["nchw", "nhwc"]))
        )
        shape = ladder.shape(*data.draw(st.tuples(extent, extent, extent, extent)), layout)
    else:
        shape = ladder.shape(data.draw(extent), data.draw(st.integers(1, 70)))
    _, tiles = small(rung)
    scene, (arrays, _) = norm_scene(rung, shape, tiles), executed(rung, shape, tiles)
    for b in find(rung).build(shape, tiles).outputs:
        expected = arrays[b.name]
        np.testing.assert_allclose(scene.cells(b.name), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
    for t in range(scene.steps):
        assert "{" not in scene.caption(t) and "NaN" not in scene.caption(t)


@pytest.mark.parametrize("rung", ["batch-norm/two-pass", "batch-norm/welford", "layer-norm/three-reads"])
def test_mean_and_variance_are_those_of_the_numbers(rung):
    scene, (shape, tiles) = scene_of(rung), small(rung)
    x = inputs_at(rung, shape, tiles, {})["x"].ravel()[units(shape)[0]].astype(np.float64)
    found = readings(scene)
    assert found["mean so far"][-1] == pytest.approx(x.mean(), rel=1e-4)
    assert found["variance, once computed"][-1] == pytest.approx(x.var(), rel=1e-4)


@pytest.mark.parametrize("rung", ["batch-norm/two-pass", "layer-norm/three-reads"])
def test_a_distance_is_that_of_the_number_from_the_mean(rung):
    shape, tiles = small(rung)
    arrays, _ = executed(rung, shape, tiles)
    x, mean = arrays["x"][units(shape)[0]], arrays["mean"][0]
    scene = scene_of(rung)
    first, second = steps_with(scene, "^Pass 2")[:2]
    for step, read in ((first, x[0]), (second, x[tiles["BLOCK"]])):
        numbers = scene.captions.args[step]
        assert any(numbers[n : n + 3] == pytest.approx((read, mean, read - mean), rel=1e-4) for n in range(5))


def test_moments_so_far_are_those_of_the_numbers_read_so_far():
    """Welford's n, mean and M2 of all threads together, after each iteration, against float64."""
    rung = "batch-norm/welford"
    shape, tiles = small(rung)
    x = inputs_at(rung, shape, tiles, {})["x"].ravel()[units(shape)[0]].astype(np.float64)
    scene = scene_of(rung)
    found = readings(scene)
    for iteration, t in enumerate(steps_with(scene, "^Pass 1")):
        read = x[: (iteration + 1) * tiles["BLOCK"]]
        assert found["n so far"][t] == len(read)
        assert found["mean so far"][t] == pytest.approx(read.mean(), rel=1e-5, abs=1e-6)
        assert found["M2 so far"][t] == pytest.approx(((read - read.mean()) ** 2).sum(), rel=1e-5)


TREES = [r for r in RUNGS if any(isinstance(t, Shared) and t.rows for t in VIEWS[r].tensors)]


@pytest.mark.parametrize("rung", TREES)
def test_shared_memory_equals_the_kernels_stores(rung):
    """Every value that the first block of the measured kernel stored in shared memory by a tree."""
    shape, tiles = small(rung)
    scene = scene_of(rung)
    shared = {t.name for t in scene.tensors if t.name.startswith("shared_")}
    program = find(rung).build(shape, tiles)
    session = emulator.open(program, inputs_at(rung, shape, tiles, {}), 0)
    session.verify_run()
    entries = [s.entry for s in program.steps]
    trace = session.trace[next(n for n, entry in enumerate(entries) if entry not in ("zero", "ln_backward_columns"))]
    outside = [b.name for b in program.buffers]
    stored = trace.value[trace.write & ~np.isin(np.array(trace.buffers)[trace.buffer], outside)]
    written = np.concatenate([scene.written(w)[2] for w in scene.writes if w.target in shared])
    assert len(stored) == len(written)
    np.testing.assert_allclose(np.sort(stored), np.sort(written), rtol=1e-4, atol=1e-5)


@every("rung", TREES)
def test_each_level_of_a_tree_merges_the_halves_of_the_one_before(rung):
    """Sums add, and so does n."""
    scene = scene_of(rung)
    for tensor in scene.tensors:
        if tensor.name.startswith("shared_") and not tensor.name.endswith(("mean", "M2")):
            levels = scene.cells(tensor.name).reshape(tensor.rows, tensor.cols)
            for level in range(1, tensor.rows):
                half = tensor.cols >> level
                merged = levels[level - 1, :half] + levels[level - 1, half : 2 * half]
                np.testing.assert_array_equal(levels[level, :half], merged)


# -- digits that sums lose ------------------------------------------------------------------------------
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_the_caption_says_where_digits_are_lost(mean):
    rung = "batch-norm/sums"
    shape, tiles = small(rung)
    x = np.random.default_rng(1).standard_normal(shape.dims).astype(np.float32) + np.float32(mean)
    scene = norm_scene(rung, shape, tiles, {"x": x})
    (step,) = steps_with(scene, "The mean of x² is")
    assert ("digits are lost" in scene.caption(step)) == (mean > 0)
    exact = x[:, 0].astype(np.float64).var()
    numbers = scene.captions.args[step]
    assert any(number == pytest.approx(exact, rel=1e-6) for number in numbers)
    spacing = float(np.spacing(np.float32(np.mean(x[:, 0].astype(np.float64) ** 2))))
    assert any(number == pytest.approx(spacing) for number in numbers) == (mean > 0)


# -- forward and backward -------------------------------------------------------------------------------
def dependence(scene):
    (found,) = [annotation for annotation in scene.annotations if annotation.tensor in ("y", "dx")]
    return found


@pytest.mark.parametrize(("forward", "backward"), FORWARD_AND_BACKWARD)
def test_forward_and_backward_have_the_same_places_and_links(forward, backward):
    """x and dx on one side, y and dy on the other; y depends on x as dx depends on dy."""
    scenes = scene_of(forward), scene_of(backward)
    for names in (SIDES[:2], SIDES[2:]):
        places = []
        for scene in scenes:
            (place,) = [n for n, g in enumerate(scene.groups) if any(name in names for row in g.rows for name in row)]
            places.append(0 if place == 0 else "last" if place == len(scene.groups) - 1 else place)
        assert places[0] == places[1]
    if is_split(forward):  # of its shape there are too many links to show
        layout = "nhwc" if "nhwc" in forward else "nchw"
        scenes = tuple(norm_scene(r, ladder_of(r).shape(2, 3, 2, 4, layout), small(r)[1]) for r in (forward, backward))
    down, up = map(dependence, scenes)
    assert (down.tensor, *down.links) == ("y", "x") and (up.tensor, *up.links) == ("dx", "dy")
    np.testing.assert_array_equal(down.links["x"], up.links["dy"])


@pytest.mark.parametrize(("forward", "backward"), FORWARD_AND_BACKWARD[:1] + FORWARD_AND_BACKWARD[3:])
def test_the_last_pass_takes_the_same_numbers_in_the_same_iterations(forward, backward):
    def iterations(rung, source, out):
        scene = scene_of(rung)
        (read,) = [read for read in scene.reads if read.source == source]
        (write,) = [write for write in scene.writes if write.target == out]
        steps = np.resize(write.steps, len(write.cells))
        found = [(t, np.sort(write.cells[steps == t]).tolist()) for t in np.unique(steps)[:-1]]  # not the other blocks
        return [(read.cells[read.start[t] : read.start[t + 1]].tolist(), cells) for t, cells in found]

    assert iterations(forward, "x", "y") == iterations(backward, "dy", "dx")


def test_units_are_the_channels_of_both_layouts():
    shape = ladder_of("batch-norm/two-pass").shape(2, 3, 2, 2)
    maps = np.arange(24).reshape(2, 3, 2, 2)
    for c in range(3):
        np.testing.assert_array_equal(units(shape)[c], maps[:, c].ravel())
    nhwc = shape.with_(layout="nhwc")
    for c in range(3):
        np.testing.assert_array_equal(units(nhwc)[c], np.arange(24).reshape(2, 2, 2, 3)[..., c].ravel())


# -- captions, lines, payload ---------------------------------------------------------------------------
@every("rung", RUNGS)
def test_every_step_has_a_caption_a_line_and_a_small_payload(rung):
    scene = scene_of(rung)
    for t in range(scene.steps):
        caption = scene.caption(t)
        assert "{" not in caption and len(caption) < 420
        assert not t or caption != scene.caption(t - 1)
        source, line = scene.source_at(t)
        assert source.text.splitlines()[line - source.first].strip()
    meta, block = payload(scene)
    assert len(block) < 200_000 and meta["steps"] == scene.steps


@every("rung", RUNGS)
def test_sentences_are_short(rung):
    """Twenty words or fewer, without the numbers and signs of a formula."""
    for step in (step for launch in VIEWS[rung].launches for step in launch.values()):
        for text in (step.lead, step.fold, *(say.text for say in step.cases)):
            for sentence in re.split(r"(?<=[.:]) ", re.sub(r"\{[^{}]*\}", "1", text)):
                words = [w for w in sentence.split() if re.search(r"[A-Za-z]", w)]
                assert len(words) <= 20, sentence


@every("rung", [r for r in RUNGS if any("level" in kind for kind in VIEWS[r].launches[-1])])
def test_every_barrier_of_a_tree_is_a_step(rung):
    """Each store and each level of the first block ends at a barrier: its caption says so."""
    _, tiles = small(rung)
    trees = sum(kind.startswith("store_") for kind in VIEWS[rung].launches[-1])
    levels = tiles["BLOCK"].bit_length() - 1
    assert len(steps_with(scene_of(rung), "wait at the barrier")) == trees * (1 + levels)


def test_long_repetitions_are_folded():
    rung = "layer-norm/three-reads"
    shape = ladder_of(rung).shape(2, 400)
    scene, (arrays, session) = norm_scene(rung, shape, {"BLOCK": 8}), executed(rung, shape, {"BLOCK": 8})
    assert scene.steps < 40
    assert len(steps_with(scene, "repeated 47 times")) == 3
    assert all(step.fold in ("", SAME) for launch in VIEWS[rung].launches for step in launch.values())
    np.testing.assert_allclose(scene.cells("y"), arrays["y"], rtol=1e-4, atol=1e-5)
    found = readings(scene)["bytes read from global memory"]
    assert (
        found[-1] == session.counters.total["bytes_ld"] == 2 * 4 * (3 + 2) * 400
    )  # x three times, gamma and beta once


def test_every_rung_of_ours_has_a_scene():
    assert {r.name for ladder in LADDERS for r in ladder.rungs if not r.library} == set(RUNGS)
