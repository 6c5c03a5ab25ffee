"""The rungs of attention's variants: another number of keys, heads that share keys, a window, capped scores, a mask.

flash-variants, flash-mma-variants and flash-wgmma-variants are flash attention with these. flash-decode is for few queries over many keys, as in
the decoding of a language model with a cache of keys and values: blocks share the keys, then their results are merged.
All leave plain self-attention to the other rungs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.attention import common, hopper, registers, tensor_cores, variants_cpu
from kernels.attention.shape import MASKS, AttentionShape
from kernels.i18n import mark, tr
from kernels.model.dtypes import ELEMENT_BYTES, INPUT_DTYPE
from kernels.model.launch import WARP, ampere, ampere_for, ceil, launch, rung_factory
from kernels.model.launch import hopper as hopper_gpus
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Arg, Buffer, Program, Tiles
from kernels.model.rules import (
    MAX_GRID_YZ,
    MAX_SHARED,
    broken,
    dtype_rules,
    extent_multiple_rules,
    index_rules,
    max_rules,
    shared_rules,
)
from kernels.model.rung import HOPPER, TENSOR_CORES

LANES = 8  # that share a key in kernels/attention/cuda/32_decode_parts.cu
MAX_ROWS = 64  # rows that share keys in flash-decode: queries times heads; more is no decoding


# -- programs -------------------------------------------------------------------------------------------
def buffers(s: AttentionShape) -> tuple[Buffer, ...]:
    """Returns the buffers of Q, K, V, the mask if there is one, and O."""
    dtype = INPUT_DTYPE[s.dtype]
    kv = (Buffer(name, INPUT, s.kv_shape, dtype) for name in "KV")
    return (Buffer("Q", INPUT, s.qkv_shape, dtype), *kv, *mask_buffers(s), Buffer("O", OUTPUT, s.qkv_shape, dtype))


def mask_buffers(s: AttentionShape) -> tuple[Buffer, ...]:
    if s.mask == "none":
        return ()
    shape = s.N, s.keys
    if s.mask == "bool":
        return (Buffer("mask", INPUT, shape, "uint8", below=2, mask=True),)
    return (Buffer("mask", INPUT, shape, INPUT_DTYPE[s.dtype], mask=True),)


def inputs(s: AttentionShape) -> tuple[Arg, ...]:
    return ("Q", "K", "V", *(b.name for b in mask_buffers(s)))


def extents(s: AttentionShape, heads: int) -> tuple[Arg, ...]:
    """Returns (N, M, d, heads, scale, causal, window, softcap), the last arguments of each kernel that computes scores."""
    sizes = (np.int32(n) for n in (s.N, s.keys, s.d, heads))
    return (*sizes, np.float32(s.factor), np.int32(s.causal), np.int32(s.window), np.float32(s.softcap))


def mask_define(s: AttentionShape) -> dict[str, int]:
    return {"MASK": MASKS.index(s.mask)}


def build_flash(s: AttentionShape, tiles: Tiles) -> Program:
    step = launch(
        "attention/30_flash_variants.cu",
        (ceil(s.N, tiles["Br"]), s.heads),
        registers.threads(s, tiles),
        (*inputs(s), "O", *extents(s, s.sharing)),
        variants_cpu.flash(tiles["Br"], tiles["Bc"]),
        registers.defines(s, tiles) | mask_define(s),
        registers.shared(s, tiles),
    )
    return Program(buffers(s), (step,))


def build_mma(s: AttentionShape, tiles: Tiles) -> Program:
    step = launch(
        "attention/31_flash_mma_variants.cu",
        (ceil(s.N, tiles["Br"]), s.heads),
        tensor_cores.threads(s, tiles),
        (*inputs(s), "O", *extents(s, s.sharing)),
        variants_cpu.flash(tiles["Br"], tiles["Bc"], rounds=True),
        tensor_cores.defines(s, tiles) | mask_define(s),
        tensor_cores.shared(s, tiles),
    )
    return Program(buffers(s), (step,))


def wgmma_tiles(s: AttentionShape, tiles: Tiles) -> dict[str, int]:
    """Returns the tiles of two consumers if three have too few registers: at d > 64, or with the loads of a mask."""
    if s.mask != "none" or s.d > hopper.BOX:
        two = {"Br": 2 * hopper.WM, "Bc": hopper.BOX if s.mask != "none" and s.d > hopper.BOX else tiles["Bc"]}
        return dict(tiles) | two
    return dict(tiles)


def build_wgmma(s: AttentionShape, tiles: Tiles) -> Program:
    tiles = wgmma_tiles(s, tiles)
    maps = (
        hopper.map_of("Q", s, tiles["Br"]),
        hopper.map_of("K", s, tiles["Bc"], s.keys, s.B * s.groups),
        hopper.map_of("V", s, tiles["Bc"], s.keys, s.B * s.groups),
        *inputs(s)[3:],
    )
    step = launch(
        "attention/34_flash_wgmma_variants.cu",
        (ceil(s.N, tiles["Br"]), s.heads),
        hopper.WARPGROUP * (tiles["Br"] // hopper.WM + 1),
        (*maps, "O", *extents(s, s.sharing)),
        variants_cpu.flash(tiles["Br"], tiles["Bc"], rounds=True),
        dict(tiles) | {"DP": hopper.padded(s), "BF16": int(s.dtype == "bf16")} | mask_define(s),
        hopper.shared(s, tiles),
    )
    return Program(buffers(s), (step,))


def decode_rows(s: AttentionShape) -> int:
    """Returns the rows of scores that share keys: the queries of the heads that have the same keys."""
    return s.sharing * s.N


def block_rows(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the rows of a block: as equal as possible, at most ROWS."""
    return ceil(decode_rows(s), ceil(decode_rows(s), tiles["ROWS"]))


