"""The scenes of the norms: they end with what the kernels stored, lit lines exist, numbers so far are correct, and forward
and backward use the same places and links."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import emulator
from kernels.ladders import find, ladder_of
from kernels.norm.ladder import LADDERS
from kernels.norm.shape import MapsShape
from visuals.norm import plan
from visuals.norm.captions import BEFORE_A_BARRIER, MARKS, TEMPLATES
from visuals.norm.scene import SIDES, STEP_FUNCTIONS, norm_scene
from visuals.scene.payload import payload

RUNGS = list(STEP_FUNCTIONS)
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


def scene_of(rung: str):
    return norm_scene(rung, *small(rung))


# -- cells -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", RUNGS)
def test_last_step_equals_what_the_kernel_stored(rung):
    """Every output and every partial result, bit for bit."""
    shape, tiles = small(rung)
    scene, run = scene_of(rung), plan.execute(rung, shape, tiles, {})
    for b in run.program.buffers:
        np.testing.assert_array_equal(scene.cells(b.name), run.arrays[b.name], b.name)


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
    scene, run = norm_scene(rung, shape, tiles), plan.execute(rung, shape, tiles, {})
    for b in run.program.outputs:
        np.testing.assert_array_equal(scene.cells(b.name), run.arrays[b.name], b.name)
    for t in range(scene.steps):
        assert "{" not in scene.caption(t)


@pytest.mark.parametrize(
    "rung", ["batch-norm/two-pass", "batch-norm/welford", "layer-norm/three-reads", "rms-norm/two-reads"]
)
def test_the_numbers_that_steps_show_are_those_of_the_kernel(rung):
    """Mean and 1 / std computed from the registers of the scene equal those that the kernel stored, to a few roundings."""
    shape, tiles = small(rung)
    run = plan.execute(rung, shape, tiles, {})
    steps = list(STEP_FUNCTIONS[rung](run))
    kind = next(s for s in steps if s.kind in ("invstd", "invstd_moments", "invrms"))
    variance, inverse = kind.args[2], kind.args[3]
    assert inverse == pytest.approx(1 / np.sqrt(variance + 1e-5), rel=1e-6)
    if "mean" in run.arrays:
        means = [s.totals["mean"] for s in steps if "mean" in s.totals]
        assert means[-1] == pytest.approx(float(run.arrays["mean"][0]), rel=1e-5)


@pytest.mark.parametrize("rung", ["batch-norm/two-pass", "layer-norm/three-reads"])
def test_a_distance_is_that_of_the_number_from_the_mean(rung):
    shape, tiles = small(rung)
    run = plan.execute(rung, shape, tiles, {})
    x, mean = run.arrays["x"][plan.units(shape)[0]], run.arrays["mean"][0]
    iterations = [step for step in STEP_FUNCTIONS[rung](run) if step.kind == "squares"]
    assert len(iterations) > 1
    for iteration, step in enumerate(iterations):  # of thread 0
        read = x[iteration * tiles["BLOCK"]]
        assert step.args[3:6] == pytest.approx((read, mean, read - mean), rel=1e-4)


def test_moments_so_far_are_those_of_the_numbers_read_so_far():
    """Welford's n, mean and M2 of all threads together, after each iteration, against float64."""
    rung = "batch-norm/welford"
    shape, tiles = small(rung)
    run = plan.execute(rung, shape, tiles, {})
    x = run.arrays["x"][plan.units(shape)[0]].astype(np.float64)
    iterations = [s for s in STEP_FUNCTIONS[rung](run) if s.kind == "welford"]
    for iteration, step in enumerate(iterations):
        read = x[: (iteration + 1) * tiles["BLOCK"]]
        assert step.totals["n"] == len(read)
        assert step.totals["mean"] == pytest.approx(read.mean(), rel=1e-5, abs=1e-6)
        assert step.totals["M2"] == pytest.approx(((read - read.mean()) ** 2).sum(), rel=1e-5)


def test_a_wrong_merge_is_found(monkeypatch):
    """A deliberate fault: moments merged without the distance of the means."""
    original = plan.merged
    for module in ("unit", "parts"):
        monkeypatch.setattr(f"visuals.norm.{module}.merged", lambda a, b: original(a, b) | {"M2": a["M2"] + b["M2"]})
    with pytest.raises(AssertionError):
        test_the_numbers_that_steps_show_are_those_of_the_kernel("batch-norm/welford")


