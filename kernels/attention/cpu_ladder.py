"""Attention on the CPU: naive, in blocks, a query at a time, by tiles as flash attention, and with a library's products.

Only the cpu engine runs these rungs. They show the effect of this machine's caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from kernels.attention import common, cpu_traffic, revealing
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.reference import TOLERANCE
from kernels.attention.reference import attention as reference
from kernels.attention.shape import VARIANTS, AttentionShape, parse_attention
from kernels.i18n import decimal, mark, tr
from kernels.machine import memory_levels
from kernels.machine.processor import THREADS, machine_rules
from kernels.model.program import WORKSPACE, Buffer, HostLoop, Program, Tiles
from kernels.model.rules import dtype_rules
from kernels.model.rung import Cost, Ladder, Rung

BLOCKS = (64, 8, 16, 32, 128, 256)  # kernels/attention/cpu_loops.py has scratch for the largest of these and of SIDES
SIDES = (32, 4, 8, 16, 64, 128)
MAX_MACS, MAX_MACS_SLOW, MAX_MACS_LIBRARY = 2**34, 2**32, 2**35  # each takes about five seconds a run at most
MAX_MACS_BY_RUNG = {"naive": MAX_MACS_SLOW, "blas": MAX_MACS_LIBRARY}
CHOICES: dict[str, dict[str, tuple[int, ...]]] = {"blocked": {"BLOCK": BLOCKS}, "flash": {"Br": SIDES, "Bc": SIDES}}


# -- programs -------------------------------------------------------------------------------------------
def _scratch(name: str, s: AttentionShape, tiles: Tiles) -> tuple[Buffer, ...]:
    """Returns the buffers allocated besides Q, K, V and O: S of the current head, or a row of S for each thread.

    The tiles of flash attention and the transposed keys of a block are on the stacks of the threads.
    """
    if name == "flash":
        return ()
    if name == "fused":
        return (Buffer("rows", WORKSPACE, (tiles["THREADS"], s.N)),)
    return (Buffer("S", WORKSPACE, (s.N, s.N)),)


def _build(name: str, s: AttentionShape, tiles: Tiles) -> Program:
    scratch = _scratch(name, s, tiles)
    sides = (np.int64(tiles[side]) for side in CHOICES.get(name, ()))
    args = ("Q", "K", "V", "O", np.float32(s.factor), np.int64(s.causal), *sides, *(b.name for b in scratch))
    cpu_function, prepare = partial(_run, name, tiles["THREADS"]), partial(_prepare, name)
    return Program(
        (*common.buffers(s), *scratch), (HostLoop(name, "attention/cpu_loops.py", args, cpu_function, prepare),)
    )


def _run(name: str, threads: int, *args) -> None:
    from kernels.attention import cpu_loops  # Numba is slow to import

    cpu_loops.run(name, threads, *args)


def _prepare(name: str) -> None:
    from kernels.attention import cpu_loops

    cpu_loops.prepare(name)


def stack_bytes(name: str, tiles: Tiles) -> int:
    """Returns the stack bytes of a thread at these tile sizes: transposed keys, a tile of scores, m and l."""
    if name == "blocked":
        return cpu_traffic.FLOAT * cpu_traffic.DEEP * tiles["BLOCK"]
    if name != "flash":
        return 0
    Br, Bc = tiles["Br"], tiles["Bc"]
    return cpu_traffic.FLOAT * (cpu_traffic.DEEP * Bc + Br * Bc + 2 * Br)


# -- rules ----------------------------------------------------------------------------------------------
def _rules(name: str, s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from machine_rules(tiles)
    yield from dtype_rules(s, "fp32")
    yield from common.plain_rules(s)
    max_macs = MAX_MACS_BY_RUNG.get(name, MAX_MACS)
    if s.macs > max_macs:
        yield tr(
            "2*d*pairs <= {limit} (about five seconds per run), got {macs}",
            limit=decimal(f"{max_macs:,}"),
            macs=decimal(f"{s.macs:,}"),
        )


# -- cost -----------------------------------------------------------------------------------------------
def cost(name: str, s: AttentionShape, program: Program) -> Cost:
    """Returns the FLOPs of the visible pairs and the DRAM bytes that cpu_traffic predicts for this CPU's last cache.

    The library multiplies the hidden pairs too. For it, or if the system reports no cache, the bytes are those of
    perfect caches.
    """
    scratch, caches = program.nbytes(WORKSPACE), memory_levels.caches()
    flops = s.with_(causal=0).flops if name == "blas" else s.flops
    if name == "blas" or not caches:
        return Cost(flops, s.bytes + 2 * scratch, scratch)
    sides = dict(zip(CHOICES.get(name, ()), map(int, np.array(program.steps[0].args[6:])), strict=False))
    dram_bytes = cpu_traffic.traffic(name, s, caches[-1].line_bytes, caches[-1].bytes, sides)
    return Cost(flops, round(dram_bytes), scratch)


# -- the ladder -----------------------------------------------------------------------------------------
def _rung(name: str, title: str, idea: str, library: str = "") -> Rung:
    def bound(function: Callable) -> Callable:
        return partial(function, name)

    tiles = CHOICES.get(name, {}) | {"THREADS": THREADS}
    return Rung(
        f"attention-loops/{name}",
        title,
        idea,
        bound(_build),
        bound(cost),
        bound(_rules),
        TOLERANCE,
        tiles,
        library,
        no_scene=mark("the loops on the processor are timed, but they have no animation"),
    )


LADDER = Ladder(
    name="attention-loops",
    shape=AttentionShape,
    parse=parse_attention,
    reference=reference,
    revealing=revealing.inputs,
    presets={
        key: preset
        for key, preset in ATTENTION_PRESETS.items()
        if preset.shape.dtype == "fp32" and preset.shape.macs <= MAX_MACS_SLOW and not preset.shape.variants
    },
    later_fields=VARIANTS,
    engines=("cpu",),
    swept=("paper-cpu",),
    rungs=(
        _rung("naive", mark("naive"), mark(
            "Each score and each result is one sum, added one element after the other. S holds all scores of a "
            "head."
        )),
        _rung("blocked", mark("blocked"), mark(
            "Both products are computed in blocks, and vector instructions add to several sums at once. S still "
            "holds all scores of a head."
        )),
        _rung("fused", mark("fused, one query at a time"), mark("Each thread keeps one row of S. Every query reads all of K and V.")),
        _rung("flash", mark("flash attention"), mark(
            "Br queries are compared with one tile of Bc keys after the other. Of S, one tile is kept, on the "
            "thread’s stack."
        )),
        _rung("blas", mark("NumPy BLAS + softmax"), mark(
            "The library computes the products, and NumPy’s vectorized exponential the softmax. All of S is "
            "stored between them."
        ), "NumPy BLAS"),
    ),
)  # fmt: skip
