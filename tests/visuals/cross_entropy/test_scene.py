"""The scenes of cross-entropy: they end with what the kernels stored; m, l, barriers and bytes are those of the kernels."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from kernels import sources
from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find, ladder_of
from kernels.model.program import RuleError
from kernels.runner import inputs_of
from visuals.cross_entropy.scene import cross_entropy_scene
from visuals.cross_entropy.views import VIEWS
from visuals.scene.launch_scene import executed
from visuals.scene.payload import payload

TILES = {"BLOCK": 32, "LOADS": 1, "SPLITS": 2}
SIZES = ((3, 10), (1, 1), (4, 131))
every_rung = pytest.mark.parametrize("rung", VIEWS)
every_size = pytest.mark.parametrize("size", SIZES, ids=str)


def own_tiles(rung: str, **tiles: int) -> dict[str, int]:
    return {name: value for name, value in (TILES | tiles).items() if name in find(rung).tiles}


@cache
def made(rung: str, size: tuple[int, int], block: int = 32):
    """Returns (scene, executed program, inputs) of a rung."""
    shape, tiles = ladder_of(rung).shape(*size), own_tiles(rung, BLOCK=block)
    inputs = inputs_of(ladder_of(rung), shape, find(rung).build(shape, find(rung).check(shape, tiles)))
    return cross_entropy_scene(rung, shape, tiles, inputs), executed(rung, shape, tiles, inputs), inputs


@pytest.mark.parametrize("rung", [*VIEWS, "cross-entropy-step/cluster"])
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
    barriers = sum("Barrier" in scene.caption(t) for t in range(scene.steps))
    code = [sources.code(launch.source) for launch in program.launches]
    assert all(text.count("__syncthreads") <= 1 for text in code)
    assert barriers == sum(source.text.count(" = over_block(") for source in (scene.source, *scene.next_sources))


@every_rung
def test_the_bytes_are_those_that_the_measured_kernels_move(rung):
    """Each thread's accesses count, also those of one address by all threads of a block. Nothing beside them is read."""
    scene, program, inputs = made(rung, (4, 131))
    session = emulator.Session(program.program, dict(inputs), Options(count=True))
    session.verify_run()
    read, written = (r.values[-1] for r in scene.readings[:2])
    assert (read, written) == tuple(session.counters.total[f"bytes_{op}"] for op in ("ld", "st"))
    shape = ladder_of(rung).shape(4, 131)
    threads = {"elements": shape.elements, "pieces": 4 * 2 * 32}.get(rung.partition("/")[2], 4 * 32)
    predicted = find(rung).cost(shape, program.program).moved_bytes
    few = 4 * (4 * shape.M + 2 * 3 * threads)  # label, g and so on, which each thread of up to two launches reads
    assert predicted - few <= read + written <= predicted + few


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


def test_the_gradient_has_the_columns_of_the_loss_in_the_same_iterations():
    """The same columns in the same iterations, read forward and written backward."""
    forward, _, _ = made("cross-entropy/online", (2, 40))
    backward, _, _ = made("cross-entropy-backward/rows", (2, 40))
    reads = next(read for read in forward.reads if read.source == "x")
    iterations = [reads.cells[a:b].tolist() for a, b in zip(reads.start, reads.start[1:], strict=False) if b - a > 1]
    (write,) = [w for w in backward.writes if w.target == "dx"]
    steps = np.resize(write.steps, len(write.cells))
    written = [np.sort(write.cells[steps == step]).tolist() for step in np.unique(steps)]
    assert iterations == written[:-1]  # the last step is that of the other rows


def test_too_many_logits_are_refused():
    rung, shape = "cross-entropy/online", ladder_of("cross-entropy/online").shape(100, 100)
    with pytest.raises(RuleError, match="at most 4,096 logits"):
        cross_entropy_scene(rung, shape, {}, {})


def test_each_warp_stores_what_its_lanes_have():
    scene, _, _ = made("cross-entropy/online", (2, 200), 128)
    (barrier,) = [t for t in range(scene.steps) if "Barrier" in scene.caption(t)]
    for name in ("m", "l"):
        np.testing.assert_array_equal(scene.cells(f"warp_{name}", barrier), scene.cells(name, barrier)[::32])
