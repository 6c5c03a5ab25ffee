"""Where the numbers of a GPU map come from: the recorded GPU, the resources of a compiled kernel, the emulator's counters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernels.engines import emulator
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.compiler.compile import CompilerMissing
from kernels.engines.emulator.counters import SECTOR_BITS, Counters
from kernels.engines.emulator.launch import Options
from kernels.engines.emulator.occupancy import occupancy
from kernels.machine import memory_levels
from kernels.model.program import INPUT, Launch, Program
from kernels.runner import seeded_inputs
from visuals.gpu_map.data import UNKNOWN, Amount, Blocks, Gpu

MAX_COUNTED = 2**18  # multiply-adds of a shape that is counted while a page is drawn: at most about a second


def recorded_gpu() -> Gpu | None:
    """Returns the GPU that the recordings were made on; None if its SMs were not recorded."""
    levels = memory_levels.recorded()
    if levels is None or levels.sms is None:
        return None
    hbm, l2, shared, registers = map(levels.bytes_of, ("global", "L2", "shared", "registers"))
    return Gpu(levels.device, levels.sms, hbm, l2, shared, registers)


def blocks_of(launch: Launch) -> Blocks | None:
    """Returns the blocks of a launch and how many fit on an SM. None for a kernel that is not precompiled: its registers
    are not known."""
    compiled = precompiled.resources(launch.source, launch.defines)
    if not compiled:
        return None
    threads = math.prod(launch.block)
    fits = occupancy(compiled["registers"], compiled["shared_bytes"] + launch.shared, threads)
    return Blocks(launch.grid, threads, fits.blocks, fits.limit) if fits.blocks else None


def counted(program: Program, macs: int) -> Counters | None:
    """Returns the emulator's counters of a program. None if the shape is too large, or a kernel cannot be compiled here."""
    if macs > MAX_COUNTED:
        return None
    session = emulator.Session(program, seeded_inputs(program.of_role(INPUT)), Options())
    try:
        session.verify_run()
    except CompilerMissing:
        return None
    return session.counters


def loaded(counters: Counters | None, predicted: int | None) -> Amount:
    """Returns the bytes that an SM's loads move, in sectors: counted, else predicted, else not known."""
    if counters and not counters.uncounted:
        return Amount(counters.total["sectors_ld"] << SECTOR_BITS, "counted")
    return UNKNOWN if predicted is None else Amount(predicted, "predicted")


def stored(counters: Counters | None, predicted: int) -> Amount:
    """Returns the bytes that threads store to global memory."""
    if counters and not counters.uncounted:
        return Amount(counters.total["bytes_st"], "counted")
    return Amount(predicted, "predicted")


def whole_sectors(*extents: int) -> bool:
    """Returns whether all of these extents, in bytes, are whole sectors, so that loads of rows move no more than they use."""
    return all(extent % (1 << SECTOR_BITS) == 0 for extent in extents)


def split(extent: int, tile: int, most: int) -> tuple[int, Sequence[int]]:
    """Returns in how many pieces an extent is drawn, at most `most`, and the piece of each tile along it."""
    tiles = -(-extent // tile)
    pieces = min(tiles, most)
    each = -(-tiles // pieces)
    return -(-tiles // each), [n // each for n in range(tiles)]
