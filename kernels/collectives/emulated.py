"""Our collectives in the emulator: several GPUs with memories of their own, and the bytes that cross each link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.collectives import kernels as peer_kernels
from kernels.collectives.executor import CollectiveError
from kernels.collectives.kernels import ERROR, FLAGS, IN, KERNELS, OUT
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.launch import Options, device_memory, launch_ranks
from kernels.engines.emulator.links import Links
from kernels.i18n import tr

# Instructions that a warp issues before it gives up: the emulator's clock counts them.
PATIENCE = 200_000


@dataclass(frozen=True)
class Emulated:
    """What a run leaves: each rank's result, float32 [elements]; the bytes of arrays and of flags by link (source,
    destination)."""

    results: tuple[np.ndarray, ...]
    link_bytes: Mapping[tuple[int, int], int]
    flag_bytes: Mapping[tuple[int, int], int]


class Ranks:
    """The memories of several emulated GPUs with the buffers of an algorithm of KERNELS, which can run again and again."""

    def __init__(self, algorithm: str, arrays: Sequence[np.ndarray], patience: int = PATIENCE):
        self.kernel, self.patience = KERNELS[algorithm], patience
        self.ranks, self.elements = len(arrays), arrays[0].size
        sizes = peer_kernels.buffers(self.ranks, self.elements)
        found: dict[str, np.ndarray] = {}
        for rank, array in enumerate(arrays):  # one rank's buffers after the other's
            for name, (length, dtype) in sizes.items():
                found[_name(name, rank)] = array if name == IN else np.zeros(length, dtype)
        written = [name for name in found if not name.startswith(OUT)]
        self.memory = device_memory(found, written)
        self._owner = {_name(name, rank): rank for name in sizes for rank in range(self.ranks)}
        self._addresses = {
            name: [self.memory.address(_name(name, rank)) for rank in range(self.ranks)] for name in sizes
        }

    def run(
        self,
        blocks: int | None = None,
        threads: int | None = None,
        seed: int | None = None,
        missing: int = 0,
        **constants: int,
    ) -> Emulated:
        """Returns what a run leaves. `blocks`, `threads`, `constants`: instead of the kernel's own. `seed`: shuffles the warps of all GPUs. `missing`: how many
        of the last ranks launch nothing. CollectiveError if a rank waited longer than its patience."""
        kernel, ranks, n = self.kernel, self.ranks, self.elements
        links = Links(self.memory, self._owner, ranks)
        args = [kernel.arguments(r, ranks, n, self._addresses, self.patience) for r in range(ranks - missing)]
        launch_ranks(
            precompiled.ptx(kernel.source, kernel.defines(ranks, n, **constants)),
            kernel.entry,
            (blocks or kernel.blocks(ranks, n), 1, 1),
            (threads or kernel.threads, 1, 1),
            args,
            self.memory,
            links,
            options=Options(count=False, order="forward" if seed is None else seed),
        )
        for rank in range(ranks):
            if block := int(self.memory.array(_name(ERROR, rank))[0]):
                raise CollectiveError(
                    tr("rank {rank} waited in vain for another GPU (block {block})", rank=rank, block=block - 1)
                )
        results = tuple(self.memory.array(_name(OUT, rank)) for rank in range(ranks))
        data = [_name(name, rank) for name in (IN, OUT) for rank in range(ranks)]
        flags = [_name(FLAGS, rank) for rank in range(ranks)]
        return Emulated(results, links.crossed(data), links.crossed(flags))


def _name(buffer: str, rank: int) -> str:
    """Returns the name of a rank's buffer in the memory of all."""
    return f"{buffer} of rank {rank}"
