"""Implicit GEMM on the whole GPU: the grid of its launch, its tiles of filters and pixels, and the bytes between memories."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from kernels.conv.implicit import FILTER_LANES, PART
from kernels.conv.shape import ConvShape
from kernels.engines.emulator.counters import SECTOR_BITS, distinct
from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.launch import WARP
from kernels.model.program import INPUT, OUTPUT
from visuals.conv.implicit.plan import Plan
from visuals.gpu_map.data import MOST, ONCE, UNKNOWN, Amount, GpuMap, Kernel, Operand, Tile, Traffic
from visuals.gpu_map.launches import blocks_of, counted, loaded, recorded_gpu, split, stored

PIECES = 16  # along a side of a tensor, at most
MAX_ADDRESSES = 1 << 22  # that are computed to predict how many sectors are loaded
FLOATS = (1 << SECTOR_BITS) // 4  # of a sector


def implicit_map(s: ConvShape, rung: str, tiles: Mapping[str, int], count: bool = True) -> GpuMap | None:
    """Returns the GPU map of a rung, or None if its registers or the GPU are not known. `count`: small shapes are counted by
    the emulator. RuleError if the rung cannot run the shape."""
    plan = Plan(s, rung, dict(tiles))
    program = find(rung).build(s, tiles)
    launch = program.launch()
    blocks, gpu = blocks_of(launch), recorded_gpu()
    if blocks is None or gpu is None:
        return None
    counters = counted(program, s.macs) if count else None
    output = program.nbytes(OUTPUT)
    stores = stored(counters, output * -(-s.CRS // PART))
    total = Traffic(
        (
            Amount(program.nbytes(INPUT), "predicted", ONCE),
            loaded(counters, predicted_loads(plan)),
            _shared(plan, blocks.count),
        ),
        (Amount(output, "predicted", ONCE), stores, stores),
    )
    kernel = Kernel(
        launch.name,
        blocks,
        ("w", "x"),
        "y",
        plan.iterations,
        _of_tile(plan),
        total,
        (min(plan.TM, 4), min(plan.TN, 8)),
        f"{plan.TM} × {plan.TN}",
    )
    sizes = ",".join(f"{name}={size}" for name, size in tiles.items())
    return GpuMap(
        key=f"{rung} {s} {sizes}",
        title=tr(find(rung).title),
        gpu=gpu,
        kernels=(kernel,),
        operands=_operands(plan),
        total=total,
        shared=True,
    )


# -- bytes -----------------------------------------------------------------------------------------------
def _shared(plan: Plan, blocks: int, tiles: int = 0) -> Amount:
    """Returns the bytes that the threads of blocks load from shared memory for a number of tiles (0: all)."""
    steps = (tiles or plan.iterations) * plan.BK
    return Amount(4 * blocks * plan.threads * (plan.TM + plan.TN) * steps, "predicted")


def predicted_loads(plan: Plan) -> int | None:
    """Returns the bytes of the sectors that all loads move. None if they are too many to compute, or if the kernel loads
    more than filters and pixels."""
    s = plan.s
    if s.bias or s.groups > 1 or s.CRS > PART or s.CRS < 2 * FLOATS:
        return None
    across, down = plan.blocks
    pixels = _all_pixel_sectors(plan)
    return None if pixels is None else (across * _filter_sectors(s, s.K, s.CRS) + down * pixels) << SECTOR_BITS


def _filter_sectors(s: ConvShape, filters: int, taps: int) -> int:
    """Returns the sectors of the first taps of the first filters: lanes load FILTER_LANES neighbours of a filter at a
    time."""
    chunk, row = np.arange(0, taps, FILTER_LANES), np.arange(filters)[:, None] * s.CRS
    first, last = row + chunk, row + np.minimum(chunk + FILTER_LANES, taps) - 1
    return int((last // FLOATS - first // FLOATS + 1).sum())


def _all_pixel_sectors(plan: Plan) -> int | None:
    """Returns the sectors of one pass over the whole data matrix; None if they are too many to compute. Channels that begin
    at the same place of a sector need equally many."""
    s = plan.s
    period = FLOATS // math.gcd(s.H * s.W, FLOATS)
    columns = plan.blocks[0] * plan.BN
    if columns * s.R * s.S * period > MAX_ADDRESSES:
        return None
    taps = plan.taps[: min(period, s.C) * s.R * s.S]
    return sum(_pixel_sectors(plan, columns, tap) * len(range(tap[0], s.C, period)) for tap in taps)


def _pixel_sectors(plan: Plan, columns: int, tap: np.ndarray) -> int:
    """Returns the sectors of the first columns of a row of the data matrix, of which a warp loads 32 neighbours. tap: a row of
    Plan.taps."""
    s = plan.s
    n, p, q = np.unravel_index(np.minimum(np.arange(columns), plan.columns - 1), (s.N, s.P, s.Q))
    h = p * s.u - s.pad_h + tap[3] + ((s.R - 1) * s.dilation_h if s.flip else 0)
    w = q * s.v - s.pad_w + tap[4] + ((s.S - 1) * s.dilation_w if s.flip else 0)
    inside = (h >= 0) & (h < s.H) & (w >= 0) & (w < s.W)
    sector = (((n * s.C + tap[0]) * s.H + h) * s.W + w) // FLOATS
    return distinct(sector.reshape(-1, WARP), inside.reshape(-1, WARP))


def _of_tile(plan: Plan) -> Traffic:
    """Returns the bytes of the first tile of block 0."""
    near = _shared(plan, 1, 1)
    if predicted_loads(plan) is None:
        return Traffic((UNKNOWN, UNKNOWN, near))
    depth = min(plan.BK, plan.s.CRS)
    pixels = sum(_pixel_sectors(plan, plan.BN, tap) for tap in plan.taps[:depth])
    loads = (_filter_sectors(plan.s, plan.inside[0], depth) + pixels) << SECTOR_BITS
    return Traffic((Amount(loads, "predicted", MOST), Amount(loads, "predicted"), near))


# -- pieces ----------------------------------------------------------------------------------------------
def _operands(plan: Plan) -> dict[str, Operand]:
    s = plan.s
    channels, channel_piece = split(s.C, 1, PIECES)
    images, _ = split(s.N, 1, PIECES)
    rows, _ = split(s.K, plan.BM, PIECES)
    cols, _ = split(plan.columns, plan.BN, PIECES)
    depth, piece = split(s.CRS, plan.BK, PIECES)
    first = np.searchsorted(piece, np.arange(depth)) + 1  # the first tile of each piece along the sum
    channel_of = plan.taps[np.arange(plan.iterations) * plan.BK, 0]
    first_of_channel = np.searchsorted(channel_piece, np.arange(channels)) * s.R * s.S // plan.BK + 1
    data = tr("{rows} × {cols}, never stored", rows=f"{s.CRS:,}", cols=f"{plan.columns:,}")
    return {
        "x": Operand(
            "x",
            "x",
            "input",
            channels,
            images,
            _size(s.N, s.C, s.H, s.W),
            np.asarray(channel_piece)[channel_of] * images,
            np.repeat(first_of_channel, images),
            Tile(_size(plan.BK, plan.BN), (4, 8)),
        ),
        "w": Operand(
            "w",
            "w",
            "filter",
            rows,
            depth,
            _size(s.K, s.C, s.R, s.S),
            np.asarray(piece),
            np.tile(first, rows),
            Tile(_size(plan.BM, plan.BK), (8, 4)),
        ),
        "D": Operand("D", tr("data matrix"), "workspace", 1, 4, data, np.zeros(1, int)),
        "y": Operand(
            "y", "y", "output", rows, cols, _size(s.N, s.K, s.P, s.Q), np.zeros(1, int), stored=float(plan.iterations)
        ),
    }


def _size(*extents: int) -> str:
    return " × ".join(f"{extent:,}" for extent in extents)
