"""The threads of a launch: a slot for each, warp by warp, and the special registers that identify it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

LANES = 32
Dim = tuple[int, int, int]
Groups = dict[int, np.ndarray]  # threads (bool, one a slot) by the instruction they are at


class Threads:
    """A slot for each lane of each warp of the blocks that run together: all of the grid, or `at_once` blocks, batch after batch. Lanes
    beyond the block's size have a slot but do not exist. `order`: "forward", "reversed" or the seed of a shuffle, of the warps in a
    batch and of the batches' blocks. `ranks`: the grid is launched on as many GPUs, all blocks of one after those of the other.
    `cluster`: blocks of a cluster along x, y, z.

    `number`: a thread's number in the grid, one a slot. A block's begin at a multiple of `padded`, so that number // 32 is a warp."""

    def __init__(
        self,
        grid: Dim,
        block: Dim,
        order: str | int = "forward",
        ranks: int = 1,
        cluster: Dim = (1, 1, 1),
        at_once: int | None = None,
    ):
        self.grid, self.block, self.order, self.ranks, self.cluster = grid, block, order, ranks, cluster
        self._blocks_of_rank = math.prod(grid)
        self.in_grid = self._blocks_of_rank * ranks
        self.blocks = min(at_once or self.in_grid, self.in_grid)
        warps = -(-math.prod(block) // LANES)
        self.padded, self.slots = warps * LANES, self.blocks * warps * LANES
        warp = np.repeat(permutation(order, self.blocks * warps), LANES)
        self.block_of = warp // warps  # which block of the batch
        self.thread_of = (warp % warps) * LANES + np.tile(np.arange(LANES), self.blocks * warps)
        self._batches = self._blocks_of_batches(order)
        self.batches = len(self._batches)
        self.begin(0)
        self.rank_of = np.maximum(self.index_of, 0) // self._blocks_of_rank
        self.cluster_size = int(np.prod(cluster))
        self.blocks_of_cluster = self._blocks_of_clusters()  # [clusters, rank in the cluster]
        self.cluster_of_block = np.empty(self.in_grid, np.intp)
        self.cluster_of_block[self.blocks_of_cluster] = np.arange(len(self.blocks_of_cluster))[:, None]

    def _blocks_of_batches(self, order: str | int) -> np.ndarray:
        """Returns the linear index of the blocks of each batch, -1 for no block."""
        count = -(-self.in_grid // self.blocks)
        index = np.full(count * self.blocks, -1)
        index[: self.in_grid] = permutation("forward" if count == 1 or order == "reversed" else order, self.in_grid)
        batches = index.reshape(count, self.blocks)
        return batches[::-1] if order == "reversed" else batches

    def begin(self, batch: int) -> None:
        """Give the slots to the threads of a batch."""
        self.blocks_here = self._batches[batch]
        self.index_of = self.blocks_here[self.block_of]  # of each slot's block in the grid
        self.number = self.index_of * self.padded + self.thread_of
        self.exists = (self.thread_of < math.prod(self.block)) & (self.index_of >= 0)

    def _blocks_of_clusters(self) -> np.ndarray:
        """Returns the linear index of each block by (cluster, rank in the cluster)."""
        z, y, x = (n // c for n, c in zip(self.grid[::-1], self.cluster[::-1], strict=True))
        cx, cy, cz = self.cluster
        index = np.arange(self.in_grid).reshape(self.ranks, z, cz, y, cy, x, cx)
        return index.transpose(0, 1, 3, 5, 2, 4, 6).reshape(-1, self.cluster_size)

    def special(self, name: str) -> np.ndarray | np.generic | None:
        """Returns the value of a special register such as "tid.x" as uint32; None if it is not emulated."""
        axis = "xyz".find(name[-1]) if "." in name else 0
        lane = (self.thread_of % LANES).astype(np.uint64)
        bit = np.uint64(1) << lane
        match name.partition(".")[0]:
            case "ntid":
                return np.uint32(self.block[axis])
            case "nctaid":
                return np.uint32(self.grid[axis])
            case "nclusterid":
                return np.uint32(self.grid[axis] // self.cluster[axis])
            case "tid":
                return _along(self.thread_of, self.block, axis)
            case "ctaid":
                return self._of_block(axis)
            case "clusterid":
                return (self._of_block(axis) // np.uint32(self.cluster[axis])).astype(np.uint32)
            case "cluster_ctaid":
                return (self._of_block(axis) % np.uint32(self.cluster[axis])).astype(np.uint32)
            case "cluster_nctaid":
                return np.uint32(self.cluster[axis])
            case "cluster_ctarank":
                return self.cluster_rank.astype(np.uint32)
            case "cluster_nctarank":
                return np.uint32(self.cluster_size)
            case "is_explicit_cluster":
                return np.uint32(self.cluster_size > 1)
            case "laneid":
                return lane.astype(np.uint32)
            case "warpid":
                return (self.thread_of // LANES).astype(np.uint32)
            case "nwarpid":
                return np.uint32(-(-math.prod(self.block) // LANES))
            case "lanemask_eq":
                return bit.astype(np.uint32)
            case "lanemask_lt":
                return (bit - np.uint64(1)).astype(np.uint32)
            case "lanemask_le":
                return (2 * bit - np.uint64(1)).astype(np.uint32)
            case "lanemask_ge":
                return (~(bit - np.uint64(1))).astype(np.uint32)
            case "lanemask_gt":
                return (~(2 * bit - np.uint64(1))).astype(np.uint32)
            # One multiprocessor holds all blocks.
            case "smid" | "gridid":
                return np.uint32(0)
            case "nsmid":
                return np.uint32(1)
        return None

    def _of_block(self, axis: int) -> np.ndarray:
        """Returns blockIdx along an axis, one a slot; a scalar if all are equal."""
        index = _along(self.blocks_here % self._blocks_of_rank, self.grid, axis)
        return index[self.block_of] if index.ndim else index

    @property
    def cluster_of(self) -> np.ndarray:
        """The cluster of each slot."""
        return self.cluster_of_block[self.index_of]

    @property
    def cluster_rank(self) -> np.ndarray:
        """The rank of each slot's block in its cluster."""
        return (self.blocks_of_cluster[self.cluster_of] == self.index_of[:, None]).argmax(axis=1)

    def warp_rows(self) -> np.ndarray:
        """Returns the row of 32 slots of each warp, by (block, warp of the block)."""
        warps = -(-int(np.prod(self.block)) // LANES)
        rows = np.empty((self.blocks, warps), np.int64)
        rows[self.block_of[::LANES], self.thread_of[::LANES] // LANES] = np.arange(self.slots // LANES)
        return rows

    def thread(self, slot: int) -> str:
        """Returns threadIdx of a slot as text for a message."""
        return str(_xyz(int(self.thread_of[slot]), self.block))

    def block_at(self, slot: int) -> str:
        """Returns blockIdx of a slot as text for a message, with its rank if there are several."""
        return self.block_text(int(self.index_of[slot]))

    def block_text(self, index: int) -> str:
        """Returns blockIdx of a block of the grid as text for a message, with its rank if there are several."""
        rank, index = divmod(index, self._blocks_of_rank)
        block = str(_xyz(index, self.grid))
        return block if self.ranks == 1 else f"{block} of rank {rank}"

    def text(self, number: int) -> str:
        """Returns threadIdx and blockIdx of a thread as text for a message, by its number in the grid."""
        index, thread = divmod(number, self.padded)
        return f"thread {_xyz(thread, self.block)} of block {self.block_text(index)}"

    def position(self, number: int) -> tuple[Dim, Dim]:
        """Returns (blockIdx, threadIdx) of a thread by its number in the grid."""
        index, thread = divmod(number, self.padded)
        return _xyz(index % self._blocks_of_rank, self.grid), _xyz(thread, self.block)


def permutation(order: str | int, n: int) -> np.ndarray:
    """Returns the numbers below n in an order: "forward", "reversed", or that of a seed."""
    if order == "forward":
        return np.arange(n)
    return np.arange(n)[::-1] if order == "reversed" else np.random.default_rng(int(order)).permutation(n)


def join(groups: Groups, pc: int, threads: np.ndarray) -> None:
    """Add threads to the group at pc."""
    groups[pc] = groups[pc] | threads if pc in groups else threads


def bits_of_lanes(threads: np.ndarray) -> np.ndarray:
    """Returns uint32, one a warp: bit i is set if lane i is among the threads (bool, one a slot)."""
    return np.packbits(threads.reshape(-1, LANES), axis=1, bitorder="little").view(np.uint32).reshape(-1)


def _along(linear: np.ndarray, size: Dim, axis: int) -> np.ndarray:
    if size[axis] == 1:
        return np.zeros((), np.uint32)
    return (linear // math.prod(size[:axis]) % size[axis]).astype(np.uint32)


def _xyz(linear: int, size: Sequence[int]) -> Dim:
    x, y, _ = size
    return linear % x, linear // x % y, linear // (x * y)