def decode_padded(s: AttentionShape) -> int:
    """Returns d padded to a power of 2 and to 16 bytes for each lane of a key."""
    return max(LANES * 16 // ELEMENT_BYTES[s.dtype], 1 << (s.d - 1).bit_length())


def parts(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the number of parts of the keys that some query may see, at least 1."""
    return max(1, ceil(s.seen_keys, tiles["PART"]))


def decode_defines(s: AttentionShape) -> dict[str, int]:
    return {"BYTES": ELEMENT_BYTES[s.dtype], "BF16": int(s.dtype == "bf16"), "DP": decode_padded(s)}


def decode_shared(s: AttentionShape, tiles: Tiles) -> int:
    return 4 * block_rows(s, tiles) * (tiles["PART"] + tiles["THREADS"] // WARP * decode_padded(s))


def part_buffers(s: AttentionShape, tiles: Tiles) -> tuple[Buffer, ...]:
    """Returns the buffers of m and l [B, H, N, parts] and o [B, H, N, parts, d] of each part, float32."""
    shape = (s.B, s.H, s.N, parts(s, tiles))
    return (
        Buffer("part_m", WORKSPACE, shape),
        Buffer("part_l", WORKSPACE, shape),
        Buffer("part_o", WORKSPACE, (*shape, s.d)),
    )


def build_decode(s: AttentionShape, tiles: Tiles) -> Program:
    rows, scratch = decode_rows(s), part_buffers(s, tiles)
    names = tuple(b.name for b in scratch)
    split = launch(
        "attention/32_decode_parts.cu",
        (parts(s, tiles), ceil(rows, block_rows(s, tiles)), s.B * s.groups),
        tiles["THREADS"],
        (*inputs(s), *names, *extents(s, rows)),
        variants_cpu.decode_parts(tiles["PART"]),
        dict(tiles) | decode_defines(s) | mask_define(s) | {"ROWS": block_rows(s, tiles)},
        decode_shared(s, tiles),
    )
    merge = launch(
        "attention/33_decode_merge.cu",
        (s.heads * s.N,),
        decode_padded(s),
        (*names, "O", np.int32(parts(s, tiles)), np.int32(s.d)),
        variants_cpu.decode_merge,
        decode_defines(s),
    )
    return Program((*buffers(s), *scratch), (split, merge))


# -- rules ----------------------------------------------------------------------------------------------
def variant_rules(s: AttentionShape, ahead: int, dtypes: tuple[str, ...]) -> Iterator[str]:
    """Yields the rules of all rungs with variants. A tile may extend beyond the matrix by up to `ahead` queries or keys."""
    if not s.variants:
        yield tr("one of M, kv_heads, window, softcap and mask must be set, got none")
    yield from dtype_rules(s, *dtypes)
    yield from max_rules("B*H (grid)", s.heads, MAX_GRID_YZ)
    yield from index_rules({"N + M + window": s.N + s.keys + s.window, "d": s.d}, ahead)
    yield from common.head_rules(s)


def flash_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from variant_rules(s, max(tiles["Br"], tiles["Bc"]), ("fp32",))
    yield from registers.tile_rules(s, tiles)


def mma_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from variant_rules(s, max(tiles["Br"], tiles["STAGES"] * tiles["Bc"]), common.HALVES)
    yield from tensor_cores.tile_rules(s, tiles)


def wgmma_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from variant_rules(s, max(tiles["Br"], tiles["STAGES"] * tiles["Bc"]), common.HALVES)
    yield from extent_multiple_rules(8, d=s.d)  # rows begin at multiples of 16 bytes, as the copy engine needs
    if s.d <= common.MAX_D:
        formula = "2*DP*(Br + 2*STAGES*Bc) + 8*(2 + 4*STAGES)"
        yield from shared_rules(formula, hopper.shared(s, wgmma_tiles(s, tiles)), MAX_SHARED)


def decode_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from variant_rules(s, tiles["PART"], ("fp32", *common.HALVES))
    yield from max_rules("H/kv_heads*N", decode_rows(s), MAX_ROWS)
    step = tiles["THREADS"] // LANES * tiles["BATCH"]
    if tiles["PART"] % step:
        yield broken("PART % (THREADS/8*BATCH) == 0", f"{tiles['PART']} % {step}")
    if s.d <= common.MAX_D:
        yield from shared_rules("4*rows*(PART + THREADS/32*DP)", decode_shared(s, tiles), MAX_SHARED)


rung = rung_factory("attention", common.cost, common.TOLERANCE)

RUNGS = (
    rung(
        "flash-variants",
        mark("flash attention, variants"),
        mark(
            "As flash attention with register tiles. Heads may share keys. A window, a cap or a mask changes the scores, and "
            "tiles outside the window are not loaded."
        ),
        build_flash,
        flash_rules,
        {"Br": (128, 64, 32), "Bc": (64, 32, 16, 8), "TM": (8, 4)},
        {"Br": 32, "Bc": 8},
        {"Br": 64, "TM": 4},
        capability=ampere,
        cpu_title=mark("flash attention with variants, in tiles"),
        cpu_tiles=("Br", "Bc"),
    ),
    rung(
        "flash-mma-variants",
        mark("variants on tensor cores"),
        mark("The same in FP16 or BF16, with both products by mma.sync."),
        build_mma,
        mma_rules,
        {"Br": (128, 64, 32, 16), "Bc": (64, 32, 16, 128), "WM": (32, 16), "STAGES": (2, 3)},
        {"Br": 16, "Bc": 16, "WM": 16},
        {"Br": 64},
        {"WM": 16},
        capability=ampere,
        not_on_cpu=mark("NumPy has no tensor cores; without them this is flash attention with variants"),
    ),
    rung(
        "flash-wgmma-variants",
        mark("variants, wgmma and TMA"),
        mark(
            "The same with Hopper's instructions: a producer loads by TMA, consumers multiply by wgmma and take turns."
        ),
        build_wgmma,
        wgmma_rules,
        {"Br": (192, 128), "Bc": (128, 64), "STAGES": (2, 3)},
        {"Br": 128, "Bc": 64},
        capability=hopper_gpus,
        last_capability=HOPPER,
        units=TENSOR_CORES,
        not_on_cpu=mark("NumPy has no tensor cores; without them this is flash attention with variants"),
    ),
    rung(
        "flash-decode",
        mark("decoding, keys in parts"),
        mark(
            "For few queries: blocks share the keys of a sequence. Each computes the softmax of its part. A second kernel "
            "merges the parts by their maxima and sums."
        ),
        build_decode,
        decode_rules,
        {
            "PART": (256, 128, 512, 64, 32, 16, 8),
            "ROWS": (8, 4, 2, 1),
            "THREADS": (256, 128, 64, 32),
            "BATCH": (4, 2, 1),
        },
        {"PART": 128, "THREADS": 128},
        {"PART": 8, "THREADS": 32, "BATCH": 1},
        capability=ampere_for(*common.HALVES),  # its output is rounded in pairs by cvt.f16x2
        cpu_title=mark("keys in parts, then merged"),
        cpu_tiles=("PART",),
    ),
)
