"""Timelines of GEMM: every column is what the emulator executed, in this order, in every warp."""

from __future__ import annotations

import pytest

from kernels.gemm.shape import GemmShape
from kernels.ladders import find
from tests.helpers.timelines import assert_folded, assert_pictured, assert_proved, assert_safe
from tests.visuals.gemm.test_scene import DTYPES, RUNGS, smallest
from visuals.gemm.plan import plan_of
from visuals.gemm.timeline import has_timeline, order_of, regions_of, shortened, timeline_scene, trace_of
from visuals.scene.program_order import folded, program_order

TILED = [rung for rung in RUNGS if has_timeline(rung)]
PIPELINES = ("gemm/register-pipeline", "gemm/grouped-order")
OVERLAPPING = ("gemm/double-buffer", "gemm/warp-tile", *PIPELINES, "gemm/mma-sync")
ELEMENT = {"fp32": 4, "fp16": 2, "int8": 1}


def case(rung, tiles_along_k, stages=0, short=False):
    """Returns (shape, plan) of a block whose K loop has some tiles, the last one `short` or whole."""
    tiles = smallest(rung) | ({"STAGES": stages} if stages else {})
    dtype = DTYPES.get(rung, "fp32")
    plan = plan_of(GemmShape(8, 8, 8, dtype=dtype), rung, tiles)
    s = GemmShape(plan.BM, plan.BN, tiles_along_k * plan.BK - short * plan.BK // 2, dtype=dtype)
    return s, plan_of(s, rung, tiles)


def tile_of(s, plan):
    """Returns the tile of a byte of A [M, K] or B [K, N]. Element 0 belongs to none: wmma reads it for elements outside."""
    item = ELEMENT[s.dtype]

    def find_tile(name, byte):
        k = {"A": byte // item % s.K, "B": byte // item // s.N}.get(name)
        return None if k is None or not byte else k // plan.BK + 1

    return find_tile


def stages_of(rung):
    return sorted(find(rung).tiles.get("STAGES", (0,)))


@pytest.mark.parametrize("rung", TILED)
@pytest.mark.parametrize("most", [False, True], ids=["fewest stages", "most stages"])
def test_the_columns_are_what_each_warp_executed(rung, most):
    stages = stages_of(rung)
    if most and len(stages) == 1:
        return
    s, plan = case(rung, 5, stages[-most], short=True)
    trace = trace_of(s, rung, plan)
    order = program_order(trace, regions_of(plan), 5)
    assert_proved(order, trace, regions_of(plan), tile_of(s, plan))
    assert_safe(trace, regions_of(plan), tile_of(s, plan))
    assert_overlaps(order, rung, plan)


def assert_overlaps(order, rung, plan):
    """Checks that the copy of the next tile begins before the product of a tile ends, exactly if there are buffers for both."""
    fills = {f.tile: f for f in order.fills}
    for tile in range(1, 5):
        overlaps = fills[tile + 1].start <= fills[tile].uses[-1]
        assert overlaps == (rung in OVERLAPPING)
        assert fills[tile].lane == (tile - 1) % plan.stages
        assert fills[tile].is_async == (rung in OVERLAPPING)


@pytest.mark.parametrize(
    ("rung", "stages"),
    [("gemm/shared-tile", 0), ("gemm/double-buffer", 2), ("gemm/grouped-order", 3), ("gemm/mma-sync", 4)],
)
def test_a_long_loop_is_folded_as_a_whole_run_shows(rung, stages):
    s, plan = case(rung, 13, stages, short=True)
    cut = shortened(s, plan)
    assert cut.K < s.K
    order = folded(order_of(cut, rung, plan), 13, -(-cut.K // plan.BK))
    assert_folded(order, order_of(s, rung, plan))
    assert_pictured(timeline_scene(s, rung, plan.tiles), order)


def test_rows_that_are_not_aligned_are_copied_by_plain_loads():
    s, plan = case("gemm/mma-sync", 5)
    s = s.with_(K=s.K - 1)
    order = order_of(s, "gemm/mma-sync", plan_of(s, "gemm/mma-sync", plan.tiles))
    assert not any(f.is_async for f in order.fills) and not any(slot.awaited for slot in order.slots)


def test_captions_name_what_runs_meanwhile():
    s, plan = case("gemm/double-buffer", 5, 3)
    scene = timeline_scene(s, "gemm/double-buffer", plan.tiles)
    captions = [scene.caption(n) for n in range(scene.steps)]
    assert captions[0] == "The threads start to copy tile 1 to buffer 0 of shared memory. They do not wait for it."
    assert captions[5].endswith("Meanwhile the copies of tile 2 and tile 3 can run.")
    assert captions[7].endswith("Now each warp can read tile 2, and tile 1 may be overwritten.")
    assert "order, not duration" in scene.order_note
