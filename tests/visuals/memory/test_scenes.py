"""Scenes of threads and memory: cells equal the kernels' outputs, addresses those of the trace."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.memory import ladder as memory_ladder
from kernels.memory.shape import AddShape, BanksShape, BranchShape, LayoutShape, StrideShape
from kernels.model.program import RuleError
from kernels.runner import run
from tests.helpers.scenes import counted_otherwise
from visuals.memory import branches
from visuals.memory import sectors as memory_sectors
from visuals.memory import threads as memory_threads
from visuals.memory.branches import branches_scene
from visuals.memory.layout import layout_scene

MAPPINGS = ("vector", "matrix", "matrix-transposed")


def final(scene, name):
    return scene.cells(name)


def run_watched(rung, shape, **settings):
    """Returns the result and the trace of a rung on the numbers that its scene shows."""
    inputs = memory_threads.traced(rung, shape, (("BLOCK", 64),)).inputs
    return run(rung, shape, inputs, engine="emulator", trace=0, **settings)


def active(scene, t):
    return [lane for lane in range(32) if int(scene.lanes.mask[t]) >> lane & 1]


@settings(max_examples=20)
@given(M=st.integers(1, 20), N=st.integers(1, 40), mapping=st.sampled_from(MAPPINGS), tile=st.sampled_from((8, 16)))
def test_add_ends_in_the_kernels_output_and_every_element_has_one_thread(M, N, mapping, tile):
    shape, rung = AddShape(M, N), f"add/{mapping}"
    tiles = {"BLOCK": 64} if mapping == "vector" else {"TILE": tile}
    scene = memory_threads.add_scene(rung, shape, tiles)
    inputs = memory_threads.traced(rung, shape, tuple(sorted(tiles.items()))).inputs
    result = run(rung, shape, inputs, engine="emulator", tiles=tiles)
    np.testing.assert_array_equal(final(scene, "C"), result.output.ravel())
    block, warp, lane = (final(scene, name).astype(int) for name in ("block", "warp", "lane"))
    i = np.arange(M * N)
    thread = 32 * warp + lane
    if mapping == "vector":
        assert (64 * block + thread == i).all()
    else:
        blocks = -(-(N if mapping == "matrix" else M) // tile)
        x, y = block % blocks * tile + thread % tile, block // blocks * tile + thread // tile
        row, col = (y, x) if mapping == "matrix" else (x, y)
        assert (row * N + col == i).all()
    counted = result.counters.total
    readings = {r.label: r.values[-1] for r in scene.readings}
    assert readings["sectors read"] == counted["sectors_ld"] and readings["sectors written"] == counted["sectors_st"]


def test_warp_without_elements_is_idle_at_the_bounds_check():
    scene = memory_threads.add_scene("add/matrix", AddShape(12, 20), {"TILE": 16})
    idle = [t for t in range(scene.steps) if not scene.lanes.mask[t]]
    assert len(idle) == 4 and all("return at the bounds check" in scene.caption(t) for t in idle)
    line = scene.source.text.splitlines()[int(scene.source.lines[idle[0]]) - scene.source.first]
    assert "return" in line


@pytest.mark.parametrize("stride", [1, 2, 3, 7, 8, 9, 31, 32])
def test_one_step_per_sector(stride):
    scene = memory_sectors.stride_scene(stride)
    assert counted_otherwise(scene) == []
    x = next(group for group in scene.groups if "x" in [name for row in group.rows for name in row])
    assert x.aligned or stride == 1  # the stage leaves a row of x in one piece: 128 bytes, as its note says
    result = run_watched("stride/copy", StrideShape(32, stride))
    assert scene.steps - 1 == result.counters.total["sectors_ld"]
    np.testing.assert_array_equal(final(scene, "y"), result.output)
    np.testing.assert_array_equal(final(scene, "v"), result.output)
    x, fetched = final(scene, "x"), final(scene, "s").reshape(-1, 8)
    trace = result.trace[0]
    elements = trace.element[~trace.write].astype(int)
    for t in range(scene.steps - 1):
        sector = x.reshape(-1, 8)[np.unique(elements // 8)[t]]
        np.testing.assert_array_equal(fetched[t], sector)
        assert active(scene, t) == list(np.flatnonzero(elements // 8 == np.unique(elements // 8)[t]))
    assert f"{100 * 128 / (32 * (scene.steps - 1)):.4g}" in scene.caption(scene.steps - 1)


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("stride", [1, 3, 8, 12, 32])
def test_one_step_per_wavefront(stride, pad):
    scene = memory_sectors.banks_scene(stride, pad)
    assert counted_otherwise(scene) == []
    rung = "banks/padded" if pad else "banks/plain"
    result = run_watched(rung, BanksShape(32, stride))
    total = result.counters.total
    wavefronts = scene.steps - 2
    assert wavefronts * total["shared_requests_ld"] == total["wavefronts_ld"]
    np.testing.assert_array_equal(final(scene, "y"), result.output)
    trace = result.trace[0]
    table = next(n for n, b in enumerate(trace.buffers) if b not in ("x", "y"))
    first = np.flatnonzero((trace.buffer == table) & ~trace.write)[:32]
    np.testing.assert_array_equal(final(scene, "v"), trace.value[first])  # by lane
    m = final(scene, "m")
    np.testing.assert_array_equal(m[trace.element[first].astype(int)], trace.value[first])
    lanes_of_wavefront = [active(scene, t) for t in range(1, scene.steps - 1)]
    assert sorted(lane for lanes in lanes_of_wavefront for lane in lanes) == list(range(32))
    for lanes in lanes_of_wavefront:  # no two words of one bank in a wavefront
        banks = trace.element[first][lanes] % 32
        assert len(set(banks)) == len(lanes)
    words = [scene.caption(t) for t in range(1, scene.steps - 1)]
    assert all(
        ("one lane gets" in text) == (len(lanes) == 1) for text, lanes in zip(words, lanes_of_wavefront, strict=True)
    )
    if wavefronts > 1:
        bank, words_of_bank = map(int, re.search(r"Bank (\d+) must deliver (\d+) words", scene.caption(0)).groups())
        assert len({e for e in trace.element[first] if e % 32 == bank}) == words_of_bank == wavefronts
    if pad:  # the padding after a row is never written
        assert np.isnan(m[32]) or m.size <= 32


@settings(max_examples=20)
@given(
    shape=st.builds(LayoutShape, st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 5)),
    along=st.sampled_from("wc"),
)
def test_addresses_equal_the_trace(shape, along):
    scene = layout_scene(f"layout/along-{along}", shape)
    output = run_watched(f"layout/along-{along}", shape).output
    np.testing.assert_array_equal(final(scene, "b"), output.ravel())
    assert scene.steps == shape.elements
    n, c, h, w, *_, source, target, byte_from, byte_to = np.array(scene.captions.args).T
    np.testing.assert_array_equal(np.ravel_multi_index((n, c, h, w), tuple(shape.params().values())), source)
    C, H, W = shape.C, shape.H, shape.W
    assert (((n * H + h) * W + w) * C + c == target).all()
    assert (byte_from == 4 * source).all() and (byte_to == 4 * target).all()
    order = source if along == "w" else target
    assert (order == np.arange(shape.elements)).all()  # neighbouring threads, neighbouring addresses


def test_too_large_shapes_are_refused():
    with pytest.raises(RuleError, match=r"at most 2,048 elements are shown, 64x64 has 4,096"):
        memory_threads.add_scene("add/vector", AddShape(64, 64), {"BLOCK": 64})
    with pytest.raises(RuleError, match="at most 64 blocks are traced, add/matrix launches 128"):
        memory_threads.traced("add/matrix", AddShape(1, 1024), (("TILE", 8),))
    with pytest.raises(RuleError, match="at most 512 elements"):
        layout_scene("layout/along-w", memory_ladder.LAYOUT.presets["layout-photos"].shape)


# -- branches -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("name", ["lanes", "warps"])
def test_branches_end_in_the_kernels_output_and_each_lane_runs_its_branch(name, rounds):
    scene = branches_scene(name, rounds)
    result = run_watched(f"branch/{name}", BranchShape(64, rounds))
    np.testing.assert_array_equal(final(scene, "y"), result.output)
    x, even = final(scene, "x").astype(np.float64), np.arange(64) % 2 == 0
    first = sum(x * 0.5**k for k in range(rounds))
    second = -sum(x * 0.25**k for k in range(rounds))
    np.testing.assert_allclose(final(scene, "y"), np.where(even, first, second), rtol=1e-5)
    lines = {kind: line for line, kind in branches.LINES.items()}
    shown = [t.name for t in scene.tensors if t.name.startswith("warp")]
    assert len(shown) == (1 if name == "lanes" else 2)
    for n, warp in enumerate(shown):
        run_by = final(scene, warp).reshape(-1, 32)
        for lane in range(32):
            is_even = lane % 2 == 0 if name == "lanes" else n == 0
            own, other = (branches.FIRST, branches.SECOND) if is_even else (branches.SECOND, branches.FIRST)
            assert (run_by[:, lane] == lines[own]).sum() == rounds
            assert not (run_by[:, lane] == lines[other]).any()


@pytest.mark.parametrize(("name", "idle"), [("lanes", 16), ("warps", 0)])
def test_masked_lanes_are_those_of_the_trace(name, idle):
    scene = branches_scene(name, 2)
    trace = run_watched(f"branch/{name}", BranchShape(64, 2), tiles={"BLOCK": 64}).trace[0]
    counted = 0
    for t in range(scene.steps):
        cells = final(scene, "warp0").reshape(-1, 32)[t]
        assert active(scene, t) == list(np.flatnonzero(np.isfinite(cells)))
        line = int(np.nanmax(cells))
        at = [k for k in range(trace.steps) if trace.lines[trace.line[k]] and trace.lines[trace.line[k]].number == line]
        assert int(scene.lanes.mask[t]) in {int(trace.masks[k, 0]) for k in at}
        assert scene.source_at(t)[1] == line
        if branches.LINES[line] in (branches.FIRST, branches.SECOND):
            assert 32 - len(active(scene, t)) == idle
            counted += 1
    assert counted == (4 if name == "lanes" else 2) == scene.readings[0].values[-1]
    assert f"2 rounds took {counted} moments" in scene.caption(scene.steps - 1)


def test_a_wrong_mask_is_noticed(monkeypatch):
    right = branches.moments

    def swapped(trace, warp):
        return [replace(m, mask=m.mask ^ 0xFFFFFFFF) if m.kind == branches.FIRST else m for m in right(trace, warp)]

    monkeypatch.setattr(branches, "moments", swapped)
    with pytest.raises(AssertionError):
        test_branches_end_in_the_kernels_output_and_each_lane_runs_its_branch("lanes", 2)
