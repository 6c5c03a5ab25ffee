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
from kernels.model.rules import MAX_SHARED, extent_multiple_rules, max_rules, shared_rules
from kernels.model.rung import HOPPER, TENSOR_CORES

BAND = 16  # rows of a product of mma.sync: the most rows of a block
PAIR = 8  # bytes of m and l


# -- programs -------------------------------------------------------------------------------------------
def block_rows(s: AttentionShape) -> int:
    """Returns the rows of a block: as equal as possible, at most BAND."""
    rows = variants.decode_rows(s)
    return ceil(rows, ceil(rows, BAND))


def row_blocks(s: AttentionShape) -> int:
    """Returns the number of blocks that share the rows of a head of keys."""
    return ceil(variants.decode_rows(s), block_rows(s))


def part(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the keys of a part: as few as at most BLOCKS blocks allow, and a tile for each warp or a multiple of that."""
    most = max(1, tiles["BLOCKS"] // (s.B * s.groups * row_blocks(s)))
    round_ = tiles["WARPS"] * tiles["TILE"]
    return max(1, ceil(ceil(s.seen_keys, most), round_)) * round_


def parts(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the number of parts of the keys that some query may see, at least 1."""
    return max(1, ceil(s.seen_keys, part(s, tiles)))


def shared(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the bytes of the rings, of a barrier for each stage, and of m and l of each warp's rows."""
    stages = tiles["WARPS"] * tiles["STAGES"]
    tile = 2 * tiles["TILE"] * hopper.padded(s)
    return stages * (2 * tile + hopper.BARRIER) + tiles["WARPS"] * BAND * PAIR


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
    workspace, rows = scratch(s, tiles), variants.decode_rows(s)
    keys, values = (hopper.map_of(name, s, tiles["TILE"], s.keys, s.B * s.groups) for name in "KV")
    names = tuple(b.name for b in workspace)
    extents = (*variants.extents(s, rows), np.int32(part(s, tiles)))
    defines = {name: tiles[name] for name in ("WARPS", "TILE", "STAGES")}
    defines |= {"DP": hopper.padded(s), "BF16": int(s.dtype == "bf16"), "ROWS": block_rows(s)}
    step = launch(
        "attention/35_decode_ring.cu",
        (parts(s, tiles), row_blocks(s), s.B * s.groups),
        WARP * tiles["WARPS"],
        ("Q", keys, values, *variants.inputs(s)[3:], *names, "O", *extents),
        variants_cpu.decode_ring,
        defines | variants.mask_define(s),
        shared(s, tiles),
    )
    return Program((*variants.buffers(s), *workspace), (step,))


# -- rules ----------------------------------------------------------------------------------------------
def rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    # Lanes compute the numbers of keys that are loaded STAGES rounds later.
    ahead = tiles["WARPS"] * tiles["TILE"] * (tiles["STAGES"] + 1)
    yield from variants.variant_rules(s, ahead, common.HALVES)
    yield from max_rules("H/kv_heads*N", variants.decode_rows(s), variants.MAX_ROWS)
    yield from extent_multiple_rules(8, d=s.d)  # rows begin at multiples of 16 bytes, as the copy engine needs
    if s.d <= common.MAX_D:
        formula = "WARPS*(STAGES*(4*TILE*DP + 8) + 128)"
        yield from shared_rules(formula, shared(s, tiles), MAX_SHARED)


rung = rung_factory("attention", common.cost, common.TOLERANCE)

RUNGS = (
    rung(
        "flash-decode-ring",
        mark("decoding, rings of tiles"),
        mark(
            "The copy engine (TMA) fills a ring of tiles for each warp. The heads of a group are the rows of one product on "
            "tensor cores. The last block of a head merges the parts."
        ),
        build,
        rules,
        {
            "WARPS": (8, 4, 2),
            "TILE": (16, 32),
            "STAGES": (3, 2, 6),
            "BLOCKS": (132, 264, 528, 8),  # of 132 multiprocessors
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
