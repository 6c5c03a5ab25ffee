"""Attention on the processor: naive, in blocks, a query at a time, by tiles as flash attention, and the library's
products. Only the cpu engine runs these: they are about what this machine's caches hold anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from kernels.attention import common as parts
from kernels.attention import cpu_traffic as traffic
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.reference import TOLERANCE
from kernels.attention.reference import attention as reference
from kernels.attention.shape import AttentionShape, parse_attention
from kernels.machine import memory_levels
from kernels.machine.processor import THREADS, machine_rules
from kernels.model.program import WORKSPACE, Buffer, HostLoop, Program, Tiles
from kernels.model.rung import Cost, Ladder, Rung

BLOCKS = (
    64,
    8,
    16,
    32,
    128,
    256,
)  # the longest, and that of a tile: kernels/attention/cpu_loops.py has scratch for it
SIDES = (32, 4, 8, 16, 64, 128)
MOST_MACS, MOST_MACS_SLOW, MOST_MACS_LIBRARY = 2**34, 2**32, 2**35  # each some five seconds a run at most
MOST = {"naive": MOST_MACS_SLOW, "blas": MOST_MACS_LIBRARY}
CHOICES: dict[str, dict[str, tuple[int, ...]]] = {
    "blocked": {"BLOCK": BLOCKS},
    "flash": {"Br": SIDES, "Bc": SIDES},
}


# -- programs -------------------------------------------------------------------------------------------
def _scratch(name: str, s: AttentionShape, tiles: Tiles) -> tuple[Buffer, ...]:
    """All that is allocated beside Q, K, V and O: S of the head that is at work, or a row of it for each thread. The
    tiles of flash attention, and the keys that a block turns round, lie on the stacks of the threads."""
    if name == "flash":
        return ()
    if name == "fused":
        return (Buffer("rows", WORKSPACE, (tiles["THREADS"], s.N)),)
    return (Buffer("S", WORKSPACE, (s.N, s.N)),)


def _build(name: str, s: AttentionShape, tiles: Tiles) -> Program:
    scratch = _scratch(name, s, tiles)
    sides = (np.int64(tiles[of]) for of in CHOICES.get(name, ()))
    args = ("Q", "K", "V", "O", np.float32(s.factor), np.int64(s.causal), *sides, *(b.name for b in scratch))
    twin, prepare = partial(_run, name, tiles["THREADS"]), partial(_prepare, name)
    return Program(
        (*parts.buffers(s), *scratch), (HostLoop(name, "attention/cpu_loops.py", args, twin, prepare),)
    )


def _run(name: str, threads: int, *args) -> None:
    from kernels.attention import cpu_loops  # Numba is slow to import

    cpu_loops.run(name, threads, *args)


def _prepare(name: str) -> None:
    from kernels.attention import cpu_loops

    cpu_loops.prepare(name)


def stack_bytes(name: str, tiles: Tiles) -> int:
    """What a thread uses of its stack at these tile sizes: keys turned round, a tile of scores, m and l."""
    if name == "blocked":
        return traffic.FLOAT * traffic.DEEP * tiles["BLOCK"]
    if name != "flash":
        return 0
    Br, Bc = tiles["Br"], tiles["Bc"]
    return traffic.FLOAT * (traffic.DEEP * Bc + Br * Bc + 2 * Br)


# -- rules ----------------------------------------------------------------------------------------------
def _rules(name: str, s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from machine_rules(tiles)
    if s.dtype != "fp32":
        yield f"dtype must be fp32, got {s.dtype}"
    most = MOST.get(name, MOST_MACS)
    if s.macs > most:
        yield f"2*d*pairs <= {most:,} (some five seconds a run), got {s.macs:,}"


# -- cost -----------------------------------------------------------------------------------------------
def cost(name: str, s: AttentionShape, program: Program) -> Cost:
    """FLOPs of the pairs that are seen (the library multiplies the hidden ones too); DRAM bytes behind this
    processor's last cache by attention_loops_traffic, those of perfect caches for the library or where the system
    tells of no cache."""
    scratch, caches = program.nbytes(WORKSPACE), memory_levels.caches()
    flops = s.with_(causal=0).flops if name == "blas" else s.flops
    if name == "blas" or not caches:
        return Cost(flops, s.bytes + 2 * scratch, scratch)
    sides = dict(zip(CHOICES.get(name, ()), map(int, program.steps[0].args[6:]), strict=False))
    moved = traffic.traffic(name, s, caches[-1].line_bytes, caches[-1].bytes, sides)
    return Cost(flops, round(moved), scratch)


# -- the ladder -----------------------------------------------------------------------------------------
def _rung(name: str, title: str, idea: str, library: str = "") -> Rung:
    def bound(function: Callable) -> Callable:
        return partial(function, name)

    tiles = CHOICES.get(name, {}) | {"THREADS": THREADS}
    return Rung(
        f"attention-loops/{name}", title, idea, bound(_build), bound(cost), bound(_rules), TOLERANCE, tiles, library,
        no_scene="Loops on the processor are timed beside the kernels; no stage shows them",
    )  # fmt: skip


LADDER = Ladder(
    name="attention-loops",
    shape=AttentionShape,
    parse=parse_attention,
    reference=reference,
    presets={
        key: preset
        for key, preset in ATTENTION_PRESETS.items()
        if preset.shape.dtype == "fp32" and preset.shape.macs <= MOST_MACS_SLOW
    },
    engines=("cpu",),
    swept=("paper-cpu",),
    rungs=(
        _rung("naive", "naive", "Each score, and each result, is one sum, one addition after the other; all scores of a head lie in S."),
        _rung("blocked", "blocked", "Both products in blocks, with additions side by side; all scores of a head still lie in S."),
        _rung("fused", "fused, a query at a time", "Of S there is a row for each thread; K and V pass by for every query."),
        _rung("flash", "flash attention", "Br queries walk over tiles of Bc keys; of S there is one tile, on the thread’s stack."),
        _rung("blas", "NumPy BLAS + softmax", "The library’s products and NumPy’s vectorized exponential, with S whole between them.", "NumPy BLAS"),
    ),
)  # fmt: skip
