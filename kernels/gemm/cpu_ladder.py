"""C = A x B on the CPU: three loops, the same loops reordered, in blocks, and a library's.

Only the cpu engine runs these rungs. They show the effect of this machine's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from kernels.gemm import common, cpu_traffic
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.reference import gemm
from kernels.gemm.shape import GemmShape, parse_gemm
from kernels.i18n import decimal, mark, tr
from kernels.machine import memory_levels
from kernels.machine.processor import THREADS, machine_rules
from kernels.model.program import WORKSPACE, Buffer, HostLoop, Program, Tiles
from kernels.model.rules import dtype_rules
from kernels.model.rung import Cost, Ladder, Rung

BLOCKS = (64, 2, 4, 8, 12, 16, 24, 32, 48, 96, 128, 192, 256, 384, 512)
SHORT_BLOCK = 16  # shorter loops are slow at any cache size
MAX_MACS, MAX_MACS_SLOW, MAX_MACS_LIBRARY = 2**33, 2**31, 2**36  # each takes about ten seconds a run at most
# The same as in kernels.gemm.ladder: the same sums in the same type.
TOLERANCE = 1e-5


# -- programs -------------------------------------------------------------------------------------------
def _build(name: str, s: GemmShape, tiles: Tiles) -> Program:
    args, buffers = ("A", "B", "C"), common.buffers(s)
    if "BLOCK" in tiles:
        squares = tiles["THREADS"], tiles["BLOCK"], tiles["BLOCK"]
        scratch = [Buffer(scratch_name, WORKSPACE, squares) for scratch_name in ("As", "Bs", "Cs")]
        args, buffers = (*args, *(b.name for b in scratch)), (*buffers, *scratch)
    cpu_function, prepare = partial(_run, name, tiles["THREADS"]), partial(_prepare, name)
    return Program(buffers, (HostLoop(name, "gemm/cpu_loops.py", args, cpu_function, prepare),))


def _run(name: str, threads: int, *arrays: np.ndarray) -> None:
    from kernels.gemm import cpu_loops  # Numba is slow to import

    cpu_loops.run(name, threads, *arrays)


def _prepare(name: str) -> None:
    from kernels.gemm import cpu_loops

    cpu_loops.prepare(name)


# -- rules ----------------------------------------------------------------------------------------------
def _rules(name: str, s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from machine_rules(tiles)
    yield from dtype_rules(s, "fp32")
    if s.alpha != 1 or s.beta != 0:
        yield tr("alpha must be 1 and beta 0, got {alpha} and {beta}", alpha=f"{s.alpha:g}", beta=f"{s.beta:g}")
    slow = name == "naive" or tiles.get("BLOCK", SHORT_BLOCK) < SHORT_BLOCK
    max_macs = MAX_MACS_LIBRARY if name == "blas" else MAX_MACS_SLOW if slow else MAX_MACS
    if s.macs > max_macs:
        yield tr(
            "M*N*K <= {limit} (about ten seconds per run), got {macs}",
            limit=decimal(f"{max_macs:,}"),
            macs=decimal(f"{s.macs:,}"),
        )


def cost(name: str, s: GemmShape, program: Program) -> Cost:
    """Returns the FLOPs of the product and the DRAM bytes that cpu_traffic predicts for this CPU's last cache.

    For the library, or if the system reports no cache, the bytes are those of perfect caches.
    """
    scratch = program.nbytes(WORKSPACE)
    if name == "blas" or not memory_levels.caches():
        return Cost(s.flops, s.bytes, scratch)
    last_cache, block = memory_levels.caches()[-1], program.buffers[-1].shape[-1]  # of Cs, if there is one
    dram_bytes = cpu_traffic.traffic(name, s, last_cache.line_bytes, last_cache.bytes, block)
    return Cost(s.flops, round(dram_bytes), scratch)


# -- the ladder -----------------------------------------------------------------------------------------
def _rung(name: str, title: str, idea: str, library: str = "") -> Rung:
    def bound(function: Callable) -> Callable:
        return partial(function, name)

    tiles = {"BLOCK": BLOCKS} if name == "blocked" else {}
    return Rung(
        f"loops/{name}",
        title,
        idea,
        bound(_build),
        bound(cost),
        bound(_rules),
        TOLERANCE,
        tiles | {"THREADS": THREADS},
        library,
        no_scene=mark("the loops on the processor are timed, but they have no animation"),
    )


def _is_supported(s: GemmShape) -> bool:
    return s.dtype == "fp32" and (s.alpha, s.beta) == (1, 0) and s.macs <= MAX_MACS_SLOW


LADDER = Ladder(
    name="loops",
    shape=GemmShape,
    parse=parse_gemm,
    reference=gemm,
    presets={key: preset for key, preset in GEMM_PRESETS.items() if _is_supported(preset.shape)},
    engines=("cpu",),
    rungs=(
        _rung(
            "naive",
            mark("naive"),
            mark("Each element of C is a row of A times a column of B. The elements of a column are not contiguous."),
        ),
        _rung(
            "reordered",
            mark("reordered"),
            mark("The inner loops are exchanged. Every read is contiguous, and vector instructions add."),
        ),
        _rung(
            "blocked",
            mark("blocked"),
            mark(
                "Square blocks of A and B are copied to contiguous memory. Each value is used BLOCK times before the "
                "next blocks are copied."
            ),
        ),
        _rung(
            "blas",
            mark("NumPy BLAS"),
            mark("The library, with tiles for every cache and for the registers."),
            "NumPy BLAS",
        ),
    ),
)
