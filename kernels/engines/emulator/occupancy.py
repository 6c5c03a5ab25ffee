"""Occupancy: how many warps of a kernel fit on one SM, from registers, shared memory and block size.

Limits: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"; allocation
grains: the CUDA Occupancy Calculator. A test on a GPU compares this with the driver's value.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32


@dataclass(frozen=True)
class Sm:
    """One streaming multiprocessor of a GPU."""

    name: str
    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    parts: int = 4  # each with a separate share of the registers
    register_grain: int = 256  # a warp's registers are allocated in multiples of this
    shared_grain: int = 128
    reserved_shared: int = 1024  # of each block, for the system


H200 = Sm("NVIDIA H200", warps=64, blocks=32, registers=65_536, shared_bytes=228 * 1024)


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps that run on an SM at once, the warps' share of the maximum, and the limiting resource."""

    blocks: int
    warps: int
    share: float
    limit: str


def occupancy(registers: int, shared_bytes: int, threads: int, sm: Sm = H200) -> Occupancy:
    """Returns the occupancy of a kernel from its registers a thread, and shared bytes and threads a block."""
    warps = -(-threads // WARP)
    per_warp = -(-max(registers, 1) * WARP // sm.register_grain) * sm.register_grain
    shared = -(-(shared_bytes + sm.reserved_shared) // sm.shared_grain) * sm.shared_grain
    fits = {
        "warps": sm.warps // warps,
        "blocks": sm.blocks,
        "registers": sm.parts * (sm.registers // sm.parts // per_warp) // warps,
        "shared memory": sm.shared_bytes // shared,
    }
    limit = min(fits, key=fits.__getitem__)
    blocks = fits[limit]
    return Occupancy(blocks, blocks * warps, blocks * warps / sm.warps, limit)
