"""The stage in warp order: every cell is written at the step at which the emulated kernel wrote it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.conv import reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.ladders import find
from tests.helpers.shapes import conv_shapes
from visuals.conv.im2col.scene import im2col_scene
from visuals.conv.im2col.warps import blocks, in_warp_order, stores_of, why_not
from visuals.conv.part import part_of
from visuals.scene.requests import sectors


def scene_and_trace(s: ConvShape):
    """Returns (scene in explaining order, trace, counters) of an image of whole numbers."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 10, s.x_shape).astype("f4")
    w = rng.integers(-2, 3, s.w_shape).astype("f4")
    y = reference.conv2d(s, x.astype(float), w.astype(float))[0].astype("f4")
    rung = find("conv/im2col-gemm")
    trace, counters = emulator.trace_launch(rung.build(s, rung.default_tiles), 0, {"x": x, "w": w})
    part = part_of(s)
    return im2col_scene(s, part, x, w, y[: part.K]), trace, counters


@settings(max_examples=8)
@given(conv_shapes(max_extent=3).map(lambda s: s.with_(N=1)))
def test_cells_equal_the_stores_of_the_kernel(s):
    scene, trace, counters = scene_and_trace(s)
    warps = in_warp_order(scene, s, trace, counters, blocks(s))
    written = {}  # stored values of the emulated block, by element
    at = trace.write & (np.array(trace.buffers)[trace.buffer] == "col")
    for element, value in zip(trace.element[at], trace.value[at], strict=True):
        written[int(element)] = value
    cells = warps.cells("D")
    assert written and all(cells[element] == value for element, value in written.items())
    np.testing.assert_array_equal(cells, scene.cells("D"))
    assert np.isnan(warps.cells("C", warps.steps - 3)).all()  # the product is a second launch
    np.testing.assert_array_equal(warps.cells("C", warps.steps - 2), scene.cells("C"))
    assert np.isnan(warps.cells("y", warps.steps - 2)).all()
    np.testing.assert_array_equal(warps.cells("y"), scene.cells("y"))
    assert np.isfinite(warps.cells("D", warps.steps - 1)).all()


@pytest.mark.parametrize("s", [CONV_PRESETS["toy"].shape, ConvShape(1, 3, 10, 10, 2, 3, 3, stride=2, pad=1)])
def test_sectors_add_up_to_the_counters(s):
    _, trace, counters = scene_and_trace(s)
    assert blocks(s) == 1
    stores = stores_of(trace)
    assert sum(sectors(store.cells) for store in stores) == counters.total["sectors_st"]
    assert sum(sectors(store.read) for store in stores if len(store.read)) == counters.total["sectors_ld"]
    assert len(stores) == counters.total["requests_st"]


def test_first_warp_of_the_toy_writes_a_row():
    s = CONV_PRESETS["toy"].shape
    scene, trace, counters = scene_and_trace(s)
    warps = in_warp_order(scene, s, trace, counters, blocks(s))
    first = np.flatnonzero(np.isfinite(warps.cells("D", 0)))
    assert first.tolist() == list(range(32))
    assert warps.caption(0).startswith(
        "Warp 0 stores row 0, columns 0 to 31 of the data matrix. Active lanes: 32. Sectors (32 bytes) touched: 4"
    )
    assert int(warps.lanes.mask[0]) == 0xFFFFFFFF and int(warps.lanes.mask[1]) == 0xF
    line = warps.source.text.splitlines()[int(warps.source.lines[0]) - warps.source.first]
    assert "column[" in line and "st " in warps.source.notes[int(warps.source.lines[0])]
    assert trace.nbytes < 200_000


def test_why_not_for_large_shapes():
    s = CONV_PRESETS["vgg-conv1_2"].shape
    assert "shown in part" in why_not(s, part_of(s))
    toy = CONV_PRESETS["toy"].shape
    assert why_not(toy, part_of(toy)) == ""


def test_other_blocks_have_a_caption():
    s = ConvShape(1, 1, 32, 32, 2, 3, 3)
    scene, trace, counters = scene_and_trace(s)
    warps = in_warp_order(scene, s, trace, counters, blocks(s))
    assert "The other 3 blocks" in warps.caption(warps.steps - 3)
    assert "second launch" in warps.caption(warps.steps - 2)
    assert "no bytes move" in warps.caption(warps.steps - 1)


def test_the_product_lights_a_line_of_its_own_kernel():
    s = CONV_PRESETS["toy"].shape
    scene, trace, counters = scene_and_trace(s)
    warps = in_warp_order(scene, s, trace, counters, blocks(s))
    copying, _ = warps.source_at(warps.steps - 3)
    source, line = warps.source_at(warps.steps - 2)
    assert (copying.file, source.file) == ("02_im2col.cu", "03_gemm.cu")
    assert "sum += tile_a[" in source.text.splitlines()[line - source.first]
    assert warps.source_at(warps.steps - 1) == (source, 0)
