"""Limits of a launch: CUDA's, which a GPU refuses with "invalid configuration argument", and the host's memory."""

from __future__ import annotations

import math
from collections.abc import Collection

from kernels.engines.emulator import batches
from kernels.engines.emulator.arguments import Array
from kernels.engines.emulator.ptx.kernel import Kernel
from kernels.engines.emulator.threads import LANES, Dim
from kernels.machine.processor import free_bytes
from kernels.model import numerals
from kernels.model.program import RuleError
from kernels.model.rules import MAX_SHARED, MAX_STATIC_SHARED

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
MAX_BLOCKS = (2**31 - 1, 65_535, 65_535)  # along x, y, z
MAX_THREADS = (1024, 1024, 64)
MAX_THREADS_OF_BLOCK = 1024
MAX_THREADS_OF_GRID = 2**31 - 1  # a thread's number has 32 bits
BYTES_OF_INDEX = 16  # of a block's place in a batch


def check_grid(grid: Dim, block: Dim) -> None:
    """Raises RuleError if a grid or a block is larger than CUDA's limits, or the grid has more threads than have numbers."""
    for name, extents, unit, limits in (("grid", grid, "blocks", MAX_BLOCKS), ("block", block, "threads", MAX_THREADS)):
        if not isinstance(extents, tuple | list) or [type(n) for n in extents] != [int] * 3:
            raise RuleError(f"a {name} is three whole numbers, (x, y, z), got {extents!r}")
        for axis, extent, limit in zip("xyz", extents, limits, strict=True):
            if not 1 <= extent <= limit:
                raise RuleError(f"a {name} has 1 to {limit:,} {unit} along {axis}, got {extent:,}")
    if math.prod(block) > MAX_THREADS_OF_BLOCK:
        raise RuleError(f"a block has at most {MAX_THREADS_OF_BLOCK:,} threads, got {math.prod(block):,}")
    threads = math.prod(grid) * -(-math.prod(block) // LANES) * LANES
    if threads > MAX_THREADS_OF_GRID:
        raise RuleError(
            f"the emulator runs at most {MAX_THREADS_OF_GRID:,} threads of a grid, in whole warps; got {threads:,}"
        )


def check_bounds(kernel: Kernel, block: Dim) -> None:
    """Raises RuleError if a block has more threads than the kernel is compiled for, or other ones than it requires."""
    if kernel.required_block not in (None, block):
        raise RuleError(f"the kernel requires blocks of {kernel.required_block} threads (.reqntid), got {block}")
    if 0 < kernel.max_threads < math.prod(block):
        raise RuleError(
            f"the kernel is compiled for at most {kernel.max_threads:,} threads a block (__launch_bounds__), got "
            f"{math.prod(block):,}"
        )


def check_shared(kernel: Kernel, dynamic: int) -> None:
    """Raises RuleError if a block takes more shared memory than exists. `dynamic`: bytes given at the launch."""
    numerals.check_whole("dynamic shared memory, in bytes,", dynamic)
    static = sum(v.size for v in kernel.variables if v.space == "shared")
    if static > MAX_STATIC_SHARED:
        raise RuleError(
            f"a kernel declares at most {MAX_STATIC_SHARED:,} bytes of shared memory, got {static:,}; "
            "more is dynamic: extern __shared__ and --shared"
        )
    if static + dynamic > MAX_SHARED:
        raise RuleError(
            f"a block has at most {MAX_SHARED:,} bytes of shared memory, "
            f"got {static:,} declared and {dynamic:,} dynamic"
        )


def check_memory(kernel: Kernel, grid: Dim, block: Dim, dynamic: int, arrays: Collection[Array]) -> None:
    """Raises RuleError if a run needs more of the host's memory than is free. Nothing is allocated yet.

    An array exists as its values, as the device's memory with a state for each byte, and as the values after the run.
    While an array is filled, its elements are doubles.
    """
    required = sum(4 * array.nbytes for array in arrays) + max((8 * math.prod(a.shape) for a in arrays), default=0)
    blocks = batches.at_once(kernel, grid, block, dynamic)
    required += blocks * batches.bytes_of_block(kernel, block, dynamic) + BYTES_OF_INDEX * math.prod(grid)
    free = free_bytes()
    if required > free:
        raise RuleError(
            f"this launch needs {required:,} bytes of the host's memory, {free:,} bytes are free; "
            "take smaller arrays or a smaller grid"
        )
