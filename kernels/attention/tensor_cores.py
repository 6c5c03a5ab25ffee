"""The rung of the attention ladder on tensor cores: FP16 or BF16 in and out, sums in FP32.

P is rounded to the type of V before it is multiplied, and O at the end. The error scale (kernels.attention.reference)
includes this rounding and that of a float32 computation, so all rungs have the same tolerance. Tensor cores truncate
sums where FMA units round, up to 2^-23 of the sum for every 8 products. This is 1.2e-4 of O at N = 8,192, a sixteenth
of what is allowed for the rounding of P in FP16.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels.attention import common, cpu
from kernels.attention.shape import AttentionShape, SelfAttentionShape
from kernels.i18n import mark
from kernels.model.launch import WARP, ampere, ceil, launch, rung_factory
from kernels.model.program import Program, Tiles
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

MMA = 16  # rows of a factor of mma.sync, and columns of Q and K that it multiplies at once
PAD = 8  # halves after each row in shared memory
OTHER_REGISTERS = 31  # per lane, besides those of S, O and Q


def padded(s: SelfAttentionShape) -> int:
    """Returns d rounded up to whole steps of mma.sync."""
    return ceil(s.d, MMA) * MMA


def registers(s: SelfAttentionShape, WM: int, Bc: int) -> int:
    """Returns the registers per lane: sums of S and O, fragments of Q, and the others."""
    return WM * (2 * Bc + 3 * padded(s)) // 64 + OTHER_REGISTERS


def warp_rows(s: SelfAttentionShape, tiles: Tiles) -> int:
    """Returns the rows of a warp: WM, or 16 if WM rows would not fit its lanes' registers."""
    return tiles["WM"] if registers(s, tiles["WM"], tiles["Bc"]) <= MAX_REGISTERS else MMA


def defines(s: SelfAttentionShape, tiles: Tiles) -> dict[str, int]:
    """Returns the defines of kernels/attention/cuda/06_flash_mma.cu."""
    return dict(tiles) | {"WM": warp_rows(s, tiles), "DP": padded(s), "BF16": int(s.dtype == "bf16")}


def threads(s: SelfAttentionShape, tiles: Tiles) -> int:
    return tiles["Br"] // warp_rows(s, tiles) * WARP


def shared(s: SelfAttentionShape, tiles: Tiles) -> int:
    """Returns the bytes of shared memory: Q, and STAGES times K and V."""
    return 2 * (tiles["Br"] + 2 * tiles["STAGES"] * tiles["Bc"]) * (padded(s) + PAD)


def build(s: AttentionShape, tiles: Tiles) -> Program:
    Br, Bc = tiles["Br"], tiles["Bc"]
    step = launch(
        "attention/06_flash_mma.cu",
        (ceil(s.N, Br), s.heads),
        threads(s, tiles),
        common.arguments(s),
        cpu.flash_mma(Br, Bc),
        defines(s, tiles),
        shared(s, tiles),
    )
    return Program(common.buffers(s), (step,))


def rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from common.common_rules(s, max(tiles["Br"], tiles["STAGES"] * tiles["Bc"]), common.HALVES)
    yield from common.head_rules(s)
    yield from tile_rules(s, tiles)


def tile_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of the tile sizes alone."""
    if s.d <= common.MAX_D:  # else no tiles fit
        yield from multiple_rules(tiles, ("Br", "WM"))
        count = threads(s, tiles)
        yield from thread_rules("32*Br/WM", count)
        needed, max_registers = (
            registers(s, warp_rows(s, tiles), tiles["Bc"]),
            min(MAX_REGISTERS, REGISTERS // max(count, WARP)),
        )
        if needed > max_registers:
            yield too_many_registers(f"WM*(2*Bc + 3*DP)/64 + {OTHER_REGISTERS}", needed, max_registers, count)
        formula = "2*(Br + 2*STAGES*Bc)*(DP + 8)"
        yield from shared_rules(formula, shared(s, tiles), MAX_SHARED)


RUNGS: tuple[Rung, ...] = (
    rung_factory("attention", common.cost, common.TOLERANCE)(
        "flash-mma",
        mark("flash attention, tensor cores"),
        mark(
            "As flash attention, with both products by mma.sync in FP16 or BF16. S, P and O never leave a warp's "
            "registers."
        ),
        build,
        rules,
        {"Br": (128, 64, 32, 16, 256), "Bc": (64, 32, 16, 128), "WM": (32, 16), "STAGES": (2, 3)},
        {"Br": 16, "Bc": 16, "WM": 16},
        {"Br": 64},
        {"Bc": 128},
        {"WM": 16},
        capability=ampere,
        not_on_cpu=mark("NumPy has no tensor cores; without them this is flash attention in FP32"),
    ),
)
