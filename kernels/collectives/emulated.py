"""Our collectives in the emulator: several GPUs with memories of their own, and the bytes that cross each link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernels import sources
from kernels.collectives import kernels as peer_kernels
from kernels.collectives.executor import CollectiveError
from kernels.collectives.kernels import ERROR, FLAGS, IN, KERNELS, OUT
from kernels.engines.emulator import precompiled
from kernels.engines.emulator.launch import Options, Run, device_memory, launch_ranks
from kernels.engines.emulator.links import Links
from kernels.engines.emulator.watch import build
from kernels.engines.emulator.watch.recording import Recorded, Recording
from kernels.engines.emulator.watch.watch import Watch
from kernels.i18n import tr
from kernels.model.program import Launch, no_processor

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
                found[of_rank(name, rank)] = array if name == IN else np.zeros(length, dtype)
        written = [name for name in found if not name.startswith(OUT)]
        self.memory = device_memory(found, written)
        self._owner = {of_rank(name, rank): rank for name in sizes for rank in range(self.ranks)}
        self._addresses = {
            name: [self.memory.address(of_rank(name, rank)) for rank in range(self.ranks)] for name in sizes
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
        ptx = precompiled.ptx(kernel.source, kernel.defines(ranks, n, **constants))
        size = blocks or kernel.blocks(ranks, n), threads or kernel.threads
        self.launch(ptx, *size, Options(count=False, order="forward" if seed is None else seed), links, missing)
        for rank in range(ranks):
            if block := int(self.memory.array(of_rank(ERROR, rank))[0]):
                raise CollectiveError(
                    tr("rank {rank} waited in vain for another GPU (block {block})", rank=rank, block=block - 1)
                )
        results = tuple(self.memory.array(of_rank(OUT, rank)) for rank in range(ranks))
        data = [of_rank(name, rank) for name in (IN, OUT) for rank in range(ranks)]
        flags = [of_rank(FLAGS, rank) for rank in range(ranks)]
        return Emulated(results, links.crossed(data), links.crossed(flags))

    def launch(
        self, ptx: str, blocks: int, threads: int, options: Options, links: Links | None = None, missing: int = 0
    ) -> Run:
        """Returns the launch of a build of the kernel on all ranks, but for so many that are missing."""
        kernel, ranks, n = self.kernel, self.ranks, self.elements
        args = [kernel.arguments(r, ranks, n, self._addresses, self.patience) for r in range(ranks - missing)]
        grid, block = (blocks, 1, 1), (threads, 1, 1)
        return launch_ranks(ptx, kernel.entry, grid, block, args, self.memory, links, options=options)

    def fetch(self) -> dict[str, np.ndarray]:
        """Returns copies of the buffers of all ranks, by name."""
        return {name: np.array(self.memory.array(name)) for name in self._owner}


def record(algorithm: str, arrays: Sequence[np.ndarray], threads: int, names: frozenset[str]) -> Recorded:
    """Returns the recording of a run with one block on each rank: block r is that of rank r. `names`: of the variables whose values are
    kept."""
    kernel, ranks = KERNELS[algorithm], len(arrays)
    defines = kernel.defines(ranks, arrays[0].size)
    measured, watched = Ranks(algorithm, arrays), Ranks(algorithm, arrays)
    before = watched.fetch()
    counters = measured.launch(precompiled.ptx(kernel.source, defines), 1, threads, Options()).counted
    watch = Watch(tuple(range(ranks)), lambda variable: variable.name in names)
    run = watched.launch(build.ptx(kernel.source, defines), 1, threads, Options(count=False, watch=watch))
    assert run.watched is not None  # the options have a Watch
    launch = Launch(kernel.source, kernel.entry, (ranks, 1, 1), (threads, 1, 1), (), no_processor, defines)
    after, of_measured = watched.fetch(), measured.fetch()
    written = {name: np.ones(array.shape, bool) for name, array in after.items()}
    given = frozenset(of_rank(IN, rank) for rank in range(ranks))
    files = sources.files(kernel.source)
    recording = Recording(launch, files, run.watched, counters, before, after, written, given, {}, ranks)
    results = [of_rank(OUT, rank) for rank in range(ranks)]
    difference = max(float(np.abs(after[name] - of_measured[name]).max()) for name in results)
    return Recorded((recording,), of_measured, difference)


def of_rank(buffer: str, rank: int) -> str:
    """Returns the name of a rank's buffer in the memory of all."""
    return f"{buffer} of rank {rank}"
