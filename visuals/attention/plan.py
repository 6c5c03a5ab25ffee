"""Tiles, threads and shared-memory traffic of each rung of flash attention, and the part of a head that is shown. The
arithmetic and the tile sizes are those of kernels/attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernels.attention import ladder, registers
from kernels.attention import tensor_cores as tensor
from kernels.attention.shape import SelfAttentionShape
from kernels.model.dtypes import ELEMENT_BYTES
from visuals.attention.parts import MAX_WHOLE
from visuals.scene.requests import WORD

LSE = "attention-lse/flash-registers"  # stores one more number of each row than attention/flash-registers
LOG2E = np.float32(1.44269504)
MAX_TILES, MAX_KEYS = 4, 48  # shown of those a block visits; at least two tiles
MAX_ROWS, MAX_HALF_ROWS = (
    4,
    2,
)  # of a block's queries, so that numbers fit the stage; tiles of 16-bit numbers are wider
MAX_COLS, FIRST_COLS = 8, 4  # a longer row is shown by its first columns


@dataclass(frozen=True)
class Plan:
    """One rung at given tile sizes. `lanes` share a row of a tile. `binary`: exponentials are powers of 2; log2 e is in Q or
    multiplies the scores. Shared memory contains `stages` tiles. `halves`: "" or the 16-bit type of Q, K, V, O, and of P
    in the product."""

    rung: str
    file: str
    Br: int
    Bc: int
    DP: int
    lanes: int
    threads: int
    traffic: Mapping[str, int]  # bytes of shared memory by kind of step, of all threads
    binary: bool = False
    stages: int = 1
    halves: str = ""

    @property
    def max_rows(self) -> int:
        """The queries of a block that are shown."""
        return MAX_HALF_ROWS if self.halves else MAX_ROWS

    @property
    def word(self) -> int:
        """Bytes of an element of Q, K, V and O."""
        return ELEMENT_BYTES[self.halves or "fp32"]

    def visited(self, s: SelfAttentionShape, block: int) -> int:
        """Returns the number of tiles of keys that a block visits, as the kernels' `end`."""
        last = block * self.Br + self.Br - 1
        return -(-(last + 1 if s.causal and last < s.N else s.N) // self.Bc)


def plan_of(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    """Returns the plan of a rung at a shape. tiles: all its tile sizes."""
    builders = {
        "attention/flash": _flash,
        "attention/flash-registers": _registers,
        "attention/flash-mma": _mma,
        LSE: _registers_lse,
    }
    return builders[rung](s, rung, tiles)


def _flash(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    Br, Bc, DP = tiles["Br"], tiles["Bc"], ladder.flash_padded(s, tiles)
    traffic = {
        "start": Br * DP,
        "K": Bc * DP,
        "V": Bc * DP,
        "scores": 2 * Br * Bc * DP,
        "P": Br * Bc,
        "O": Br * Bc * Bc * (1 + DP // Bc),
    }
    return Plan(rung, "attention/04_flash.cu", Br, Bc, DP, Bc, Br * Bc, _bytes(traffic, WORD))


def _registers(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    Br, Bc, defines = tiles["Br"], tiles["Bc"], registers.defines(s, tiles)
    DP, TM, threads, lanes = (defines["DP"], defines["TM"], registers.threads(s, tiles), registers.LANES_ACROSS)
    traffic = {
        "start": Br * DP,
        "K": Bc * DP,
        "V": Bc * DP,
        "scores": threads * (TM + Bc // lanes) * DP,
        "P": Br * Bc,
        "O": threads * (TM + DP // lanes) * Bc,
    }
    file = "attention/05_flash_registers.cu"
    return Plan(rung, file, Br, Bc, DP, lanes, threads, _bytes(traffic, WORD), binary=True)


def _registers_lse(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    return replace(_registers(s, rung, tiles), file="attention/14_flash_registers_lse.cu")


def _mma(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    Br, Bc, DP, WM = tiles["Br"], tiles["Bc"], tensor.padded(s), tensor.warp_rows(s, tiles)
    q_in_registers = (
        WM * (Bc + DP) // 32 + WM * DP // 64 <= 160
    )  # Q's fragments stay in registers: HELD of flash_mma.cuh
    warps = Br // WM
    traffic = {
        "start": Br * DP * (2 if q_in_registers else 1),
        "K": Bc * DP,
        "V": Bc * DP,
        "scores": warps * Bc * DP + (0 if q_in_registers else Br * DP),
        "O": warps * Bc * DP,
    }
    file, threads = "attention/06_flash_mma.cu", tensor.threads(s, tiles)
    return Plan(
        rung, file, Br, Bc, DP, 4, threads, _bytes(traffic, 2), binary=True, stages=tiles["STAGES"], halves=s.dtype
    )


def _bytes(elements: Mapping[str, int], each: int) -> dict[str, int]:
    return {kind: each * count for kind, count in elements.items()}


# -- parts ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Part:
    """What is shown: the followed blocks, `rows` of their queries from `first` on, the queries and keys of the matrices, their
    columns, and how many tiles of each block."""

    blocks: tuple[int, ...]
    first: int
    rows: int
    queries: range
    keys: int
    cols: int
    tiles: int


def part_of(s: SelfAttentionShape, plan: Plan) -> Part:
    """Returns a small head whole, and of it the first block and, if causal, the last. Of a larger head one block; if causal
    one with tiles to skip. Of a block the first queries; of a single causal one the last, which see the most keys."""
    blocks, cols = -(-s.N // plan.Br), s.d if s.d <= MAX_COLS else FIRST_COLS
    if s.N <= MAX_WHOLE:
        followed = (0, blocks - 1) if s.causal and blocks > 1 else (0,)
        inside = min(plan.Br, s.N)
        rows = min(inside, plan.max_rows)
        first = inside - rows if s.causal and blocks == 1 else 0
        return Part(followed, first, rows, range(s.N), s.N, cols, -(-s.N // plan.Bc))
    tiles = max(2, min(MAX_TILES, MAX_KEYS // plan.Bc))
    block = 0
    if s.causal:
        candidates = [b for b in range(min(blocks, tiles * plan.Bc)) if plan.visited(s, b) <= tiles]
        skipping = [b for b in candidates if plan.visited(s, b) < -(-s.N // plan.Bc)]
        block = max(skipping or candidates or [0])
    inside = min(plan.Br, s.N - block * plan.Br)
    rows = min(inside, plan.max_rows)
    first = inside - rows if s.causal else 0
    start = block * plan.Br + first
    return Part((block,), first, rows, range(start, start + rows), min(s.N, tiles * plan.Bc), cols, tiles)
