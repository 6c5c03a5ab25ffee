"""How many blocks of a launch run together.

Threads of different blocks of one batch run side by side, as the scheduler selects them; the blocks of the next batch begin when
all of these have ended, and take over their registers and their shared memory. CUDA allows any order of the blocks, so a kernel
runs in batches unless its threads wait for those of other blocks, which have to run too.
"""

from __future__ import annotations

import math

import numpy as np

from kernels.engines.emulator.operations.dtypes import DTYPES
from kernels.engines.emulator.ptx.flow import flow_of
from kernels.engines.emulator.ptx.kernel import Kernel
from kernels.engines.emulator.threads import LANES, Dim

BYTES = 1 << 23  # of the registers and of the memory of a batch's own: they stay in the processor's cache
# Instructions of units that keep state of their own for every thread of the grid.
_UNITS = ("cp", "wgmma", "mbarrier", "setmaxnreg", "mapa", "call")


def at_once(kernel: Kernel, grid: Dim, block: Dim, dynamic_shared: int) -> int:
    """Returns the number of blocks in a batch."""
    blocks = math.prod(grid)
    if not _may_run_in_batches(kernel):
        return blocks
    most = max(1, BYTES // max(1, bytes_of_block(kernel, block, dynamic_shared)))
    return -(-blocks // -(-blocks // most))  # of about equal batches


def bytes_of_block(kernel: Kernel, block: Dim, dynamic_shared: int) -> int:
    """Returns the bytes that registers, shared and local memory of a block take. Of memory each byte has a state."""
    sizes = {space: sum(v.size for v in kernel.variables if v.space == space) for space in ("shared", "local")}
    threads = -(-math.prod(block) // LANES) * LANES
    registers = sum(np.dtype(DTYPES[type_]).itemsize for type_ in kernel.registers.values())
    return threads * (registers + 2 * sizes["local"]) + 2 * (sizes["shared"] + dynamic_shared)


def _may_run_in_batches(kernel: Kernel) -> bool:
    flow = flow_of(kernel)
    if flow.clocks or flow.may_wait_for_others or math.prod(kernel.cluster) > 1:
        return False
    return not any(i.parts[0] in _UNITS or "cluster" in i.opcode for i in kernel.code)