@pytest.mark.parametrize("rung", [r for r in RUNGS if "inference" not in r])
def test_shared_memory_equals_the_kernels_stores(rung):
    """Every value that the first block stored in shared memory by a tree, in the order of its threads."""
    shape, tiles = small(rung)
    scene = scene_of(rung)
    shared = {t.name for t in scene.tensors if t.name.startswith("shared_")}
    if not shared:
        assert any(word in rung for word in ("split", "warp", "registers"))
        return
    program = find(rung).build(shape, tiles)
    inputs = {
        b.name: plan.execute(rung, shape, tiles, {}).arrays[b.name].reshape(b.shape) for b in program.of_role("input")
    }
    session = emulator.open(program, inputs, 0)
    session.verify_run()
    trace = session.trace[[s.entry for s in program.steps].index(_traced(program))]
    names = np.array(trace.buffers)[trace.buffer]
    outside = {b.name for b in program.buffers}
    stored = trace.value[trace.write & ~np.isin(names, list(outside))]
    written = np.concatenate([scene.written(w)[2] for w in scene.writes if w.target in shared])
    assert len(stored) == len(written)
    np.testing.assert_allclose(np.sort(stored), np.sort(written), rtol=1e-4, atol=1e-5)


def _traced(program) -> str:
    """Returns the entry of the launch that has a tree."""
    entries = [s.entry for s in program.steps if s.entry not in ("zero", "sum_partials", "ln_backward_columns")]
    return entries[0]


# -- digits that sums lose ------------------------------------------------------------------------------
@pytest.mark.parametrize(("mean", "kind"), [(0.0, "difference"), (1000.0, "difference_lost")])
def test_the_caption_says_where_digits_are_lost(mean, kind):
    rung = "batch-norm/sums"
    shape, tiles = small(rung)
    x = np.random.default_rng(1).standard_normal(shape.dims).astype(np.float32) + np.float32(mean)
    scene = norm_scene(rung, shape, tiles, {"x": x})
    run = plan.execute(rung, shape, tiles, {"x": x})
    step = next(s for s in STEP_FUNCTIONS[rung](run) if s.kind.startswith("difference"))
    assert step.kind == kind
    captions = [scene.caption(t) for t in range(scene.steps)]
    assert any("digits are lost" in c for c in captions) == (mean > 0)
    exact = x[:, 0].astype(np.float64).var()
    assert step.args[5] == pytest.approx(exact, rel=1e-6)
    spacing = float(np.spacing(np.float32(np.mean(x[:, 0].astype(np.float64) ** 2))))
    assert step.args[3] == pytest.approx(spacing)


# -- forward and backward -------------------------------------------------------------------------------
@pytest.mark.parametrize(("forward", "backward"), FORWARD_AND_BACKWARD)
def test_forward_and_backward_have_the_same_places_and_links(forward, backward):
    """x and dx on one side, y and dy on the other; y depends on x as dx depends on dy."""
    scenes = scene_of(forward), scene_of(backward)
    for side in SIDES:
        places = []
        for scene in scenes:
            (place,) = [n for n, g in enumerate(scene.groups) if any(name in side for row in g.rows for name in row)]
            places.append(0 if place == 0 else "last" if place == len(scene.groups) - 1 else place)
        assert places[0] == places[1]
    if is_split(forward):  # of its shape there are too many links to show
        layout = "nhwc" if "nhwc" in forward else "nchw"
        scenes = [norm_scene(r, ladder_of(r).shape(2, 3, 2, 4, layout), small(r)[1]) for r in (forward, backward)]
    (down,), (up,) = (scene.annotations for scene in scenes)
    assert (down.tensor, *down.links) == ("y", "x") and (up.tensor, *up.links) == ("dx", "dy")
    np.testing.assert_array_equal(down.links["x"], up.links["dy"])


@pytest.mark.parametrize(("forward", "backward"), FORWARD_AND_BACKWARD[:1] + FORWARD_AND_BACKWARD[3:])
def test_the_last_pass_takes_the_same_numbers_in_the_same_iterations(forward, backward):
    def iterations(rung, source, out):
        run = plan.execute(rung, *small(rung), {})
        steps = [s for s in STEP_FUNCTIONS[rung](run) if out in s.writes and s.active is not None]
        return [(s.reads[source].tolist(), s.writes[out][0].tolist(), s.active.tolist()) for s in steps]

    assert iterations(forward, "x", "y") == iterations(backward, "dy", "dx")


