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

from kernels.attention import hopper
from kernels.attention.shape import AttentionShape
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from kernels.model.rung import Rung


def requested_bytes(rung: Rung, s: AttentionShape, tiles: Tiles) -> int | None:
    """Returns the bytes that all threads load and store, or None for a library's rung."""
    count = KERNELS.get(rung.name.partition("/")[2])
    return count and s.heads * ELEMENT_BYTES[s.dtype] * int(count(s, tiles))


def tiles_visited(s: AttentionShape, queries: int, keys: int) -> int:
    """Returns the number of tiles `queries` x `keys` that flash attention visits for a head.

    Tiles of only hidden keys are skipped.
    """
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


KERNELS: Mapping[str, Callable[[AttentionShape, Tiles], int]] = {
    "naive": _naive,
    "blocked": _blocked,
    "fused": _fused,
    "flash": _flash,
    "flash-registers": _flash,
    "flash-mma": _flash,
    "wgmma": _wgmma,
    **{f"wgmma-{name}": _wgmma for name in ("consumers", "ping-pong", "overlap", "balanced")},
}
