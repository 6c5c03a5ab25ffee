"""The threads of a launch: a slot for each, warp by warp, and the special registers that identify it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

LANES = 32
Dim = tuple[int, int, int]
Groups = dict[int, np.ndarray]  # threads (bool, one a slot) by the instruction they are at


class Threads:
    """A slot for each lane of each warp; `order` permutes the warps. Lanes beyond the block's size have a
    slot but do not exist. `ranks`: the grid is launched on as many GPUs, all blocks of one after those of the other.
    `cluster`: blocks of a cluster along x, y, z."""

    def __init__(self, grid: Dim, block: Dim, order: np.ndarray | None, ranks: int = 1, cluster: Dim = (1, 1, 1)):
        self.grid, self.block, self.ranks, self.cluster = grid, block, ranks, cluster
        self._blocks = math.prod(grid)  # of one GPU
        per_block, blocks = math.prod(block), self._blocks * ranks
        warps = -(-per_block // LANES)
        self.slots = blocks * warps * LANES
        warp = np.repeat(np.arange(blocks * warps) if order is None else np.asarray(order), LANES)
        self.block_of = warp // warps  # linear block index of each slot
        self.thread_of = (warp % warps) * LANES + np.tile(np.arange(LANES), blocks * warps)
        self.rank_of = self.block_of // self._blocks
        self.exists = self.thread_of < per_block
        self.cluster_size = int(np.prod(cluster))
        self.blocks_of_cluster = self._blocks_of_clusters()  # [clusters, rank in the cluster]
        self.cluster_of_block = np.empty(blocks, np.intp)
        self.cluster_of_block[self.blocks_of_cluster] = np.arange(len(self.blocks_of_cluster))[:, None]

    def _blocks_of_clusters(self) -> np.ndarray:
        """Returns the linear index of each block by (cluster, rank in the cluster)."""
        z, y, x = (n // c for n, c in zip(self.grid[::-1], self.cluster[::-1], strict=True))
        cx, cy, cz = self.cluster
        index = np.arange(self._blocks * self.ranks).reshape(self.ranks, z, cz, y, cy, x, cx)
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
                return _along(self.block_of % self._blocks, self.grid, axis)
            case "clusterid":
                block = _along(self.block_of % self._blocks, self.grid, axis)
                return (block // np.uint32(self.cluster[axis])).astype(np.uint32)
            case "cluster_ctaid":
                block = _along(self.block_of % self._blocks, self.grid, axis)
                return (block % np.uint32(self.cluster[axis])).astype(np.uint32)
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

    @property
    def cluster_of(self) -> np.ndarray:
        """The cluster of each slot."""
        return self.cluster_of_block[self.block_of]

    @property
    def cluster_rank(self) -> np.ndarray:
        """The rank of each slot's block in its cluster."""
        return (self.blocks_of_cluster[self.cluster_of] == self.block_of[:, None]).argmax(axis=1)

    def warp_rows(self) -> np.ndarray:
        """Returns the row of 32 slots of each warp, by (block, warp of the block)."""
        warps = -(-int(np.prod(self.block)) // LANES)
        rows = np.empty((self._blocks * self.ranks, warps), np.int64)
        rows[self.block_of[::LANES], self.thread_of[::LANES] // LANES] = np.arange(self.slots // LANES)
        return rows

    def thread(self, slot: int) -> str:
        """Returns threadIdx of a slot as text for a message."""
        return str(_xyz(int(self.thread_of[slot]), self.block))

    def block_at(self, slot: int) -> str:
        """Returns blockIdx of a slot as text for a message, with its rank if there are several."""
        block = str(_xyz(int(self.block_of[slot]) % self._blocks, self.grid))
        return block if self.ranks == 1 else f"{block} of rank {int(self.rank_of[slot])}"

    def position(self, slot: int) -> tuple[Dim, Dim]:
        """Returns (blockIdx, threadIdx) of a slot."""
        block = int(self.block_of[slot]) % self._blocks
        return _xyz(block, self.grid), _xyz(int(self.thread_of[slot]), self.block)


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