def test_units_are_the_channels_of_both_layouts():
    shape = ladder_of("batch-norm/two-pass").shape(2, 3, 2, 2)
    maps = np.arange(24).reshape(2, 3, 2, 2)
    for c in range(3):
        np.testing.assert_array_equal(plan.units(shape)[c], maps[:, c].ravel())
    nhwc = shape.with_(layout="nhwc")
    for c in range(3):
        np.testing.assert_array_equal(plan.units(nhwc)[c], np.arange(24).reshape(2, 2, 2, 3)[..., c].ravel())


# -- captions, lines, payload ---------------------------------------------------------------------------
@pytest.mark.parametrize("rung", RUNGS)
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


def test_templates_and_marks_have_the_same_kinds():
    marked = {kind for marks in MARKS.values() for kind in marks} | {"repeat"}
    assert marked == set(TEMPLATES)


def test_every_kind_of_step_is_shown_somewhere():
    """At the shapes of these tests and a few more."""
    shown = set()
    for rung in RUNGS:
        run = plan.execute(rung, *small(rung), {})
        shown |= {s.kind for s in STEP_FUNCTIONS[rung](run)}
    x = np.random.default_rng(1).standard_normal((2, 3, 2, 5)).astype(np.float32) + np.float32(1000)
    shape, tiles = small("batch-norm/sums")
    shown |= {
        s.kind for s in STEP_FUNCTIONS["batch-norm/sums"](plan.execute("batch-norm/sums", shape, tiles, {"x": x}))
    }
    inference = ladder_of("batch-norm-inference/folded").shape(2, 20, 3, 5)
    for rung in ("batch-norm-inference/folded", "batch-norm-inference/formula"):
        tiles = small(rung)[1]
        shown |= {s.kind for s in STEP_FUNCTIONS[rung](plan.execute(rung, inference, tiles, {}))}
    one_row = ladder_of("layer-norm-backward/atomics").shape(1, 9)
    tiles = small("layer-norm-backward/atomics")[1]
    shown |= {
        s.kind
        for s in STEP_FUNCTIONS["layer-norm-backward/atomics"](
            plan.execute("layer-norm-backward/atomics", one_row, tiles, {})
        )
    }
    assert shown | {"repeat"} == set(TEMPLATES)


def test_sentences_are_short():
    """Twenty words or fewer, without the numbers and signs of a formula."""
    for kind, text in TEMPLATES.items():
        for sentence in re.split(r"(?<=[.:]) ", str(text)):
            words = [w for w in sentence.split() if re.search(r"[A-Za-z]", w)]
            assert len(words) <= 20, (kind, sentence)


@pytest.mark.parametrize("rung", RUNGS)
def test_every_barrier_of_a_tree_is_a_step(rung):
    """Each store and each level of the first block ends at a barrier: its caption says so."""
    scene = scene_of(rung)
    texts = [scene.captions.templates[int(k)] for k in scene.captions.kind]
    barriers = sum("wait at the barrier" in text for text in texts)
    shape, tiles = small(rung)
    trees = sum(s.kind in BEFORE_A_BARRIER for s in STEP_FUNCTIONS[rung](plan.execute(rung, shape, tiles, {})))
    assert barriers == trees


def test_long_repetitions_are_folded():
    rung = "layer-norm/three-reads"
    shape = ladder_of(rung).shape(2, 400)
    scene, run = norm_scene(rung, shape, {"BLOCK": 8}), plan.execute(rung, shape, {"BLOCK": 8}, {})
    assert len(list(STEP_FUNCTIONS[rung](run))) > 150 and scene.steps < 40
    assert sum("repeated 47 times" in scene.caption(t) for t in range(scene.steps)) == 3
    np.testing.assert_array_equal(scene.cells("y"), run.arrays["y"])
    readings = {r.label: r.values for r in scene.readings}
    assert readings["bytes of tensors read"][-1] == 3 * 4 * 400 + 4 * 400  # three passes of row 0, the rest once


def test_every_rung_of_ours_has_a_scene():
    assert {r.name for ladder in LADDERS for r in ladder.rungs if not r.library} == set(RUNGS)
