"""C = A x B on the processor: three loops, the same reordered, in blocks, and the library's. Only the cpu engine
runs these: they are about what this machine's caches do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from kernels.gemm import common, cpu_traffic
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.reference import gemm
from kernels.gemm.shape import GemmShape, parse_gemm
from kernels.machine import memory_levels
from kernels.machine.processor import THREADS, machine_rules
from kernels.model.program import WORKSPACE, Buffer, HostLoop, Program, Tiles
from kernels.model.rung import Cost, Ladder, Rung

BLOCKS = (64, 2, 4, 8, 12, 16, 24, 32, 48, 96, 128, 192, 256, 384, 512)
SHORT_BLOCK = 16  # loops shorter than this are slow whatever the caches do
MOST_MACS, MOST_MACS_SLOW, MOST_MACS_LIBRARY = 2**33, 2**31, 2**36  # each some ten seconds a run at most
# As of kernels.gemm.ladder: the same sums in the same type.
TOLERANCE = 1e-5


# -- programs -------------------------------------------------------------------------------------------
def _build(name: str, s: GemmShape, tiles: Tiles) -> Program:
    args, buffers = ("A", "B", "C"), common.buffers(s)
    if "BLOCK" in tiles:
        squares = tiles["THREADS"], tiles["BLOCK"], tiles["BLOCK"]
        scratch = [Buffer(of, WORKSPACE, squares) for of in ("As", "Bs", "Cs")]
        args, buffers = (*args, *(b.name for b in scratch)), (*buffers, *scratch)
    twin, prepare = partial(_run, name, tiles["THREADS"]), partial(_prepare, name)
    return Program(buffers, (HostLoop(name, "gemm/cpu_loops.py", args, twin, prepare),))


def _run(name: str, threads: int, *arrays: np.ndarray) -> None:
    from kernels.gemm import cpu_loops  # Numba is slow to import

    cpu_loops.run(name, threads, *arrays)


def _prepare(name: str) -> None:
    from kernels.gemm import cpu_loops

    cpu_loops.prepare(name)


# -- rules ----------------------------------------------------------------------------------------------
def _rules(name: str, s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from machine_rules(tiles)
    if s.dtype != "fp32":
        yield f"dtype must be fp32, got {s.dtype}"
    if s.alpha != 1 or s.beta != 0:
        yield f"alpha must be 1 and beta 0, got {s.alpha:g} and {s.beta:g}"
    slow = name == "naive" or tiles.get("BLOCK", SHORT_BLOCK) < SHORT_BLOCK
    most = MOST_MACS_LIBRARY if name == "blas" else MOST_MACS_SLOW if slow else MOST_MACS
    if s.macs > most:
        yield f"M*N*K <= {most:,} (some ten seconds a run), got {s.macs:,}"


def cost(name: str, s: GemmShape, program: Program) -> Cost:
    """FLOPs of the product; DRAM bytes by loops_traffic behind this processor's last cache, those of perfect
    caches for the library or where the system tells of no cache."""
    scratch = program.nbytes(WORKSPACE)
    if name == "blas" or not memory_levels.caches():
        return Cost(s.flops, s.bytes, scratch)
    last, block = memory_levels.caches()[-1], program.buffers[-1].shape[-1]  # of As where there is one
    moved = cpu_traffic.traffic(name, s, last.line_bytes, last.bytes, block)
    return Cost(s.flops, round(moved), scratch)


# -- the ladder -----------------------------------------------------------------------------------------
def _rung(name: str, title: str, idea: str, library: str = "") -> Rung:
    def bound(function: Callable) -> Callable:
        return partial(function, name)

    tiles = {"BLOCK": BLOCKS} if name == "blocked" else {}
    return Rung(
        f"loops/{name}", title, idea, bound(_build), bound(cost), bound(_rules), TOLERANCE,
        tiles | {"THREADS": THREADS}, library,
        no_scene="Loops on the processor are timed beside the kernels; no stage shows them",
    )  # fmt: skip


def _runs(s: GemmShape) -> bool:
    return s.dtype == "fp32" and (s.alpha, s.beta) == (1, 0) and s.macs <= MOST_MACS_SLOW


LADDER = Ladder(
    name="loops",
    shape=GemmShape,
    parse=parse_gemm,
    reference=gemm,
    presets={key: preset for key, preset in GEMM_PRESETS.items() if _runs(preset.shape)},
    engines=("cpu",),
    rungs=(
        _rung("naive", "naive", "Each element of C is a row of A times a column of B, down which nothing lies side by side."),
        _rung("reordered", "reordered", "The inner loops change places: everything read lies side by side, and vectors add it."),
        _rung("blocked", "blocked", "Squares of A and B are copied close and used BLOCK times before the next ones come."),
        _rung("blas", "NumPy BLAS", "The library: tiles for every cache and the registers.", "NumPy BLAS"),
    ),
)  # fmt: skip
