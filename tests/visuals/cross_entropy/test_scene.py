"""The scenes of cross-entropy: they end with what the kernels stored; m, l, barriers and bytes are those of the kernels."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.cross_entropy import ladder as ce
from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from kernels.runner import inputs_of
from visuals.cross_entropy import plan
from visuals.cross_entropy.captions import CAPTIONS, LINES, kinds
from visuals.cross_entropy.scene import cross_entropy_scene
from visuals.cross_entropy.steps import STEPS
from visuals.scene.launch_scene import executed
from visuals.scene.payload import payload

TILES = {"BLOCK": 32, "LOADS": 1, "SPLITS": 2}
SIZES = ((3, 10), (1, 1), (4, 131))
every_rung = pytest.mark.parametrize("rung", STEPS)
every_size = pytest.mark.parametrize("size", SIZES, ids=str)


def own_tiles(rung: str, **tiles: int) -> dict[str, int]:
    return {name: value for name, value in (TILES | tiles).items() if name in find(rung).tiles}


@cache
def made(rung: str, size: tuple[int, int], block: int = 32):
    """Returns (scene, executed program, inputs) of a rung."""
    shape, tiles = ladder_of(rung).shape(*size), own_tiles(rung, BLOCK=block)
    inputs = inputs_of(ladder_of(rung), shape, find(rung).build(shape, find(rung).check(shape, tiles)))
    return cross_entropy_scene(rung, shape, tiles, inputs), executed(rung, shape, tiles, inputs), inputs


def test_every_own_rung_has_a_scene():
    ours = (*ce.FORWARD_RUNGS, *ce.BACKWARD_RUNGS, *ce.STEP_RUNGS)
    assert set(STEPS) == set(LINES) == {rung.name for rung in ours if not rung.no_scene}
    used = {kind for rung in LINES for kind in kinds(rung)}
    assert used == set(CAPTIONS)


@every_rung
@every_size
def test_the_scene_ends_with_what_the_kernels_stored(rung, size):
    scene, program, inputs = made(rung, size)
    shown = {t.name for t in scene.tensors} & set(program.last)
    assert {b.name for b in program.program.outputs} <= shown
    for name in shown:
        expected = inputs[name] if name in inputs else program.last[name]
        np.testing.assert_array_equal(scene.cells(name), expected.ravel(), err_msg=name)


@every_rung
def test_maximum_and_sum_are_those_of_the_row(rung):
    scene, _, inputs = made(rung, (2, 523), 128)
    if "m" not in {t.name for t in scene.tensors}:
        return
    row = inputs["x"][0].astype(np.float64)
    m, total = scene.cells("m"), scene.cells("l")
    np.testing.assert_array_equal(m[0], inputs["x"][0].max())
    assert total[0] == pytest.approx(np.exp(row - row.max()).sum(), rel=1e-5)
    if rung != "cross-entropy/split":  # there thread 0 has merged parts of its row
        assert (m == m[0]).all() and (total == total[0]).all()


@every_rung
def test_every_barrier_is_a_step(rung):
    """Each call of over_block has one barrier, and no kernel has another."""
    scene, program, _ = made(rung, (2, 523), 128)
    names = list(kinds(rung))
    barriers = sum(names[k].startswith("barrier") for k in scene.captions.kind)
    code = [sources.code(launch.source) for launch in program.launches]
    assert all(text.count("__syncthreads") <= 1 for text in code)
    assert barriers == sum(source.text.count(" = over_block(") for source in (scene.source, *scene.next_sources))


@every_rung
def test_the_reads_of_x_are_those_of_the_kernel(rung):
    """Bytes read and written: the cost of the rung, and the numbers of a row that every thread reads."""
    scene, program, _ = made(rung, (4, 131))
    read, written = (r.values[-1] for r in scene.readings[:2])
    shape = ladder_of(rung).shape(4, 131)
    matrices = {
        "unfused": (4, 2),
        "two-pass": (2, 0),
        "online": (1, 0),
        "split": (1, 0),
        "elements": (1, 1),
        "rows": (1, 1),
        "pieces": (1, 1),
    }
    matrices |= {"two-kernels": (2, 1), "fused": (2, 1), "shared-row": (1, 1)}
    reads, writes = matrices[rung.partition("/")[2]]
    few = 4 * 16 * shape.M  # numbers of rows
    assert 4 * reads * shape.elements <= read <= 4 * reads * shape.elements + few
    assert 4 * writes * shape.elements <= written <= 4 * writes * shape.elements + few
    predicted = find(rung).cost(shape, program.program).moved_bytes
    assert read + written == pytest.approx(predicted, abs=2 * few)


@every_rung
def test_captions_lines_and_payload(rung):
    scene, program, _ = made(rung, (3, 10))
    launches = len(program.launches)
    assert 1 + len(scene.next_sources) == launches
    for t in range(scene.steps):
        source, line = scene.source_at(t)
        assert source.text.splitlines()[line - source.first].strip()
        assert "nan" not in scene.caption(t).lower() and len(scene.caption(t)) < 300
    meta, block = payload(scene)
    assert meta["steps"] == scene.steps and len(block) < 100_000


def test_the_gradient_uses_the_plan_of_the_loss():
    """The same columns in the same iterations by the same threads, read forward and written backward."""
    forward, _, _ = made("cross-entropy/online", (2, 40))
    backward, _, _ = made("cross-entropy-backward/rows", (2, 40))
    reads = next(read for read in forward.reads if read.source == "x")
    iterations = [reads.cells[a:b].tolist() for a, b in zip(reads.start, reads.start[1:], strict=False) if b - a > 1]
    (write,) = [w for w in backward.writes if w.target == "dx"]
    steps = np.resize(write.steps, len(write.cells))
    written = [np.sort(write.cells[steps == step]).tolist() for step in np.unique(steps)]
    assert iterations == written[:-1]  # the last step is that of the other rows


@settings(max_examples=20)
@given(st.integers(0, 9), st.integers(1, 300), st.sampled_from([32, 64]), st.sampled_from([1, 2, 4]))
def test_the_plan_has_every_column_once(first, count, block, loads):
    iterations = list(plan.fours(first, count, block, loads))
    iterations += [iteration for iteration in [plan.singles(first, count, block)] if iteration]
    columns = np.concatenate([iteration.cols for iteration in iterations])
    assert sorted(columns) == list(range(count))
    for iteration in iterations:
        assert (iteration.thread >= 0).all() and (iteration.thread < block).all()
    for iteration in plan.fours(first, count, block, loads):
        assert ((first + iteration.cols[::4]) % 4 == 0).all()


def test_too_many_logits_are_refused():
    rung, shape = "cross-entropy/online", ladder_of("cross-entropy/online").shape(100, 100)
    with pytest.raises(RuleError, match="at most 4,096 logits"):
        cross_entropy_scene(rung, shape, {}, {})


def test_lane_0_of_each_warp_stores_for_it():
    scene, _, _ = made("cross-entropy/online", (2, 200), 128)
    for name in ("warp_m", "warp_l"):
        copies = [write for write in scene.writes if write.target == name]
        assert copies and all((write.index % 32 == 0).all() for write in copies)
