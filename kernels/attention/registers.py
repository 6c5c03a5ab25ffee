"""The launch of flash attention with register tiles: its defines, threads, shared memory, and the rules of its tile sizes."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.attention import common as parts
from kernels.attention.shape import AttentionShape, SelfAttentionShape
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from kernels.model.rules import MAX_SHARED, multiple_rules, shared_rules, thread_rules

LANES_DOWN, LANES_ACROSS = 4, 8  # of a warp's tile in kernels/attention/cuda/05_flash_registers.cu
WIDE = 64  # at a larger d a lane has more columns of O, and half as many rows


def defines(s: SelfAttentionShape, tiles: Tiles) -> dict[str, int]:
    """Returns the defines of kernels/attention/cuda/05_flash_registers.cu.

    d is padded to whole float4 for each of the lanes across. If d is larger than WIDE, a lane has half as many rows.
    """
    DP = ceil(s.d, 4 * LANES_ACROSS) * 4 * LANES_ACROSS
    return dict(tiles) | {"DP": DP, "TM": tiles["TM"] // 2 if DP > WIDE else tiles["TM"]}


def threads(s: SelfAttentionShape, tiles: Tiles) -> int:
    return tiles["Br"] // defines(s, tiles)["TM"] * LANES_ACROSS


def shared(s: SelfAttentionShape, tiles: Tiles) -> int:
    Br, Bc, DP = tiles["Br"], tiles["Bc"], defines(s, tiles)["DP"]
    return 4 * ((Br + Bc) * (DP + 4) + Bc * DP + Br * (Bc + 8))


def tile_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of the tile sizes alone."""
    if s.d <= parts.MAX_D:  # else no tiles fit
        yield from multiple_rules(tiles, ("Br", LANES_DOWN * tiles["TM"]))
        yield from thread_rules("8*Br/TM", threads(s, tiles))
        formula = "4*((Br + Bc)*(DP + 4) + Bc*DP + Br*(Bc + 8))"
        yield from shared_rules(formula, shared(s, tiles), MAX_SHARED)
