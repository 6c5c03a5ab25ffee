"""Flash attention on the whole GPU: the grid of its launch, its tiles of Q, K and V, and the bytes between the memories."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.attention.traffic import requested_bytes
from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.program import INPUT, OUTPUT
from visuals.attention.plan import Plan, plan_of
from visuals.gpu_map.data import MOST, ONCE, UNKNOWN, Amount, Blocks, GpuMap, Kernel, Operand, Tile, Traffic
from visuals.gpu_map.launches import blocks_of, counted, loaded, recorded_gpu, split, stored, whole_sectors

RUNGS = ("attention/flash", "attention/flash-registers", "attention/flash-mma")
PIECES = 16  # along a side of a tensor, at most


def flash_map(s: AttentionShape, rung: str, tiles: Mapping[str, int], count: bool = True) -> GpuMap | None:
    """Returns the GPU map of one of RUNGS, or None if its registers or the GPU are not known. `count`: small shapes are
    counted by the emulator. RuleError if the rung cannot run the shape."""
    plan = plan_of(s, rung, tiles)
    program = find(rung).build(s, tiles)
    launch = program.launch()
    blocks, gpu = blocks_of(launch), recorded_gpu()
    if blocks is None or gpu is None:
        return None
    counters = counted(program, s.macs) if count else None
    output = program.nbytes(OUTPUT)
    stores = stored(counters, output)
    total = Traffic(
        (
            Amount(program.nbytes(INPUT), "predicted", ONCE),
            loaded(counters, predicted_loads(s, plan, tiles)),
            Amount(predicted_shared(s, plan), "predicted"),
        ),
        (Amount(output, "predicted", ONCE), stores, stores),
    )
    sizes = ",".join(f"{name}={size}" for name, size in tiles.items())
    return GpuMap(
        key=f"{rung} {s} {sizes}",
        title=tr(find(rung).title),
        gpu=gpu,
        kernels=(_kernel(s, plan, launch.name, blocks, total),),
        operands=_operands(s, plan),
        total=total,
        shared=True,
    )


def _kernel(s: AttentionShape, plan: Plan, name: str, blocks: Blocks, total: Traffic) -> Kernel:
    outputs = plan.DP // plan.lanes
    tile = (1, min(outputs, 8))
    return Kernel(
        name,
        blocks,
        ("K", "V"),
        "O",
        plan.visited(s, _first(s, plan)),
        _of_tile(s, plan),
        total,
        tile,
        tr("{n} values of O", n=outputs),
        ("Q",),
        _of_queries(s, plan),
    )


def _first(s: AttentionShape, plan: Plan) -> int:
    """Returns the tile of queries of block 0: the last one in kernels that start with the most work."""
    return -(-s.N // plan.Br) - 1 if s.causal and plan.rung != RUNGS[0] else 0


# -- bytes -----------------------------------------------------------------------------------------------
def predicted_loads(s: AttentionShape, plan: Plan, tiles: Mapping[str, int]) -> int | None:
    """Returns the bytes of the sectors that all loads move; None if the rows of Q, K and V are not whole sectors."""
    requested = requested_bytes(find(plan.rung), s, tiles)
    if requested is None or not whole_sectors(s.d * plan.word):
        return None
    return requested - s.heads * s.N * s.d * plan.word  # without the stores of O


def predicted_shared(s: AttentionShape, plan: Plan) -> int:
    """Returns the bytes that threads load from shared memory."""
    blocks = -(-s.N // plan.Br)
    visited = sum(plan.visited(s, block) for block in range(blocks))
    queries = plan.traffic["start"] - plan.Br * plan.DP * plan.word  # loads of Q into registers; its stores apart
    return s.heads * (blocks * queries + visited * _of_one_tile(plan))


def _of_one_tile(plan: Plan) -> int:
    return plan.traffic["scores"] + plan.traffic["O"]


def _of_tile(s: AttentionShape, plan: Plan) -> Traffic:
    """Returns the bytes of the first tile of keys and values of block 0."""
    return _loads(2 * min(plan.Bc, s.N) * s.d * plan.word, Amount(_of_one_tile(plan), "predicted"))


def _of_queries(s: AttentionShape, plan: Plan) -> Traffic:
    first = _first(s, plan) * plan.Br
    return _loads(min(plan.Br, s.N - first) * s.d * plan.word, UNKNOWN)


def _loads(count: int, near: Amount) -> Traffic:
    return Traffic((Amount(count, "predicted", MOST), Amount(count, "predicted"), near))


# -- pieces ----------------------------------------------------------------------------------------------
def _operands(s: AttentionShape, plan: Plan) -> dict[str, Operand]:
    """Returns Q, K, V and O with a row for each head, or for several, and the tiles of its queries or keys across."""
    heads, _ = split(s.heads, 1, PIECES)
    queries, query_piece = split(s.N, plan.Br, PIECES)
    keys, key_piece = split(s.N, plan.Bc, PIECES)
    key_piece, first = np.asarray(key_piece), np.searchsorted(key_piece, np.arange(keys)) + 1
    numbers = np.searchsorted(query_piece, np.arange(queries)) + 1
    mine = np.array([query_piece[_first(s, plan)]])
    note = f"{s.heads:,} × {s.N:,} × {s.d}"
    of_queries = Tile(_size(plan.Br, s.d), (min(plan.Br, 4), 4))
    shown = min(plan.Bc, 4), 4
    of_keys, of_values = Tile(_size(plan.Bc, s.d), shown), Tile("", shown)
    return {
        "Q": Operand("Q", "Q", "input", heads, queries, note, mine, np.tile(numbers, heads), of_queries),
        "K": Operand("K", "K", "filter", heads, keys, "", key_piece, np.tile(first, heads), of_keys),
        "V": Operand("V", "V", "filter", heads, keys, "", key_piece, np.tile(first, heads), of_values),
        "O": Operand("O", "O", "output", heads, queries, "", mine, stored=float(-(-s.N // plan.Bc))),
    }


def _size(rows: int, cols: int) -> str:
    return f"{rows:,} × {cols:,}"
