"""GEMM as a timeline: the copies of tiles of A and B, their products, waits and barriers of block 0.

The emulator executes the block at its tile sizes. Only the K loop is cut, by whole tiles.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.engines.emulator.trace import BlockTrace
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.program import INPUT
from visuals.gemm.plan import PLANS, Plan, plan_of, why_not
from visuals.gemm.warps import traced
from visuals.scene.program_order import ProgramOrder, Region, folded, program_order, tiles_to_run
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of
from visuals.scene.tile_timeline import Stream, TileTimeline, Use

COPY, MULTIPLY = "copy", "multiply"
READ = mark("The warps read [tile {tile}](input) and add its products to their [sums](output).")
READ_AHEAD = mark("The warps read parts of [tile {tile}](input). They multiply each part while they read the next one.")
ALIGNMENT = 8  # elements: rows of B may begin on 16 bytes or not, which decides how they are copied


def timeline_scene(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the timeline of block 0 of a rung with tiles in shared memory. ValueError if `why_not` gives a reason or there
    are no tiles. Raises CompilerMissing if the kernel must be compiled and there is no compiler."""
    if reason := why_not(shape, rung, tiles):
        raise ValueError(reason)
    plan = plan_of(shape, rung, tiles)
    if not has_timeline(rung):
        raise ValueError(f"{rung} has no tiles in shared memory")
    cut, count = shortened(shape, plan), -(-shape.K // plan.BK)
    run = -(-cut.K // plan.BK)
    order = folded(order_of(cut, rung, plan), count, run)
    stream = Stream(COPY, mark("copy A and B"), "input", plan.stages, mark("[tile {tile}](input)"))
    use = Use(MULTIPLY, mark("multiply"), "output", READ_AHEAD if plan.owner == "warp" and plan.stages > 1 else READ)
    source = source_of(
        plan.file,
        (plan.marks[1], plan.marks[3]),
        np.arange(2),
        detail=resources(find(rung).build(cut, plan.tiles).launch()),
    )
    sizes = ",".join(f"{k}={v}" for k, v in plan.tiles.items())
    timeline = TileTimeline(order, (stream,), (use,), count, run)
    return timeline.scene(f"{rung} {shape} {sizes} timeline", tr(find(rung).title), source)


def has_timeline(rung: str) -> bool:
    """Returns whether a rung copies tiles to shared memory."""
    return rung in PLANS and PLANS[rung](find(rung).default_tiles).As is not None


def shortened(s: GemmShape, plan: Plan) -> GemmShape:
    """Returns the shape of block 0 alone, with as many tiles along K as must run. Its rows are aligned as before."""
    count = -(-s.K // plan.BK)
    K = s.K - plan.BK * (count - tiles_to_run(count, plan.stages))
    N = s.N if s.N < plan.BN + ALIGNMENT else plan.BN + s.N % ALIGNMENT
    return s.with_(M=min(s.M, plan.BM), N=N, K=K)


def order_of(s: GemmShape, rung: str, plan: Plan) -> ProgramOrder:
    """Returns the order of block 0, from its trace."""
    return program_order(trace_of(s, rung, plan), regions_of(plan), -(-s.K // plan.BK))


def trace_of(s: GemmShape, rung: str, plan: Plan) -> BlockTrace:
    """Returns the trace of block 0. The order does not depend on values: all are zero."""
    program = find(rung).build(s, find(rung).check(s, plan.tiles))
    zeros = {b.name: np.zeros(b.shape, b.dtype) for b in program.of_role(INPUT)}
    return traced(s, rung, plan.tiles, zeros, values=False)[0]


def regions_of(plan: Plan) -> list[Region]:
    """Returns where the tiles of A and B are in shared memory, in each of the buffers."""
    regions = []
    for layout in filter(None, (plan.As, plan.Bs)):
        size = layout.rows * layout.cols * layout.item
        for lane in range(plan.stages):
            start = layout.start + lane * layout.stride
            regions.append(Region(layout.buffer, start, start + size, COPY, lane, MULTIPLY))
    return regions
