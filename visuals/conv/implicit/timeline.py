"""Implicit GEMM as a timeline: the copies of tiles of filters and pixels, their products, waits and barriers of block 0.

The emulator executes the block at its tile sizes. Channels, images and filters are cut to what the order needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from kernels.conv.implicit import PART
from kernels.conv.shape import ConvShape
from kernels.engines import emulator
from kernels.engines.emulator.trace import BlockTrace
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.model.program import INPUT, Program
from visuals.conv.implicit.plan import Plan, why_not
from visuals.scene.program_order import ProgramOrder, Region, folded, program_order, tiles_to_run
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of
from visuals.scene.tile_timeline import Stream, TileTimeline, Use

COPY, MULTIPLY = "copy", "multiply"
STREAM = mark("copy filters and pixels")
TILE = mark("[tile {tile}](input)")
USE = mark("The warps read [tile {tile}](input) and add its products to their [sums](output).")
PARTS_NOTE = mark("After every {terms} terms, the sums are also added to the output. No column shows this.")


def timeline_scene(s: ConvShape, rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the timeline of block 0 of a rung, with all its tile sizes. ValueError if `why_not` returns a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    plan = Plan(s, rung, dict(tiles))
    cut = shortened(plan)
    order = folded(order_of(cut), plan.iterations, cut.iterations)
    source = source_of(
        plan.file,
        ("load_filters(tile_a", "multiply(sum"),
        np.arange(2),
        detail=resources(find(rung).build(cut.s, tiles).launch()),
    )
    timeline = TileTimeline(
        order,
        (Stream(COPY, STREAM, "input", plan.STAGES, TILE),),
        (Use(MULTIPLY, mark("multiply"), "output", USE),),
        plan.iterations,
        cut.iterations,
        tr(PARTS_NOTE, terms=decimal(f"{PART:,}")) if s.CRS > PART else "",
    )
    sizes = ",".join(f"{k}={v}" for k, v in tiles.items())
    return timeline.scene(f"{rung} {s} {sizes} timeline", tr(find(rung).title), source)


def shortened(plan: Plan) -> Plan:
    """Returns the plan of a convolution that block 0 computes in the same order: as many images and filters as it reads,
    and as many channels as it takes for the tiles that must run."""
    s = plan.s
    images, filters = min(s.N, -(-plan.BN // s.PQ)), min(s.K, plan.BM)
    run = tiles_to_run(plan.iterations, plan.STAGES)
    for channels in range(1, s.C):
        cut = Plan(s.with_(N=images, K=filters, C=channels), plan.rung, plan.tiles)
        if cut.iterations >= run and (plan.iterations - cut.iterations) % plan.STAGES == 0:
            return cut
    return Plan(s.with_(N=images, K=filters), plan.rung, plan.tiles)


def order_of(plan: Plan) -> ProgramOrder:
    """Returns the order of block 0, from its trace."""
    return program_order(trace_of(plan), regions_of(plan), plan.iterations)


def trace_of(plan: Plan) -> BlockTrace:
    """Returns the trace of block 0. The order does not depend on values: all are zero."""
    program = find(plan.rung).build(plan.s, plan.tiles)
    alone = Program(program.buffers, (dataclasses.replace(program.launch(), grid=(1, 1, 1)),))
    zeros = {b.name: np.zeros(b.shape, b.dtype) for b in program.of_role(INPUT)}
    return emulator.trace_launch(alone, 0, zeros, values=False)[0]


def regions_of(plan: Plan) -> list[Region]:
    """Returns where the tiles of both matrices are in shared memory, in each of the buffers."""
    size = 4 * plan.BK * (plan.pitch + plan.BN)
    starts = [lane * size for lane in range(plan.STAGES)]
    return [Region("stages", start, start + size, COPY, lane, MULTIPLY) for lane, start in enumerate(starts)]
