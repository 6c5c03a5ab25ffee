"""Tiles of each rung of attention's backward pass, and the part of a head that is shown. The arithmetic and the tile sizes
are those of kernels/attention/backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.attention.backward import tensor_cores
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.model.dtypes import ELEMENT_BYTES

ATOMIC, TWO, MMA = (f"attention-backward/{name}" for name in ("flash", "flash-two-kernels", "flash-mma"))
MAX_WHOLE = 32  # queries and keys of a head that is shown whole
MAX_TILE = 16  # rows shown of a larger tile
MAX_PASSING = 2  # tiles that pass by one by one; three if there are no more
MAX_COLS, FIRST_COLS = 8, 4  # a longer row is shown by its first columns


@dataclass(frozen=True)
class Plan:
    """One rung at given tile sizes: `queries` and `keys` of the tiles of the kernel of dK and dV, then of that of dQ.

    `atomic`: one kernel adds parts of dQ to memory. `halves`: "" or the 16-bit type of the tensors."""

    rung: str
    key_kernel: tuple[int, int]
    query_kernel: tuple[int, int]
    atomic: bool = False
    halves: str = ""

    @property
    def word(self) -> int:
        """Bytes of an element of Q, K, V and the gradients."""
        return ELEMENT_BYTES[self.halves or "fp32"]


def plan_of(s: AttentionBackwardShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    """Returns the plan of a rung of flash attention. tiles: all its tile sizes."""
    Br, Bc = tiles["Br"], tiles["Bc"]
    if rung == MMA:  # a block owns Br rows, and Bc rows pass by
        keys = tensor_cores.passing_rows(s, tensor_cores.QUERIES, tiles)
        return Plan(rung, (Bc, Br), (Br, keys), halves=s.dtype)
    return Plan(rung, (Br, Bc), (Br, Bc), atomic=rung == ATOMIC)


def tiles_of(first: int, end: int, size: int) -> list[range]:
    """Returns the tiles from `first` on, the last one cut at `end`."""
    return [range(i, min(i + size, end)) for i in range(first, end, size)]


def query_tiles(s: AttentionBackwardShape, plan: Plan, keys: range) -> list[range]:
    """Returns the tiles of queries that a block of keys visits. If causal, it begins with the tile of its first key."""
    Br = plan.key_kernel[0]
    return tiles_of(keys.start // Br * Br if s.causal else 0, s.N, Br)


def key_tiles(s: AttentionBackwardShape, queries: range, size: int) -> list[range]:
    """Returns the tiles of `size` keys that some queries visit: all, or if causal those up to the last query."""
    end = min(queries.stop - 1, s.N - 1) + 1 if s.causal else s.N
    return [range(t.start, min(t.start + size, s.N)) for t in tiles_of(0, end, size)]


@dataclass(frozen=True)
class Part:
    """What is shown: the followed blocks of keys and of queries, rows of global memory by queries and by keys, and the
    columns."""

    key_blocks: tuple[int, ...]
    query_block: int
    queries: range
    keys: range
    cols: int


def part_of(s: AttentionBackwardShape, plan: Plan) -> Part:
    """Returns a small head whole, and of it the first block of keys and, if causal, the last. Of a larger head one block of
    keys (if causal the second, which skips queries) and the queries that pass by first."""
    cols = s.d if s.d <= MAX_COLS else FIRST_COLS
    Br, Bc = plan.key_kernel
    blocks = -(-s.N // Bc)
    if s.N <= MAX_WHOLE:
        followed = (0, blocks - 1) if s.causal and blocks > 1 else (0,)
        last_queries = (-(-s.N // plan.query_kernel[0])) - 1
        return Part(followed, last_queries if s.causal else 0, range(s.N), range(s.N), cols)
    block = 1 if s.causal and blocks > 1 else 0
    keys = range(block * Bc, min(block * Bc + min(Bc, MAX_TILE), s.N))
    first = keys.start // Br * Br if s.causal else 0
    queries = range(first, min(s.N, first + (MAX_PASSING * Br if 2 * Br <= MAX_WHOLE else min(Br, MAX_TILE))))
    return Part((block,), first // plan.query_kernel[0], queries, keys, cols)


def shown(tile: range, within: range) -> range:
    """Returns the rows of a tile that the stage shows: the first MAX_TILE of those in global memory's part."""
    rows = range(max(tile.start, within.start), min(tile.stop, within.stop))
    return rows[:MAX_TILE]
