"""Bytes that the threads of a rung of the attention ladder request from global memory.

A formula of its kernels' loads and stores, no simulation. It does not separate cache hits from HBM bytes.

A tile that a block loads to shared memory is counted once. A thread that loads without shared memory is counted for
each load. With tiles of Br queries, K and V are loaded ceil(N / Br) times. With a row at a time they are loaded N
times. This is the Theta(N^2 d^2 / M) of FlashAttention (arXiv 2205.14135): a larger block memory M allows a larger
Br. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.attention import decode, hopper, variants
from kernels.attention.shape import AttentionShape
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from kernels.model.rung import Rung


def requested_bytes(rung: Rung, s: AttentionShape, tiles: Tiles) -> int | None:
    """Returns the bytes that all threads load and store, or None for a library's rung."""
    if s.variants:
        kernel = VARIANT_KERNELS.get(rung.name.partition("/")[2])
        return kernel and int(kernel(s, tiles))
    count = KERNELS.get(rung.name.partition("/")[2])
    return count and s.heads * ELEMENT_BYTES[s.dtype] * int(count(s, tiles))


def tiles_visited(s: AttentionShape, queries: int, keys: int) -> int:
    """Returns the number of tiles `queries` x `keys` that flash attention visits for a head.

    Tiles of only hidden keys are skipped.
    """
    if s.variants:
        begin, end = _span(s, queries)
        return int(np.maximum(-(-end // keys) - begin // keys, 0).sum())
    return int((-(-_visible_keys(s, queries) // keys)).sum())


# -- elements of one head ------------------------------------------------------------------------------
def _naive(s: AttentionShape, tiles: Tiles) -> int:
    scores = 2 * s.d * _pairs(s) + _pairs(s)
    return scores + _softmax(s) + 2 * s.d * _pairs(s) + s.N * s.d


def _blocked(s: AttentionShape, tiles: Tiles) -> int:
    side = tiles["TILE"]
    rows, keys = _blocks(s, side, side)
    tiles_across = -(-keys // side)
    scores = s.d * (rows * tiles_across + keys) + rows * keys  # Q and K in, S out
    values = ceil(s.d, side) * rows * keys + s.d * keys  # P and V in
    return int((scores + values).sum()) + _softmax(s) + s.N * s.d


def _softmax(s: AttentionShape) -> int:
    """Returns the elements of three passes over the visible keys of S and one over P."""
    return 3 * _pairs(s) + s.N * s.N


def _fused(s: AttentionShape, tiles: Tiles) -> int:
    return 2 * s.d * _pairs(s) + 2 * s.N * s.d


def _flash(s: AttentionShape, tiles: Tiles) -> int:
    _, keys = _blocks(s, tiles["Br"], tiles["Bc"])
    return 2 * s.d * int(keys.sum()) + 2 * s.N * s.d


def _wgmma(s: AttentionShape, tiles: Tiles) -> int:
    return _flash(s, hopper.fitting(s, tiles))


def _balanced(s: AttentionShape, tiles: Tiles) -> int:
    return _in_pairs(s, hopper.fitting(s, tiles))


def _persistent(s: AttentionShape, tiles: Tiles) -> int:
    return _in_pairs(s, hopper.fitting_persistent(s, tiles))


def _in_pairs(s: AttentionShape, tiles: Tiles) -> int:
    """If causal, a tile of queries in the middle has no other one, and the first tile is loaded once more in its place."""
    again = s.causal and ceil(s.N, tiles["Br"]) % 2
    return _flash(s, tiles) + (min(tiles["Br"], s.N) * s.d if again else 0)


def _pairs(s: AttentionShape) -> int:
    return s.pairs // s.heads


def _blocks(s: AttentionShape, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (queries, keys loaded) of each block of `queries` queries.

    A block loads tiles of `keys` keys up to the last key that one of its queries sees.
    """
    rows = np.minimum(queries, s.N - np.arange(0, s.N, queries, dtype=np.int64))
    return rows, np.minimum(-(-_visible_keys(s, queries) // keys) * keys, s.N)


def _visible_keys(s: AttentionShape, queries: int) -> np.ndarray:
    """Return, for each block of `queries` queries, the number of keys up to the last that one of them sees."""
    first = np.arange(0, s.N, queries, dtype=np.int64)
    return np.minimum(first + queries, s.N) if s.causal else np.full_like(first, s.N)


# -- variants: bytes of the whole batch ------------------------------------------------------------------
def _span(s: AttentionShape, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for each block of `queries` queries, the first key that one of them sees and the key after the last."""
    firsts = range(0, s.N, queries)
    begin = [s.begin_key(first) for first in firsts]
    end = [s.end_key(min(first + queries, s.N) - 1) for first in firsts]
    return np.array(begin, np.int64), np.array(end, np.int64)


def _mask(s: AttentionShape) -> int:
    """Returns the bytes of the mask that are loaded: an element for each pair that causal and window leave visible."""
    return 0 if s.mask == "none" else s.pairs * s.mask_bytes


def _flash_variants(s: AttentionShape, tiles: Tiles) -> int:
    begin, end = _span(s, tiles["Br"])
    first, last = begin // tiles["Bc"] * tiles["Bc"], -(-end // tiles["Bc"]) * tiles["Bc"]
    keys = int(np.where(end > first, np.minimum(last, s.keys) - first, 0).sum())
    first_copy = (
        int(np.where(end > first, 0, np.minimum(s.keys - first, tiles["Bc"])).sum()) if s.dtype == "fp32" else 0
    )
    elements = s.heads * s.d * (2 * keys + first_copy + 2 * s.N)
    return ELEMENT_BYTES[s.dtype] * elements + _mask(s)


def _wgmma_variants(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the bytes of each tile with a key that some query of the block sees, of one tile if there is none."""
    tiles = variants.wgmma_tiles(s, tiles)
    begin, end = _span(s, tiles["Br"])
    first = begin // tiles["Bc"] * tiles["Bc"]
    last = np.maximum(-(-end // tiles["Bc"]) * tiles["Bc"], first + tiles["Bc"])
    keys = int((np.minimum(last, s.keys) - np.minimum(first, s.keys)).sum())
    return ELEMENT_BYTES[s.dtype] * s.heads * s.d * (2 * keys + 2 * s.N) + _mask(s)


def _decode(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the bytes of both kernels. Each 8 threads load a row of Q, each thread of the merge m and l of each part."""
    word, parts = ELEMENT_BYTES[s.dtype], variants.parts(s, tiles)
    groups, rows = s.B * s.groups, variants.decode_rows(s)
    row_blocks = ceil(rows, variants.block_rows(s, tiles))
    loads = parts * rows * s.d * (tiles["THREADS"] // variants.LANES)
    loads += 2 * s.d * min(parts * tiles["PART"], s.keys - s.begin_key(0)) * row_blocks  # whole parts
    stored = 4 * parts * rows * (2 + s.d)
    merged = 4 * 4 * parts * rows * s.d + word * rows * s.d
    return groups * (word * loads + stored + merged) + _mask(s)


def _decode_ring(s: AttentionShape, tiles: Tiles) -> int:
    """Returns the bytes of all blocks. Each warp loads the rows of Q. The tiles of a part follow one another, so that only
    the last one of all extends beyond the seen keys. With several parts, blocks store and load them, and reset a counter.
    """
    word, parts, rows = ELEMENT_BYTES[s.dtype], decode.parts(s, tiles), variants.decode_rows(s)
    blocks = decode.row_blocks(s)
    keys = min(ceil(s.seen_keys, tiles["TILE"]) * tiles["TILE"], s.keys - s.begin_key(0))
    loads = parts * rows * s.d * tiles["WARPS"] + 2 * s.d * keys * blocks
    merged = 4 * parts * rows * (2 + s.d) + 4 * 4 * parts * rows * s.d + 4 * blocks if parts > 1 else 0
    return s.B * s.groups * (word * (loads + rows * s.d) + merged) + _mask(s)


VARIANT_KERNELS: Mapping[str, Callable[[AttentionShape, Tiles], int]] = {
    "flash-variants": _flash_variants,
    "flash-mma-variants": _flash_variants,
    "flash-wgmma-variants": _wgmma_variants,
    "flash-decode": _decode,
    "flash-decode-ring": _decode_ring,
}
KERNELS: Mapping[str, Callable[[AttentionShape, Tiles], int]] = {
    "naive": _naive,
    "blocked": _blocked,
    "fused": _fused,
    "flash": _flash,
    "flash-registers": _flash,
    "flash-mma": _flash,
    "wgmma": _wgmma,
    **{f"wgmma-{name}": _wgmma for name in ("consumers", "ping-pong", "overlap")},
    "wgmma-balanced": _balanced,
    "wgmma-persistent": _persistent,
}
