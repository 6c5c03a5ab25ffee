"""Our own collectives for GPUs: what each kernel is launched with, on every rank, in any engine with several memories.

They are no ladder of rungs. A rung is the program of one GPU with buffers of its own; these kernels run on all GPUs at
once and read and write each other's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.collectives.shape import ALL_REDUCE, NAIVE, ONE_SHOT, RING, TREE, TWO_SHOT
from kernels.i18n import mark, tr
from kernels.model.launch import ceil
from kernels.model.program import RuleError
from kernels.model.shape import INT_MAX

MAX_BLOCKS = 264  # twice the multiprocessors of an H200; the flags of a rank have room for as many
MAX_PEERS = 8  # GPUs that reach each other's memory
PATIENCE_S = 5.0  # how long a kernel waits for the others
CLOCK_HZ = 2e9  # about the clock of a GPU, which counts a kernel's patience
VEC = 4  # floats of one access
IN, OUT, FLAGS, ERROR = "in", "out", "flags", "error"  # the buffers of each rank
Addresses = Mapping[str, Sequence[int]]  # of each buffer, by rank
Args = tuple[np.generic, ...]


def flag_words(ranks: int) -> int:
    """Returns the words of one block's flags: FLAGS of peers.cuh."""
    return 1 + 2 * ranks


def buffers(ranks: int, elements: int) -> dict[str, tuple[int, np.dtype]]:
    """Returns length and type of each buffer of a rank. Flags and error must be zero before the first run."""
    return {
        IN: (elements, np.dtype(np.float32)),
        OUT: (elements, np.dtype(np.float32)),
        FLAGS: (MAX_BLOCKS * flag_words(ranks), np.dtype(np.uint32)),
        ERROR: (1, np.dtype(np.uint32)),
    }


def vec(ranks: int, elements: int) -> int:
    """Returns the floats of an access: 4 if every chunk then begins at a multiple of 16 bytes, else 1."""
    return VEC if elements % (VEC * ranks) == 0 else 1


@dataclass(frozen=True)
class PeerKernel:
    """A kernel that all ranks run at once. source: its file. threads: of a block. vecs: accesses of a thread at least,
    before another block is launched. most: blocks on each GPU. whole: a rank's blocks share the whole array, not a chunk.
    args: its own arguments, before rank, length and patience. constants: its defines beside RANKS and VEC."""

    algorithm: str
    title: str
    idea: str
    source: str
    threads: int
    vecs: int
    whole: bool
    args: Callable[[int, Addresses], Args]
    constants: Mapping[str, int]
    kind: str = ALL_REDUCE
    most: int = MAX_BLOCKS // 2

    @property
    def entry(self) -> str:
        """Returns the name of the kernel in its source."""
        return self.source.rpartition("/")[2].partition("_")[2].removesuffix(".cu")

    def defines(self, ranks: int, elements: int, **constants: int) -> tuple[tuple[str, int], ...]:
        """Returns the defines at a number of ranks and a length, sorted. `constants` replaces some of its own."""
        return tuple(sorted({"RANKS": ranks, "VEC": vec(ranks, elements), **self.constants, **constants}.items()))

    def blocks(self, ranks: int, elements: int, most: int | None = None) -> int:
        """Returns the blocks on each GPU: enough for the length, at most `most`, by default the kernel's own."""
        length = elements // vec(ranks, elements)
        part = length if self.whole else ceil(length, ranks)
        return max(1, min(most or self.most, MAX_BLOCKS, ceil(part, self.threads * self.vecs)))

    def arguments(
        self, rank: int, ranks: int, elements: int, addresses: Addresses, patience: int | None = None
    ) -> Args:
        """Returns the arguments of one rank. `addresses`: of every rank's buffers. `patience`: in ticks of the GPU's
        clock. RuleError if the kernel cannot run so many ranks or elements."""
        if not 2 <= ranks <= MAX_PEERS:
            rule = tr("these kernels run on 2 to {most} GPUs, got {ranks}", most=MAX_PEERS, ranks=ranks)
            raise RuleError(rule)
        if elements > INT_MAX // 2:  # an index and a stride stay below 2^31
            raise RuleError(tr("elements must be at most {most}, got {got}", most=INT_MAX // 2, got=elements))
        ticks = int(PATIENCE_S * CLOCK_HZ) if patience is None else patience
        n = elements // vec(ranks, elements)
        return (*self.args(rank, addresses), np.int32(rank), np.int32(n), np.int64(ticks))


def _all(addresses: Sequence[int]) -> np.void:
    """Returns the struct Peers or Flags of peers.cuh."""
    return np.array([(tuple(addresses),)], np.dtype([("of", np.uint64, len(addresses))]))[0]


def _one(addresses: Sequence[int], rank: int) -> np.uint64:
    return np.uint64(addresses[rank % len(addresses)])


def _meeting(rank: int, a: Addresses) -> Args:
    return _all(a[FLAGS]), _one(a[FLAGS], rank), _one(a[ERROR], rank)


def _one_shot(rank: int, a: Addresses) -> Args:
    return _all(a[IN]), _one(a[OUT], rank), *_meeting(rank, a)


def _for_all(rank: int, a: Addresses) -> Args:
    return _all(a[IN]), _all(a[OUT]), *_meeting(rank, a)


def _ring(rank: int, a: Addresses) -> Args:
    flags = (_one(a[FLAGS], r) for r in (rank, rank + 1, rank - 1))
    return _one(a[IN], rank), _one(a[OUT], rank), _one(a[OUT], rank + 1), *flags, _one(a[ERROR], rank)


KERNELS: Mapping[str, PeerKernel] = {
    kernel.algorithm: kernel
    for kernel in (
        PeerKernel(
            NAIVE, mark("through one GPU"), mark("Rank 0 reads all arrays, adds them and writes the sum to all."),
            "collectives/00_through_one.cu", 512, 1, whole=True, args=_for_all, constants={"UNROLL": 4},
        ),
        PeerKernel(
            ONE_SHOT, mark("one-shot"), mark("Every GPU reads the arrays of all GPUs and adds them itself."),
            "collectives/01_one_shot.cu", 256, 1, whole=True, args=_one_shot, constants={},
        ),
        PeerKernel(
            TWO_SHOT, mark("two-shot"), mark("Each GPU adds up one chunk and writes the sum to all GPUs."),
            "collectives/02_two_shot.cu", 512, 1, whole=False, args=_for_all, constants={"UNROLL": 4},
        ),
        PeerKernel(
            RING, mark("ring"), mark("Each GPU writes only to the next, chunk by chunk."),
            "collectives/03_ring.cu", 512, 1, whole=False, args=_ring, constants={"SLICE": 4096, "UNROLL": 4},
            most=264,  # the fastest of those tried on two H200s
        ),
        PeerKernel(
            TREE, mark("tree"), mark("Sums travel up a tree of GPUs, the result travels down."),
            "collectives/04_tree.cu", 512, 1, whole=True, args=_for_all, constants={"SLICE": 4096, "UNROLL": 4},
        ),
    )
}  # fmt: skip

COMPILED_RANKS = tuple(range(2, MAX_PEERS + 1))  # compiled ahead, so that the emulator needs no compiler


def compiled() -> list[tuple[str, str, tuple[tuple[str, int], ...]]]:
    """Returns (source, entry, defines) of every kernel that is compiled ahead."""
    return [
        (kernel.source, kernel.entry, kernel.defines(ranks, elements))
        for kernel in KERNELS.values()
        for ranks in COMPILED_RANKS
        for elements in (VEC * ranks, 1)  # with accesses of 16 bytes and of 4
    ]
