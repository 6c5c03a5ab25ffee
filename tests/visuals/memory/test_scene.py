"""Scenes of threads and memory: cells equal the kernels' outputs, and who computes what and its cost is what was counted."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.ladders import find
from kernels.memory.shape import AddShape, BanksShape, BranchShape, LayoutShape, StrideShape
from kernels.runner import run
from tests.helpers.offenders import every
from tests.helpers.scenes import counted_otherwise
from visuals.memory.scene import BLOCK, inputs, memory_scene
from visuals.memory.views import LINES

MAPPINGS = ("vector", "matrix", "matrix-transposed")
BRANCHES = [
    next(n for n, line in enumerate(sources.text("memory/07_branch.cu").splitlines(), 1) if mark in line)
    for mark in LINES[2:4]
]


def run_watched(rung, shape, tiles=BLOCK):
    """Returns the result of a rung on the numbers that its scene shows."""
    return run(rung, shape, inputs(rung, shape, tiles), engine="emulator", tiles=tiles, trace=0)


def active(scene, t):
    return [lane for lane in range(32) if int(scene.lanes.mask[t]) >> lane & 1]


def last(scene, label):
    return next(r.values[-1] for r in scene.readings if r.label == label)


@settings(max_examples=20, deadline=None)
@given(M=st.integers(1, 20), N=st.integers(1, 40), mapping=st.sampled_from(MAPPINGS), tile=st.sampled_from((8, 16)))
def test_add_ends_in_the_kernels_output_and_every_element_has_one_thread(M, N, mapping, tile):
    shape, rung = AddShape(M, N), f"add/{mapping}"
    tiles = {"BLOCK": 64} if mapping == "vector" else {"TILE": tile}
    scene = memory_scene(rung, shape, tiles)
    result = run_watched(rung, shape, tiles)
    np.testing.assert_array_equal(scene.cells("C"), result.output.ravel())
    block, warp, lane = (scene.cells(f"of_{name}").astype(int) for name in ("block", "warp", "lane"))
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
    assert last(scene, "sectors read") == counted["sectors_ld"]
    assert last(scene, "sectors written") == counted["sectors_st"]
    threads = int(np.prod(find(rung).build(shape, tiles).launches[0].grid)) * (64 if "TILE" not in tiles else tile**2)
    assert scene.steps == threads // 32  # each warp is a step


def test_warp_without_elements_is_idle_at_the_bounds_check():
    scene = memory_scene("add/matrix", AddShape(12, 20), {"TILE": 16})
    idle = [t for t in range(scene.steps) if "return at the bounds check" in scene.caption(t)]
    assert len(idle) == 4 and {scene.source_at(t)[1] for t in idle} == {21}
    assert "if (row >= M || col >= N) return;" in sources.text("memory/02_matrix_add.cu").splitlines()[20]


@pytest.mark.parametrize("stride", [1, 2, 3, 7, 8, 9, 31, 32])
def test_one_step_per_sector(stride):
    scene = memory_scene("stride/copy", StrideShape(32, stride))
    assert counted_otherwise(scene) == []
    x = next(group for group in scene.groups if "x" in [name for row in group.rows for name in row])
    assert x.aligned  # the stage leaves a row of x in one piece: 128 bytes, as its note says
    result = run_watched("stride/copy", StrideShape(32, stride))
    assert scene.steps - 1 == result.counters.total["sectors_ld"] == last(scene, "sectors fetched")
    np.testing.assert_array_equal(scene.cells("y"), result.output)
    np.testing.assert_array_equal(scene.cells("v"), result.output)
    x, used = scene.cells("x").reshape(-1, 8), scene.cells("s").reshape(-1, 8)
    elements = np.arange(32) * stride
    for t, sector in enumerate(np.unique(elements // 8)):
        of_sector = elements[elements // 8 == sector]
        assert active(scene, t) == list(of_sector // stride)
        np.testing.assert_array_equal(np.flatnonzero(~np.isnan(used[t])), of_sector % 8)
        np.testing.assert_array_equal(used[t][of_sector % 8], x[sector][of_sector % 8])
    assert f"{100 * 128 / (32 * (scene.steps - 1)):.4g} %" in scene.caption(scene.steps - 1)


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("stride", [1, 3, 8, 12, 32])
def test_one_step_per_wavefront(stride, pad):
    rung = "banks/padded" if pad else "banks/plain"
    scene = memory_scene(rung, BanksShape(32, stride))
    assert counted_otherwise(scene) == []
    result = run_watched(rung, BanksShape(32, stride))
    total = result.counters.total
    wavefronts = scene.steps - 3
    assert wavefronts * total["shared_requests_ld"] == total["wavefronts_ld"] == last(scene, "passes")
    np.testing.assert_array_equal(scene.cells("y"), result.output)
    trace = result.trace[0]
    table = next(n for n, b in enumerate(trace.buffers) if b not in ("x", "y"))
    first = np.flatnonzero((trace.buffer == table) & ~trace.write)[:32]
    words = trace.element[first].astype(int)
    np.testing.assert_array_equal(scene.cells("v", wavefronts), trace.value[first])  # by lane
    np.testing.assert_array_equal(scene.cells("v"), result.output)
    m, passes = scene.cells("m"), scene.cells("g").reshape(wavefronts, 32)
    np.testing.assert_array_equal(m[words], trace.value[first])
    lanes_of_wavefront = [active(scene, t) for t in range(1, 1 + wavefronts)]
    assert sorted(lane for lanes in lanes_of_wavefront for lane in lanes) == list(range(32))
    for t, lanes in enumerate(lanes_of_wavefront, 1):
        assert len(set(words[lanes] % 32)) == len(lanes)  # no two words of one bank in a wavefront
        np.testing.assert_array_equal(passes[t - 1][words[lanes] % 32], trace.value[first][lanes])
        assert np.isfinite(passes[t - 1]).sum() == len(lanes)
        word = int(re.search(r"reads word (\d+)", scene.caption(t))[1])
        assert word in words[lanes] and f"mod 32 = {word % 32}." in scene.caption(t)
        assert ("one lane gets" in scene.caption(t)) == (len(lanes) == 1 and t > 1)
    if pad:  # the padding after a row is never written
        assert np.isnan(m[32]) or m.size <= 32


@settings(max_examples=20, deadline=None)
@given(
    shape=st.builds(LayoutShape, st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 5)),
    along=st.sampled_from("wc"),
)
def test_addresses_equal_the_output(shape, along):
    scene = memory_scene(f"layout/along-{along}", shape)
    output = run_watched(f"layout/along-{along}", shape).output
    np.testing.assert_array_equal(scene.cells("b"), output.ravel())
    assert scene.steps == shape.elements
    source, target, from_previous, _ = (reading.values.astype(int) for reading in scene.readings)
    n, c, h, w = np.unravel_index(source, tuple(shape.params().values()))
    assert (((n * shape.H + h) * shape.W + w) * shape.C + c == target).all()
    order = source if along == "w" else target
    assert (order == np.arange(shape.elements)).all()  # neighbouring threads, neighbouring addresses
    assert from_previous.sum() == source[-1]
    assert f"byte {4 * source[-1]}" in scene.caption(scene.steps - 1)


@every("rounds", [1, 2, 3])
@every("name", ["lanes", "warps"])
def test_branches_end_in_the_kernels_output_and_each_lane_runs_its_branch(name, rounds):
    scene = memory_scene(f"branch/{name}", BranchShape(64, rounds))
    result = run_watched(f"branch/{name}", BranchShape(64, rounds))
    np.testing.assert_array_equal(scene.cells("y"), result.output)
    shown = [t.name for t in scene.tensors if t.name.startswith("warp")]
    assert len(shown) == (1 if name == "lanes" else 2)
    for n, warp in enumerate(shown):
        run_by = scene.cells(warp).reshape(-1, 32)
        for lane in range(32):
            is_even = lane % 2 == 0 if name == "lanes" else n == 0
            own, other = BRANCHES if is_even else reversed(BRANCHES)
            assert (run_by[:, lane] == own).sum() == rounds
            assert not (run_by[:, lane] == other).any()


@pytest.mark.parametrize(("name", "masked"), [("lanes", 64), ("warps", 0)])
def test_masked_lanes_are_those_of_the_trace(name, masked):
    scene = memory_scene(f"branch/{name}", BranchShape(64, 2))
    trace = run_watched(f"branch/{name}", BranchShape(64, 2)).trace[0]
    lines = {
        line: {int(trace.masks[k, 0]) for k in range(trace.steps) if trace.line[k] == n}
        for n, line in enumerate(trace.lines)
        if line
    }
    rows = scene.cells("warp0").reshape(-1, 32)
    for t, cells in enumerate(rows):
        assert active(scene, t) == list(np.flatnonzero(np.isfinite(cells)))
        line = scene.source_at(t)[1]
        assert line == np.nanmax(cells)
        assert int(scene.lanes.mask[t]) in next(masks for key, masks in lines.items() if key.number == line)
    assert scene.readings[0].values[-1] == 4 and last(scene, "lanes masked, added up") == masked
