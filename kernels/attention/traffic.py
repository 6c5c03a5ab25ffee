"""How many bytes the threads of a rung of the attention ladder ask for in global memory: a formula of its kernels' loads
and stores, no simulation. What of it comes from the caches and what from HBM it does not say.

A tile that a block fetches to shared memory is asked for once, whoever uses it; a thread that loads for itself asks
each time. With tiles of Br queries K and V are asked for ceil(N / Br) times, where a row at a time asks N times: the
Theta(N^2 d^2 / M) of FlashAttention (arXiv 2205.14135), for a block's memory M lets Br grow. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.attention.shape import AttentionShape
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from kernels.model.rung import Rung


def asked(rung: Rung, s: AttentionShape, tiles: Tiles) -> int | None:
    """Bytes that all threads load and store; None for a rung of which only a library knows."""
    count = KERNELS.get(rung.name.partition("/")[2])
    return count and s.heads * ELEMENT_BYTES[s.dtype] * int(count(s, tiles))


def tiles_visited(s: AttentionShape, queries: int, keys: int) -> int:
    """Tiles of so many queries by keys that flash attention visits for a head: those of hidden keys alone it leaves out."""
    return int((-(-_seen(s, queries) // keys)).sum())


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
    """Three passes over the keys seen of S, one over P."""
    return 3 * _pairs(s) + s.N * s.N


def _fused(s: AttentionShape, tiles: Tiles) -> int:
    return 2 * s.d * _pairs(s) + 2 * s.N * s.d


def _flash(s: AttentionShape, tiles: Tiles) -> int:
    _, keys = _blocks(s, tiles["Br"], tiles["Bc"])
    return 2 * s.d * int(keys.sum()) + 2 * s.N * s.d


def _pairs(s: AttentionShape) -> int:
    return s.pairs // s.heads


def _blocks(s: AttentionShape, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """(queries, keys fetched) of each block of so many queries, that walks over tiles of so many keys up to the last
    that one of its queries sees."""
    rows = np.minimum(queries, s.N - np.arange(0, s.N, queries, dtype=np.int64))
    return rows, np.minimum(-(-_seen(s, queries) // keys) * keys, s.N)


def _seen(s: AttentionShape, queries: int) -> np.ndarray:
    """The keys up to the last that one of the queries sees, of each block of so many queries."""
    first = np.arange(0, s.N, queries, dtype=np.int64)
    return np.minimum(first + queries, s.N) if s.causal else np.full_like(first, s.N)


KERNELS: Mapping[str, Callable[[AttentionShape, Tiles], int]] = {
    "naive": _naive,
    "blocked": _blocked,
    "fused": _fused,
    "flash": _flash,
    "flash-registers": _flash,
    "flash-mma": _flash,
}
