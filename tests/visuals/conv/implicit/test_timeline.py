"""Timelines of implicit GEMM: every column is what the emulator executed, in this order, in every warp."""

from __future__ import annotations

import pytest

from kernels.conv.shape import ConvShape
from kernels.ladders import find
from tests.helpers.timelines import assert_folded, assert_pictured, assert_proved, assert_safe
from visuals.conv.implicit.plan import RUNGS, Plan
from visuals.conv.implicit.timeline import order_of, regions_of, shortened, timeline_scene, trace_of
from visuals.scene.program_order import folded, program_order


def plan_of(rung, channels, stages):
    """Returns the plan of 3 x 3 filters on maps of 8 x 8, with small tiles."""
    s = ConvShape(1, channels, 8, 8, 32, 3, 3, pad=1)
    tiles = {"BM": 32, "BN": 32, "BK": 8, "TM": 4, "TN": 4, "STAGES": stages}
    return Plan(s, rung, find(rung).check(s, tiles))


def tile_of(plan):
    """Returns the tile of a byte of the filters [K, C * R * S]. Those of pixels follow from the filters before them."""
    return lambda name, byte: byte // 4 % plan.s.CRS // plan.BK + 1 if name == "w" else None


@pytest.mark.parametrize(("rung", "stages"), [(RUNGS[0], 2), (RUNGS[1], 3)])
def test_the_columns_are_what_each_warp_executed(rung, stages):
    plan = plan_of(rung, 4, stages)
    trace = trace_of(plan)
    order = program_order(trace, regions_of(plan), plan.iterations)
    assert_proved(order, trace, regions_of(plan), tile_of(plan))
    assert_safe(trace, regions_of(plan), tile_of(plan))
    assert_pictured(timeline_scene(plan.s, rung, plan.tiles), order)
    fills = {f.tile: f for f in order.fills}
    for tile in range(1, plan.iterations):
        assert fills[tile + 1].start < fills[tile].uses[0] and fills[tile].lane == (tile - 1) % stages


@pytest.mark.parametrize("stages", [2, 4])
def test_a_long_loop_is_folded_as_a_whole_run_shows(stages):
    plan = plan_of(RUNGS[1], 13, stages)
    cut = shortened(plan)
    assert cut.iterations < plan.iterations
    order = folded(order_of(cut), plan.iterations, cut.iterations)
    assert_folded(order, order_of(plan))
    assert_pictured(timeline_scene(plan.s, plan.rung, plan.tiles), order)


def test_copies_beyond_the_last_tile_are_named():
    plan = plan_of(RUNGS[1], 4, 3)
    scene = timeline_scene(plan.s, plan.rung, plan.tiles)
    captions = [scene.caption(n) for n in range(scene.steps)]
    assert "The threads write only zeros to buffer 2 of shared memory: there is no tile 6." in captions
    assert captions[-1].endswith("No other tile is being copied.")
