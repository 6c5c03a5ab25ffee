"""A matrix product by Hopper's rungs on the whole GPU: blocks that compute one tile of C or many, and bytes of boxes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.gemm import hopper
from kernels.gemm.shape import GemmShape
from kernels.i18n import tr, trn
from kernels.ladders import find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.program import INPUT, OUTPUT, Launch
from visuals.gemm.accumulator import BOXES, sharing
from visuals.gemm.gpu_map import PIECES, drawn, size_text, tile_of
from visuals.gpu_map.data import MOST, ONCE, UNKNOWN, Amount, GpuMap, Kernel, Operand, Traffic
from visuals.gpu_map.launches import blocks_of, recorded_gpu, split

CLUSTER = "gemm/wgmma-cluster"
PERSISTENT = ("gemm/wgmma-persistent", *BOXES)


def hopper_map(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> GpuMap | None:
    """Returns the GPU map of a rung, or None if its registers or the GPU are not known. RuleError if it cannot run the
    shape."""
    found = find(rung)
    checked = found.check(shape, tiles)
    program = found.build(shape, checked)
    launch = program.launch()
    blocks, gpu = blocks_of(launch), recorded_gpu()
    if blocks is None or gpu is None:
        return None
    stored = Amount(program.nbytes(OUTPUT), "predicted")
    total = Traffic(
        (Amount(program.nbytes(INPUT), "predicted", ONCE), Amount(loads(shape, rung, checked), "predicted"), UNKNOWN),
        (Amount(program.nbytes(OUTPUT), "predicted", ONCE), stored, stored),
    )
    own = tiles_of_block_0(shape, rung, checked, launch)
    steps = len(own) * -(-shape.K // hopper.BK)
    rows, cols = checked["BM"] * 4 // sharing(launch, rung), checked["BN"] // 4  # of a thread's sums
    kernel = Kernel(
        launch.name,
        blocks,
        ("A", "B"),
        "C",
        steps,
        _of_stage(rung, checked),
        total,
        drawn(rows, cols),
        size_text(rows, cols),
        computes=tr("The tensor cores read both tiles from shared memory. No thread loads them into registers."),
        stores=_stores(rung, len(own)),
    )
    sizes = ",".join(f"{name}={extent}" for name, extent in checked.items())
    return GpuMap(
        key=f"{rung} {shape} {sizes}",
        title=tr(found.title),
        gpu=gpu,
        kernels=(kernel,),
        operands=_operands(shape, checked, own, steps),
        total=total,
        shared=True,
    )


def tiles_of_block_0(s: GemmShape, rung: str, tiles: Mapping[str, int], launch: Launch) -> list[tuple[int, int]]:
    """Returns (row, column) of each tile of C that block 0 computes, counted in tiles, in its order."""
    if rung not in PERSISTENT:
        return [(0, 0)]
    blocks = hopper.CLUSTER if rung == CLUSTER else 1  # that compute tiles one above the other
    rows, cols = -(-s.M // (blocks * tiles["BM"])), -(-s.N // tiles["BN"])
    numbers = range(0, rows * cols, launch.grid[0] // blocks)
    return [(blocks * row, col) for row, col in (tile_position(n, rows, cols, tiles["GROUP"]) for n in numbers)]


def tile_position(number: int, rows: int, cols: int, group: int) -> tuple[int, int]:
    """Returns (row, column) of a tile by its number, as tile_position in kernels/gemm/cuda/wgmma.cuh."""
    first_row = number // (group * cols) * group
    group_rows = min(rows - first_row, group)
    number -= first_row * cols
    return first_row + number % group_rows, number // group_rows


# -- bytes -----------------------------------------------------------------------------------------
def loads(s: GemmShape, rung: str, tiles: Mapping[str, int]) -> int:
    """Returns the bytes that copies read from L2: each tile of C needs its rows of A and its columns of B. A copy to two
    blocks of a cluster reads once."""
    down, across = -(-s.M // tiles["BM"]), -(-s.N // tiles["BN"])
    if rung == CLUSTER:
        down = -(-down // hopper.CLUSTER)
    return ELEMENT_BYTES[s.dtype] * s.K * (across * s.M + down * s.N)


def _of_stage(rung: str, tiles: Mapping[str, int]) -> Traffic:
    """Returns the bytes that a block copies for one stage."""
    cols = tiles["BN"] // hopper.CLUSTER if rung == CLUSTER else tiles["BN"]
    count = 2 * hopper.BK * (tiles["BM"] + cols)
    return Traffic((Amount(count, "predicted", MOST), Amount(count, "predicted"), UNKNOWN))


def _stores(rung: str, own: int) -> str:
    if rung in BOXES:
        stored = tr("The copy engine writes their results to [C](output), box by box.")
    else:
        stored = tr("The threads that multiply store their results to [C](output).")
    if own == 1:
        return stored
    return f"{stored} " + trn(
        "Block 0 computes {n} tile of [C](output).",
        "Block 0 computes {n} tiles of [C](output), one after the other. Meanwhile the producer loads the next ones.",
        own,
    )


# -- pieces ----------------------------------------------------------------------------------------
def _operands(s: GemmShape, tiles: Mapping[str, int], own: list[tuple[int, int]], steps: int) -> dict[str, Operand]:
    rows, row_piece = split(s.M, tiles["BM"], PIECES)
    cols, col_piece = split(s.N, tiles["BN"], PIECES)
    depth, k_piece = split(s.K, hopper.BK, PIECES)
    k = np.asarray(k_piece)
    a = np.concatenate([row_piece[row] * depth + k for row, _ in own])
    b = np.concatenate([k * cols + col_piece[col] for _, col in own])
    c = np.array([row_piece[row] * cols + col_piece[col] for row, col in own])
    first = np.searchsorted(k, np.arange(depth)) + 1  # the first stage of each piece along K
    return {
        "A": Operand("A", "A", "input", rows, depth, size_text(s.M, s.K), a, np.tile(first, rows), tile_of(tiles["BM"], hopper.BK)),
        "B": Operand("B", "B", "filter", depth, cols, size_text(s.K, s.N), b, np.repeat(first, cols), tile_of(hopper.BK, tiles["BN"])),
        "C": Operand("C", "C", "output", rows, cols, size_text(s.M, s.N), c, stored=float(steps // len(own))),
    }  # fmt: skip
