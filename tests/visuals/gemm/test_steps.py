"""The steps of the explaining order: barriers as the emulated kernel meets them, repeated terms folded into one step."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.gemm.shape import GemmShape
from tests.visuals.gemm.test_scene import DTYPES, RUNGS, SHARED, cases, matrices, one_block, smallest
from tests.visuals.gemm.test_timeline import PIPELINES
from visuals.gemm import plan as gemm_plan
from visuals.gemm.plan import plan_of
from visuals.gemm.scene import folds, gemm_scene

# One letter per kind of step: load, wait for copies, barrier, multiply; others have none.
LETTERS = {
    **dict.fromkeys((gemm_plan.LOAD_A, gemm_plan.LOAD_B, gemm_plan.LOAD_A_LATER, gemm_plan.LOAD_B_LATER), "L"),
    **dict.fromkeys((gemm_plan.WAIT_FIRST, gemm_plan.WAIT, gemm_plan.WAIT_LAST, gemm_plan.WAIT_END), "W"),
    **dict.fromkeys((gemm_plan.COMPLETE_FIRST, gemm_plan.COMPLETE, gemm_plan.COMPLETE_LAST), "B"),
    **dict.fromkeys((gemm_plan.READ, gemm_plan.SPREAD), "B"),
    gemm_plan.MULTIPLY: "M",
}


def once(letters: str) -> str:
    return re.sub(r"(.)\1+", r"\1", letters)


def of_scene(scene) -> str:
    return once("".join(LETTERS.get(int(kind), "") for kind in scene.captions.kind))


def of_trace(plan, trace) -> str:
    """Returns the same letters, from the lines and the accesses to shared memory of the emulated block."""
    text = sources.text(plan.file).splitlines()
    names = np.array(trace.buffers)[trace.buffer]
    shared = np.isin(names, ("tile_a", "tile_b", "shared"))
    stored, loaded = set(trace.step[shared & trace.write]), set(trace.step[shared & ~trace.write])
    letters = []
    for step, number in enumerate(trace.line):
        line = trace.lines[number]
        here = text[line.number - 1] if line and line.file == plan.file.rpartition("/")[2] else ""
        if "tile_c[" in here or "[warp_col + j * 16]," in here:  # the sums on their way to C
            continue
        if "__syncthreads" in here:
            letters.append("B")
        elif "wait_groups<" in here:
            letters.append("W")
        elif step in stored or re.search(r"copy4?_async<", here):
            letters.append("L")
        elif "multiply_add(" in here or (step in loaded and "mma_sync" not in plan.file):
            letters.append("M")
    found = once("".join(letters))
    # The compiler puts addresses of loads on a barrier's line. The counter of barriers is compared too.
    return once(re.sub(r"(?<=L)B(?=L)|(?<=M)B(?=M)", "", found))


@pytest.mark.parametrize("rung", SHARED)
@pytest.mark.parametrize("whole", [True, False], ids=["aligned", "unaligned"])
def test_loads_barriers_and_products_follow_each_other_as_in_the_kernel(rung, whole):
    tiles, dtype = smallest(rung), DTYPES.get(rung, "fp32")
    plan = plan_of(GemmShape(16, 16, 16, dtype=dtype), rung, tiles)
    s = GemmShape(plan.BM, plan.BN - (not whole), 2 * plan.BK, dtype=dtype)
    plan = plan_of(s, rung, tiles)
    A, B, C0 = matrices(s)
    trace, counters = one_block(s, rung, tiles, A, B, C0)
    scene = gemm_scene(s, rung, tiles, A, B, every_step=True)
    expected = of_trace(plan, trace)
    if rung in PIPELINES:  # the first operands are loaded before the loop
        expected = re.sub("(?<=B)M(?=L)", "", expected)
    elif plan.syncs.early:  # copies are in parts, one before each product, and the last ones are of zeros: left out
        first_parts = re.sub("(?<=M)L(?=W)", "", expected)
        expected = "M".join(first_parts.rsplit("MLM", 1))
    assert of_scene(scene) == expected
    barriers = sum("__syncthreads" in line_of(scene, t) for t in range(scene.steps))
    assert barriers == counters.total["barriers"] / (plan.threads / 32)


def line_of(scene, t: int) -> str:
    return scene.source.text.splitlines()[int(scene.source.lines[t]) - scene.source.first]


@pytest.mark.parametrize("rung", SHARED)
def test_a_barrier_lights_its_line_and_says_what_it_waits_for(rung):
    s = GemmShape(64, 64, 64, dtype=DTYPES.get(rung, "fp32"))
    scene = gemm_scene(s, rung, smallest(rung), *matrices(s))
    for t in range(scene.steps):
        letter = LETTERS.get(int(scene.captions.kind[t])) if scene.captions.kind[t] in LETTERS else ""
        assert ("__syncthreads" in line_of(scene, t)) == (letter == "B") == ("Barrier: " in scene.caption(t))
        assert ("wait_groups<" in line_of(scene, t)) == (letter == "W")
        assert letter not in ("B", "W") or "waits" in scene.caption(t)


# -- folded steps ----------------------------------------------------------------------------------
@settings(max_examples=10)
@given(cases(), st.booleans())
def test_a_folded_scene_shows_the_same_values(case, default_tiles):
    rung, tiles, s = case
    A, B, C0 = matrices(s)
    folded = gemm_scene(s, rung, {} if default_tiles else tiles, A, B, C0)
    whole = gemm_scene(s, rung, {} if default_tiles else tiles, A, B, C0, every_step=True)
    template = len(whole.captions.templates)
    t = -1  # the step of the whole scene after which the folded one shows the same
    for step in range(folded.steps):
        t += 1
        if folded.captions.kind[step] == template:
            first, last = folded.captions.args[step][:2]
            skipped = 0
            while whole.captions.args[t][1] != last:
                assert whole.captions.kind[t] == gemm_plan.MULTIPLY
                skipped += 1
                t += 1
            assert skipped and first < last
        else:
            assert folded.caption(step) == whole.caption(t)
        for tensor in folded.tensors:
            np.testing.assert_array_equal(folded.cells(tensor.name, step), whole.cells(tensor.name, t), tensor.name)
        assert [r.values[step] for r in folded.readings] == [r.values[t] for r in whole.readings]
        assert folded.source.lines[step] == whole.source.lines[t]
    assert t == whole.steps - 1


@pytest.mark.parametrize("rung", RUNGS)
def test_first_second_and_last_term_of_a_tile_are_steps(rung):
    s = GemmShape(64, 64, 64, dtype=DTYPES.get(rung, "fp32"))
    scene = gemm_scene(s, rung, {}, *matrices(s))
    kinds, template = np.array(scene.captions.kind), len(scene.captions.templates) - 1
    for t in np.flatnonzero(kinds == template) if template > gemm_plan.SPREAD else ():
        assert list(kinds[[t - 2, t - 1, t + 1]]) == [gemm_plan.MULTIPLY] * 3
        assert kinds[t - 3] != gemm_plan.MULTIPLY != kinds[t + 2]
        assert "in the same way" in scene.caption(t)


@settings(max_examples=15)
@given(cases())
def test_only_a_scene_with_steps_to_fold_says_that_it_folds(case):
    rung, tiles, s = case
    scenes = [gemm_scene(s, rung, tiles, *matrices(s), every_step=every) for every in (False, True)]
    assert folds(s, rung, tiles) == (scenes[0].steps < scenes[1].steps)


def test_most_steps_of_a_tile_are_folded():
    s = GemmShape(64, 64, 64)
    scene, whole = (gemm_scene(s, "gemm/shared-tile", {}, *matrices(s), every_step=e) for e in (False, True))
    assert (scene.steps, whole.steps) == (20, 76)
    assert scene.key != whole.key
