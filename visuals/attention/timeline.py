"""Flash attention as a timeline: the copies of tiles of K and V, both products, waits and barriers of one block.

The emulator executes the block at its tile sizes, for one head. Only keys and queries are cut, by whole tiles of keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.attention.tensor_cores import PAD
from kernels.engines import emulator
from kernels.engines.emulator.trace import BlockTrace
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.program import INPUT, Program
from visuals.attention.plan import Plan, plan_of
from visuals.attention.scene import why_not
from visuals.scene.program_order import ProgramOrder, Region, folded, program_order, tiles_to_run
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of
from visuals.scene.tile_timeline import Stream, TileTimeline, Use

SCORES = Use(
    "scores",
    mark("scores, values"),
    "output",
    mark("The warps compute the scores of tile {tile}: [Q](input) times [K](filter)."),
    note=mark("first row Q Kᵀ, second row P V"),
)
VALUES = Use(
    "values",
    "",
    "output",
    mark("The warps add the weights times [V](filter) of tile {tile} to [O](output)."),
    SCORES.name,
)
BOTH, KEYS, VALUES_COPY = "copy", "copy_k", "copy_v"  # names of streams
FLASH, REGISTERS, TENSOR_CORES = "attention/flash", "attention/flash-registers", "attention/flash-mma"
RUNGS = FLASH, REGISTERS, TENSOR_CORES
# The lines that copy each stream, compute scores and add values.
LINES = {
    FLASH: ("tile_k[i / DP][dim] =", "s += tile_q", "o[n] += tile_p"),
    REGISTERS: ("copy_async<16>(target", "copy_async<16>(target", "s[i][n] += q[i].x", "o[i][n] += p[i][k]"),
    TENSOR_CORES: ("load_tile<Bc>(tile_k", "add_scores(s", "add_values(o"),
}


def timeline_scene(s: AttentionShape, rung: str, tiles: Mapping[str, int]) -> Scene:
    """Returns the timeline of the block with the last queries of a head, with all tile sizes of the rung. ValueError for a
    rung that is none of RUNGS, or if `why_not` gives a reason."""
    if reason := why_not(s, rung, tiles):
        raise ValueError(reason)
    if rung not in RUNGS:
        raise ValueError(f"{rung} has no tiles of keys in shared memory")
    plan, count = plan_of(s, rung, tiles), -(-s.N // tiles["Bc"])
    cut = shortened(s, plan)
    run = -(-cut.N // plan.Bc)
    order = folded(order_of(cut, rung, tiles), count, run)
    launch = find(rung).build(cut, tiles).launch()
    source = source_of(plan.file, LINES[rung], np.arange(len(LINES[rung])), detail=resources(launch))
    sizes = ",".join(f"{k}={v}" for k, v in tiles.items())
    timeline = TileTimeline(order, _streams(plan), (SCORES, VALUES), count, run)
    return timeline.scene(f"{rung} {s} {sizes} timeline", tr(find(rung).title), source)


def _streams(plan: Plan) -> tuple[Stream, ...]:
    if plan.rung == REGISTERS:
        return (
            Stream(
                KEYS,
                mark("copy K, V"),
                "filter",
                1,
                mark("[K of tile {tile}](filter)"),
                BOTH,
                mark("first row K, second row V"),
            ),
            Stream(VALUES_COPY, "", "filter", 1, mark("[V of tile {tile}](filter)"), BOTH),
        )
    return (Stream(BOTH, mark("copy K and V"), "filter", plan.stages, mark("[tile {tile}](filter)")),)


def shortened(s: AttentionShape, plan: Plan) -> AttentionShape:
    """Returns one head with as many tiles of keys as must run."""
    count = -(-s.N // plan.Bc)
    return s.with_(B=1, H=1, N=s.N - plan.Bc * (count - tiles_to_run(count, plan.stages)))


def order_of(s: AttentionShape, rung: str, tiles: Mapping[str, int]) -> ProgramOrder:
    """Returns the order of the block with the last queries, from its trace. It sees all keys."""
    plan = plan_of(s, rung, tiles)
    return program_order(trace_of(s, rung, tiles), regions_of(plan), -(-s.N // plan.Bc))


def trace_of(s: AttentionShape, rung: str, tiles: Mapping[str, int]) -> BlockTrace:
    """Returns the trace of the block with the last queries. The order does not depend on values: all are zero."""
    program, block = find(rung).build(s, tiles), 0
    launch = program.launch()
    if not s.causal:  # then all blocks do the same
        launch = dataclasses.replace(launch, grid=(1, 1, 1))
    elif rung == FLASH:  # in the other kernels, block 0 has the last queries
        block = int(np.prod(launch.grid)) - 1
    zeros = {b.name: np.zeros(b.shape, b.dtype) for b in program.of_role(INPUT)}
    return emulator.trace_launch(Program(program.buffers, (launch,)), 0, zeros, block, values=False)[0]


def regions_of(plan: Plan) -> list[Region]:
    """Returns where the tiles of K and V are in shared memory, after the tile of Q."""
    word, Br, Bc, DP = plan.word, plan.Br, plan.Bc, plan.DP
    pad = {FLASH: (0, 1, 0), REGISTERS: (4, 4, 0), TENSOR_CORES: (PAD, PAD, PAD)}[plan.rung]  # after rows of Q, K, V
    at, K, V = (word * rows * (DP + end) for rows, end in zip((Br, Bc, Bc), pad, strict=True))
    keys, values = (KEYS, VALUES_COPY) if plan.rung == REGISTERS else (BOTH, BOTH)
    regions = []
    for lane in range(plan.stages):
        regions.append(Region("shared", at, at + K, keys, lane, SCORES.name))
        regions.append(Region("shared", at + K, at + K + V, values, lane, VALUES.name))
        at += K + V
    return regions
