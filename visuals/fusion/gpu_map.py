"""A chain of blocks on the whole GPU: the grid of each launch, and the maps that it reads from HBM and writes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernels.fusion.common import Part
from kernels.fusion.ladder import PLANS
from kernels.fusion.shape import ChainShape
from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.program import INPUT, Buffer, Program
from visuals.fusion.loads import Loads, loads_of
from visuals.gpu_map.data import MOST, ONCE, UNKNOWN, Amount, Blocks, GpuMap, Kernel, Operand, Tile, Traffic
from visuals.gpu_map.launches import blocks_of, counted, loaded, recorded_gpu, split, stored

PIECES = 8  # along a side of a map, at most
ROLES = {"x": "input", "y": "output"}  # weights and other inputs are "filter", maps between launches "workspace"


def fusion_map(s: ChainShape, rung: str, tiles: Mapping[str, int], count: bool = True) -> GpuMap | None:
    """Returns the GPU map of a rung, or None if registers of its kernels or the GPU are not known. `count`: small shapes are
    counted by the emulator. RuleError if the rung cannot run the shape."""
    parts = PLANS[rung](s, tiles).parts
    program = find(rung).build(s, tiles)
    found_blocks, gpu = [blocks_of(part.launch) for part in parts], recorded_gpu()
    blocks = [found for found in found_blocks if found is not None]
    if len(blocks) < len(parts) or gpu is None:
        return None
    operands = _operands(program, parts)
    loads = [loads_of(s, part, program) for part in parts]
    kernels = [_kernel(part, grid, operands, found) for part, grid, found in zip(parts, blocks, loads, strict=True)]
    counters = counted(program, s.macs) if count else None
    stores = stored(counters, sum(part.writes for part in parts))
    known = [found.bytes for found in loads if found is not None]
    predicted = sum(known) if len(known) == len(loads) else None
    total = Traffic(
        (_once(sum(part.reads for part in parts)), _most(predicted), loaded(counters, predicted)),
        (_once(sum(part.writes for part in parts)), stores, stores),
    )
    sizes = ",".join(f"{name}={size}" for name, size in tiles.items())
    return GpuMap(
        key=f"{rung} {s} {sizes}",
        title=tr(find(rung).title),
        gpu=gpu,
        kernels=tuple(kernels),
        operands=operands,
        total=total,
        shared=False,
    )


def _once(count: int) -> Amount:
    return Amount(count, "predicted", ONCE)


def _most(count: int | None) -> Amount:
    """Returns the bytes of loads as a limit of what comes from L2: the L1 cache may hold some of them."""
    return UNKNOWN if count is None else Amount(count, "predicted", MOST)


def _kernel(part: Part, blocks: Blocks, operands: Mapping[str, Operand], loads: Loads | None) -> Kernel:
    *reads, writes = [a for a in part.launch.args if isinstance(a, str) and a in operands]
    stores = Amount(part.writes, "predicted")
    near, tile = UNKNOWN, Traffic()
    if loads:
        near = Amount(loads.bytes, "predicted")
        of_tile = _most(loads.bytes_of_block)
        tile = Traffic((of_tile, of_tile, Amount(loads.bytes_of_block, "predicted")))
    total = Traffic((_once(part.reads), _most(loads and loads.bytes), near), (_once(part.writes), stores, stores))
    return Kernel(part.launch.name, blocks, tuple(dict.fromkeys(reads)), writes, 1, tile, total, (1, 1), "")


# -- pieces ----------------------------------------------------------------------------------------------
def _operands(program: Program, parts: Sequence[Part]) -> dict[str, Operand]:
    """Returns the maps, weights and second addends. The vectors of a bias or a batch norm are too small to draw."""
    used = [a for part in parts for a in part.launch.args if isinstance(a, str)]
    found = {}
    for buffer in sorted(program.buffers, key=lambda b: used.index(b.name)):
        if len(buffer.shape) > 1:
            known = any(other.shape == buffer.shape for other in program.buffers if other.name in found)
            found[buffer.name] = _operand(buffer, len(found), "" if known else _size(buffer))
    return found


def _size(buffer: Buffer) -> str:
    return " × ".join(f"{extent:,}" for extent in buffer.shape)


def _operand(buffer: Buffer, n: int, note: str) -> Operand:
    rows, _ = split(buffer.shape[0], 1, PIECES)
    cols, _ = split(buffer.shape[1], 1, PIECES)
    role = ROLES.get(buffer.name, "filter" if buffer.role == INPUT else "workspace")
    values = np.ones(rows * cols) if buffer.role == INPUT else None
    tile = Tile("", (1, 4)) if buffer.role == INPUT else None
    return Operand(
        buffer.name, buffer.name, role, rows, cols, note, np.zeros(1, int), values, tile, stored=float(n + 1)
    )
