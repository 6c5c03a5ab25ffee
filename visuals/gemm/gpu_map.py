"""A matrix product on the whole GPU: the grid of its launch, its tiles of A and B, and the bytes between the memories."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.engines.emulator.counters import Counters
from kernels.gemm.shape import GemmShape
from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.launch import WARP
from kernels.model.program import INPUT, OUTPUT
from visuals.gemm.plan import Plan, plan_of
from visuals.gpu_map.data import MOST, ONCE, UNKNOWN, Amount, GpuMap, Kernel, Operand, Tile, Traffic
from visuals.gpu_map.launches import blocks_of, counted, loaded, recorded_gpu, split, stored, whole_sectors

PIECES = 16  # along a side of a matrix, at most
SECTOR = 32  # bytes
UNCOALESCED = "gemm/uncoalesced"


def gemm_map(shape: GemmShape, rung: str, tiles: Mapping[str, int], count: bool = True) -> GpuMap | None:
    """Returns the GPU map of a rung, or None if its registers or the GPU are not known. `count`: small shapes are counted by
    the emulator. ValueError or RuleError if the rung has no plan or cannot run the shape."""
    plan = plan_of(shape, rung, tiles)
    program = find(rung).build(shape, tiles)
    launch = program.launch()
    blocks, gpu = blocks_of(launch), recorded_gpu()
    if blocks is None or gpu is None:
        return None
    counters = counted(program, shape.macs) if count else None
    total = traffic(shape, plan, rung, program.nbytes(INPUT), program.nbytes(OUTPUT), counters)
    steps = -(-shape.K // plan.BK)
    one_tile = _of_tile(shape, plan, rung)
    kernel = Kernel(
        launch.name, blocks, ("A", "B"), "C", steps, one_tile, total, drawn(plan.TM, plan.TN), f"{plan.TM} × {plan.TN}"
    )
    sizes = ",".join(f"{name}={size}" for name, size in tiles.items())
    return GpuMap(
        key=f"{rung} {shape} {sizes}",
        title=tr(find(rung).title),
        gpu=gpu,
        kernels=(kernel,),
        operands=_operands(shape, plan, steps),
        total=total,
        shared=plan.As is not None,
    )


# -- bytes -----------------------------------------------------------------------------------------------
def traffic(s: GemmShape, plan: Plan, rung: str, inputs: int, output: int, counters: Counters | None) -> Traffic:
    """Returns the bytes of the launch. `inputs` and `output` are the bytes of the matrices."""
    loads = loaded(counters, predicted_loads(s, plan, rung))
    # What the L1 cache keeps is not known.
    near = (UNKNOWN, loads) if plan.As is None else (loads, _amount(predicted_shared(s, plan)))
    stores = stored(counters, output)
    return Traffic((Amount(inputs, "predicted", ONCE), *near), (Amount(output, "predicted", ONCE), stores, stores))


def _amount(count: int | None) -> Amount:
    return UNKNOWN if count is None else Amount(count, "predicted")


def predicted_loads(s: GemmShape, plan: Plan, rung: str) -> int | None:
    """Returns the bytes of the sectors that all loads move. None if rows of the matrices or tiles are not whole sectors, or
    if C0 is read."""
    e = ELEMENT_BYTES[s.dtype]
    if s.beta or not whole_sectors(s.K * e, s.N * e):
        return None
    across, down = plan.grid(s)
    if plan.As is not None:
        if not whole_sectors(plan.BK * e, plan.BN * e):
            return None
        return e * (across * s.M * s.K + down * s.K * s.N)
    if s.M % plan.BM or s.N % plan.BN:
        return None
    warps = across * down * plan.threads // WARP
    return warps * s.K * _sectors_of_warp(plan.BM, rung) * SECTOR


def _sectors_of_warp(side: int, rung: str) -> int:
    """Returns the sectors of A and of B that a warp of a block of side x side threads loads for one k."""
    rows = WARP // side
    if rung == UNCOALESCED:  # lanes along a column of C: an element of A each
        return side + 1
    return rows + side * 4 // SECTOR


def predicted_shared(s: GemmShape, plan: Plan) -> int | None:
    """Returns the bytes that threads load from shared memory. None for fragments of a whole warp."""
    if plan.owner != "thread":
        return None
    across, down = plan.grid(s)
    steps = -(-s.K // plan.BK) * plan.BK
    return across * down * plan.threads * (plan.TM + plan.TN) * steps * ELEMENT_BYTES[s.dtype]


def _of_tile(s: GemmShape, plan: Plan, rung: str) -> Traffic:
    """Returns the bytes that block 0 loads for its first tile."""
    depth = min(plan.BK, s.K)
    one = GemmShape(*plan.inside(s), depth, dtype=s.dtype)
    e = ELEMENT_BYTES[s.dtype]
    if plan.As is None:
        sectors = plan.threads // WARP * _sectors_of_warp(plan.BM, rung) * SECTOR
        known = predicted_loads(s, plan, rung) is not None
        return Traffic((UNKNOWN, UNKNOWN, _amount(sectors if known else None)))
    loads = e * (one.M + one.N) * depth
    from_hbm = Amount(loads, "predicted", MOST)
    return Traffic((from_hbm, Amount(loads, "predicted"), _amount(predicted_shared(one, plan))))


# -- pieces ----------------------------------------------------------------------------------------------
def _operands(s: GemmShape, plan: Plan, steps: int) -> dict[str, Operand]:
    rows, _ = split(s.M, plan.BM, PIECES)
    cols, _ = split(s.N, plan.BN, PIECES)
    depth, piece = split(s.K, plan.BK, PIECES)
    piece = np.asarray(piece)
    first = np.searchsorted(piece, np.arange(depth)) + 1  # the first tile of each piece along K
    tile = {"A": tile_of(plan.BM, plan.BK), "B": tile_of(plan.BK, plan.BN)}
    return {
        "A": Operand("A", "A", "input", rows, depth, size_text(s.M, s.K), piece, np.tile(first, rows), tile["A"]),
        "B": Operand(
            "B", "B", "filter", depth, cols, size_text(s.K, s.N), piece * cols, np.repeat(first, cols), tile["B"]
        ),
        "C": Operand("C", "C", "output", rows, cols, size_text(s.M, s.N), np.zeros(1, int), stored=float(steps)),
    }


def size_text(rows: int, cols: int) -> str:
    """Returns the extents of a matrix in words."""
    return tr("{rows} × {cols}", rows=f"{rows:,}", cols=f"{cols:,}")


def tile_of(rows: int, cols: int) -> Tile:
    """Returns a tile as it is drawn on an SM."""
    return Tile(size_text(rows, cols), drawn(-(-rows // 8), -(-cols // 8)))


def drawn(rows: int, cols: int) -> tuple[int, int]:
    """Returns in how many pieces a tile is drawn: at most 4 x 8."""
    return min(rows, 4), min(cols, 8)
