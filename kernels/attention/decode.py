"""The rung of decoding for Hopper: the copy engine (TMA) fills a ring of tiles for each warp, and one launch also merges."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.attention import common, hopper, variants, variants_cpu
from kernels.attention.shape import AttentionShape
from kernels.i18n import mark
from kernels.model.launch import WARP, ceil, launch, rung_factory
from kernels.model.launch import hopper as hopper_gpus
from kernels.model.program import WORKSPACE, Buffer, Program, Tiles
from kernels.model.rules import MAX_SHARED, broken, max_rules, shared_rules
from kernels.model.rung import HOPPER, TENSOR_CORES

BAND = 16  # rows of a product of mma.sync: the most rows of a block
PAIR = 8  # bytes of m and l
PADDING = 8  # floats after each row of sums


# -- programs -------------------------------------------------------------------------------------------
def block_rows(s: AttentionShape) -> int:
    """Returns the rows of a block: as equal as possible, at most BAND."""
    rows = variants.decode_rows(s)
    return ceil(rows, ceil(rows, BAND))


def row_blocks(s: AttentionShape) -> int:
    """Returns the number of blocks that share the rows of a head of keys."""
    return ceil(variants.decode_rows(s), block_rows(s))


def items(s: AttentionShape) -> int:
    """Returns the number of heads of keys, each with a block of rows."""
    return s.B * s.groups * row_blocks(s)


def rounds(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the rounds of keys of an item. In a round each warp has a tile."""
    return max(1, ceil(s.seen_keys, tiles["WARPS"] * tiles["TILE"]))


def blocks(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the number of blocks: at most BLOCKS, a round for each.

    If blocks with whole parts of one item have no more rounds than BLOCKS blocks, their number: then no block merges twice.
    """
    n, total = items(s), items(s) * rounds(s, tiles)
    most = min(tiles["BLOCKS"], total)
    longest = ceil(total, most)
    for parts_ in range(1, most // n + 1):
        if rounds(s, tiles) % parts_ == 0 and rounds(s, tiles) // parts_ <= longest:
            return n * parts_
    return most


def shares(s: AttentionShape, tiles: Tiles) -> np.ndarray:
    """Returns the number of blocks that have keys of each item."""
    n, each, count = items(s), rounds(s, tiles), blocks(s, tiles)
    first = np.arange(n, dtype=np.int64) * each
    block_of = [((x + 1) * count - 1) // (n * each) for x in (first, first + each - 1)]
    return block_of[1] - block_of[0] + 1


def parts(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the largest number of parts of an item, one for each block that has keys of it."""
    return int(shares(s, tiles).max())


def fitting(s: AttentionShape, tiles: Tiles) -> dict[str, int]:
    """Returns the tiles, with fewer stages if the sums of many rows leave no room for more."""
    return next(
        (
            found
            for n in range(tiles["STAGES"], 1, -1)
            if shared(s, found := dict(tiles) | {"STAGES": n}) <= MAX_SHARED
        ),
        dict(tiles),
    )


def shared(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the bytes of the rings, of the warps' sums o, of a barrier for each stage, and of m and l of each warp."""
    warp = tiles["STAGES"] * (4 * tiles["TILE"] * hopper.padded(s) + hopper.BARRIER)
    return tiles["WARPS"] * (warp + 4 * block_rows(s) * (hopper.padded(s) + PADDING) + BAND * PAIR)


def scratch(s: AttentionShape, tiles: Tiles) -> tuple[Buffer, ...]:
    """Returns the buffers of m and l [B, H, N, parts, 2] and o [B, H, N, parts, d] of each part, float32, of one element if
    there is one part, and the counters [B, kv_heads, row blocks]."""
    n = parts(s, tiles)
    shape = (s.B, s.H, s.N, n) if n > 1 else (1, 1, 1, 1)
    return (
        Buffer("part_ml", WORKSPACE, (*shape, 2)),
        Buffer("part_o", WORKSPACE, (*shape, s.d if n > 1 else 1)),
        Buffer("counters", WORKSPACE, (s.B, s.groups, row_blocks(s)), "uint32", zeroed=True),
    )


def build(s: AttentionShape, tiles: Tiles) -> Program:
    tiles = fitting(s, tiles)
    workspace, heads = scratch(s, tiles), s.B * s.groups
    keys, values = (hopper.map_of(name, s, tiles["TILE"], s.keys, heads) for name in "KV")
    names = tuple(b.name for b in workspace)
    numbers = (np.int32(n) for n in (heads, row_blocks(s), parts(s, tiles)))
    defines = {name: tiles[name] for name in ("WARPS", "TILE", "STAGES")}
    defines |= {"DP": hopper.padded(s), "BF16": int(s.dtype == "bf16"), "ROWS": block_rows(s)}
    step = launch(
        "attention/35_decode_ring.cu",
        (blocks(s, tiles),),
        WARP * tiles["WARPS"],
        (
            "Q", keys, values, *variants.inputs(s)[3:], *names, "O", *variants.extents(s, variants.decode_rows(s)), *numbers,
        ),
        variants_cpu.decode_ring,
        defines | variants.mask_define(s),
        shared(s, tiles),
    )  # fmt: skip
    return Program((*variants.buffers(s), *workspace), (step,))


# -- rules ----------------------------------------------------------------------------------------------
def rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    # Lanes compute the numbers of keys that are loaded STAGES rounds later.
    ahead = tiles["WARPS"] * tiles["TILE"] * (tiles["STAGES"] + 1)
    yield from variants.variant_rules(s, ahead, common.HALVES)
    yield from max_rules("H/kv_heads*N", variants.decode_rows(s), variants.MAX_ROWS)
    if s.d % 8:  # rows begin at multiples of 16 bytes, as the copy engine needs
        yield broken("d % 8 == 0", f"{s.d} % 8")
    if s.d <= common.MAX_D:
        formula = "WARPS*(STAGES*(4*TILE*DP + 8) + 4*rows*(DP + 8) + 128)"
        yield from shared_rules(formula, shared(s, fitting(s, tiles)), MAX_SHARED)


rung = rung_factory("attention", common.cost, common.TOLERANCE)

RUNGS = (
    rung(
        "flash-decode-ring",
        mark("decoding, rings of tiles"),
        mark(
            "The blocks share the keys of all heads equally. The copy engine (TMA) fills a ring of tiles for each warp. The last "
            "block of a head merges its parts."
        ),
        build,
        rules,
        {
            "WARPS": (8, 4, 2),
            "TILE": (16, 32),
            "STAGES": (3, 2, 4, 6),
            "BLOCKS": (132, 264, 528, 1056, 2112, 16, 8),
        },
        {"WARPS": 4, "BLOCKS": 264},
        {"WARPS": 2, "TILE": 16, "STAGES": 2, "BLOCKS": 8},
        capability=hopper_gpus,
        last_capability=HOPPER,
        units=TENSOR_CORES,
        not_on_cpu=mark("NumPy has no copy engine; without it this is decoding with keys in parts"),
        no_scene=mark("its parts and their merge are those of “decoding, keys in parts”, in one launch"),
    ),
)
