"""The rung of attention's backward pass on tensor cores: FP16 or BF16 in and out, sums in FP32.

P and dS are rounded to 16 bits before they are multiplied, and the gradients at the end. The error scale
(kernels.attention.backward.reference) includes this.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels.attention import common as attention
from kernels.attention.backward import common, cpu
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.attention.tensor_cores import MMA, PAD, padded
from kernels.i18n import mark
from kernels.model.launch import WARP, ampere, ceil, launch
from kernels.model.program import Launch, Program, Tiles
from kernels.model.rules import (
    MAX_REGISTERS,
    MAX_SHARED,
    REGISTERS,
    multiple_rules,
    shared_rules,
    thread_rules,
    too_many_registers,
)
from kernels.model.rung import Rung

OTHER_REGISTERS = 60  # per lane, besides those of sums: fragments, addresses
KEYS, QUERIES = 2, 1  # gradients that a block of each kernel owns: dK and dV, dQ
WIDEST = 64  # rows that pass a block at a time
REGISTERS_OF = {KEYS: "WM*(2*Bc + 2*DP)/32", QUERIES: "WM*(2*Bc + DP)/32"}
SHARED_OF = {KEYS: "4*(Br + STAGES*Bc)*(DP + 8) + 8*STAGES*Bc", QUERIES: "4*(Br + STAGES*Bc)*(DP + 8)"}


def registers(s: AttentionBackwardShape, owned: int, WM: int, Bc: int) -> int:
    """Returns the registers per lane: sums of S, dP and the gradients that the block owns, and the others."""
    return WM * (2 * Bc + owned * padded(s)) // 32 + OTHER_REGISTERS


def passing_rows(s: AttentionBackwardShape, owned: int, tiles: Tiles) -> int:
    """Returns the rows that pass a block at a time: Bc. The kernel of dQ owns fewer sums. It takes 2 Bc, if they fit its
    registers, so that it loads its own rows and waits half as often; small tiles stay small."""
    Bc = tiles["Bc"]
    fits = registers(s, owned, tiles["WM"], 2 * Bc) <= MAX_REGISTERS
    return 2 * Bc if owned == QUERIES and fits and MMA < Bc < WIDEST else Bc


def warp_rows(s: AttentionBackwardShape, owned: int, tiles: Tiles) -> int:
    """Returns the rows of a warp: WM, or 16 if WM rows would not fit its lanes' registers."""
    needed = registers(s, owned, tiles["WM"], passing_rows(s, owned, tiles))
    return tiles["WM"] if needed <= MAX_REGISTERS else MMA


def threads(s: AttentionBackwardShape, owned: int, tiles: Tiles) -> int:
    return tiles["Br"] // warp_rows(s, owned, tiles) * WARP


def shared(s: AttentionBackwardShape, owned: int, tiles: Tiles) -> int:
    """Returns the bytes of shared memory: two own tiles, STAGES times two that pass by; L and D of passing queries."""
    passing = tiles["STAGES"] * passing_rows(s, owned, tiles)
    return 4 * (tiles["Br"] + passing) * (padded(s) + PAD) + (8 * passing if owned == KEYS else 0)


def _launch(s: AttentionBackwardShape, tiles: Tiles, source: str, owned: int, *gradients: str) -> Launch:
    own, passing = tiles["Br"], passing_rows(s, owned, tiles)
    sizes = {"Bc": passing, "WM": warp_rows(s, owned, tiles), "DP": padded(s), "BF16": int(s.dtype == "bf16")}
    if owned == KEYS:
        cpu_function = cpu.flash_keys(passing, own, rounded=True)
    else:
        cpu_function = cpu.flash_queries(own, passing, rounded=True)
    return launch(
        source,
        (ceil(s.N, own), s.heads),
        threads(s, owned, tiles),
        common.arguments(s, *gradients),
        cpu_function,
        dict(tiles) | sizes,
        shared(s, owned, tiles),
    )


def build(s: AttentionBackwardShape, tiles: Tiles) -> Program:
    steps = (
        common.row_dots(s),
        _launch(s, tiles, "attention/12_flash_mma_keys.cu", KEYS, "dK", "dV"),
        _launch(s, tiles, "attention/12_flash_mma_queries.cu", QUERIES, "dQ"),
    )
    return Program(common.buffers(s), steps)


def rules(s: AttentionBackwardShape, tiles: Tiles) -> Iterator[str]:
    ahead = max(tiles["Br"], 2 * tiles["STAGES"] * tiles["Bc"])
    yield from attention.common_rules(s, ahead, attention.HALVES)
    yield from attention.head_rules(s)
    yield from common.dot_rules(s)
    if s.d <= attention.MAX_D:  # else no tiles fit
        yield from multiple_rules(tiles, ("Br", "WM"))
        for owned, formula in REGISTERS_OF.items():
            count, passing = threads(s, owned, tiles), passing_rows(s, owned, tiles)
            yield from thread_rules("32*Br/WM", count)
            needed = registers(s, owned, warp_rows(s, owned, tiles), passing)
            limit = min(MAX_REGISTERS, REGISTERS // max(count, WARP))
            if needed > limit:
                yield too_many_registers(f"{formula} + {OTHER_REGISTERS}", needed, limit, count)
            yield from shared_rules(SHARED_OF[owned], shared(s, owned, tiles), MAX_SHARED)


RUNGS: tuple[Rung, ...] = (
    common.rung_of_two_passes(
        "flash-mma",
        mark("flash backward, tensor cores"),
        mark(
            "Two kernels without atomics, their products by mma.sync in FP16 or BF16. P and dS never leave a "
            "warp's registers."
        ),
        build,
        rules,
        {"Br": (128, 64, 32, 16), "Bc": (32, 64, 16), "WM": (32, 16), "STAGES": (2, 3)},
        {"Br": 16, "Bc": 16, "WM": 16},
        {"Bc": 64},
        {"Bc": 64, "WM": 16},
        capability=ampere,
        not_on_cpu=mark("NumPy has no tensor cores; without them this is flash backward in two passes"),
    ),
)
