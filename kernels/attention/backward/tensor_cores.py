"""The rung of attention's backward pass on tensor cores: FP16 or BF16 in and out, sums in FP32.

P and dS are rounded to 16 bits before they are multiplied, and the gradients at the end. The error scale
(kernels.attention.backward.reference) includes this.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels.attention import common as attention
from kernels.attention.backward import common, cpu
from kernels.attention.backward.shape import BackwardShape
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


def registers(s: BackwardShape, owned: int, WM: int, Bc: int) -> int:
    """Returns the registers per lane: sums of S, dP and the gradients that the block owns, and the others."""
    return WM * (2 * Bc + owned * padded(s)) // 32 + OTHER_REGISTERS


def warp_rows(s: BackwardShape, owned: int, tiles: Tiles) -> int:
    """Returns the rows of a warp: WM, or 16 if WM rows would not fit its lanes' registers."""
    return tiles["WM"] if registers(s, owned, tiles["WM"], tiles["Bc"]) <= MAX_REGISTERS else MMA


def threads(s: BackwardShape, owned: int, tiles: Tiles) -> int:
    return tiles["Br"] // warp_rows(s, owned, tiles) * WARP


def shared(s: BackwardShape, owned: int, tiles: Tiles) -> int:
    """Returns the bytes of shared memory: two own tiles, STAGES times two that pass by; L and D of passing queries."""
    rows, passing = tiles["Br"], tiles["STAGES"] * tiles["Bc"]
    return 4 * (rows + passing) * (padded(s) + PAD) + (8 * passing if owned == KEYS else 0)


def _launch(s: BackwardShape, tiles: Tiles, source: str, owned: int, cpu_function, *gradients: str) -> Launch:
    defines = dict(tiles) | {
        "WM": warp_rows(s, owned, tiles), "DP": padded(s), "BF16": int(s.dtype == "bf16"),
    }  # fmt: skip
    return launch(
        source,
        (ceil(s.N, tiles["Br"]), s.heads),
        threads(s, owned, tiles),
        common.arguments(s, *gradients),
        cpu_function,
        defines,
        shared(s, owned, tiles),
    )


def build(s: BackwardShape, tiles: Tiles) -> Program:
    own, passing = tiles["Br"], tiles["Bc"]
    for_keys, for_queries = (
        cpu.flash_keys(passing, own, rounded=True),
        cpu.flash_queries(own, passing, rounded=True),
    )
    steps = (
        common.row_dots(s),
        _launch(s, tiles, "attention/12_flash_mma_keys.cu", KEYS, for_keys, "dK", "dV"),
        _launch(s, tiles, "attention/12_flash_mma_queries.cu", QUERIES, for_queries, "dQ"),
    )
    return Program(common.buffers(s), steps)


def rules(s: BackwardShape, tiles: Tiles) -> Iterator[str]:
    ahead = max(tiles["Br"], tiles["STAGES"] * tiles["Bc"])
    yield from attention.common_rules(s, ahead, attention.HALVES)
    yield from attention.head_rules(s)
    yield from common.dot_rules(s)
    if s.d <= attention.MAX_D:  # else no tiles fit
        yield from multiple_rules(tiles, ("Br", "WM"))
        count = threads(s, KEYS, tiles)
        yield from thread_rules("32*Br/WM", count)
        needed = registers(s, KEYS, warp_rows(s, KEYS, tiles), tiles["Bc"])
        limit = min(MAX_REGISTERS, REGISTERS // max(count, WARP))
        if needed > limit:
            yield too_many_registers(f"WM*(2*Bc + 2*DP)/32 + {OTHER_REGISTERS}", needed, limit, count)
        formula = "4*(Br + STAGES*Bc)*(DP + 8) + 8*STAGES*Bc"
        yield from shared_rules(formula, shared(s, KEYS, tiles), MAX_SHARED)


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
