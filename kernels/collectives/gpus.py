"""Our collectives and NCCL's on the GPUs of this machine: verified on every GPU, then timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.collectives import cost, executor
from kernels.collectives import kernels as peer_kernels
from kernels.collectives.executor import CollectiveError
from kernels.collectives.kernels import ERROR, FLAGS, IN, KERNELS, OUT, Args, PeerKernel
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, ITEM, CollectiveShape
from kernels.engines.cuda.devices import DEADLINE_S, Devices, Nccl
from kernels.i18n import tr
from kernels.model.row import Json

if TYPE_CHECKING:
    import cupy

NCCL = "nccl"
# How a run reaches the GPUs: a prepared launch on each, through CuPy's calls, or as part of a graph of many runs on each GPU;
# and as a graph of one run on each GPU, or of one run on all of them.
LAUNCH, CUPY, GRAPH, SINGLE, JOINT = "launch", "cupy", "graph", "single", "joint"
GRAPH_RUNS = 20  # of a graph
SAMPLES, SAMPLE_S = 15, 2e-3  # of a time; about the length of one sample
MAX_RUNS = 50  # in a sample
WHOLE = 1 << 22  # elements: a longer array repeats one of TILE elements, and parts of its result are compared
TILE = 1 << 20

Run = Callable[[], None]


class Gpus:
    """The memories of the GPUs 0 .. ranks - 1 with the arrays of a collective. RuleError says what a machine lacks."""

    def __init__(self, ranks: int, capacity: int, devices: Devices | None = None):
        """`capacity`: the most elements of an array."""
        self.devices = devices or Devices(ranks)
        self.ranks, self.capacity = ranks, capacity
        sizes = peer_kernels.buffers(ranks, capacity)
        self._whole = {name: [self.devices.empty(rank, *sizes[name]) for rank in range(ranks)] for name in (IN, OUT)}
        self._flags: dict[str, dict[str, list[cupy.ndarray]]] = {}  # of each algorithm: their counts of runs differ
        self._kernels: dict[tuple, list[cupy.RawKernel]] = {}
        self._nccl: Nccl | None = None

    def arrays(self, name: str, elements: int) -> list[cupy.ndarray]:
        """Returns the first elements of each rank's IN or OUT."""
        return [array[:elements] for array in self._whole[name]]

    def put(self, arrays: Sequence[np.ndarray]) -> None:
        """Copy an array to each rank's IN."""
        for rank, array in enumerate(arrays):
            with self.devices.on(rank) as stream:
                self._whole[IN][rank][: array.size].set(np.ascontiguousarray(array), stream=stream)
        self.devices.wait()

    def repeat(self, elements: int, tile: int) -> None:
        """Repeat the first `tile` elements of each rank's IN up to a length."""
        for rank, array in enumerate(self.arrays(IN, elements)):
            for start in range(tile, elements, tile):
                part = array[start : start + tile]
                self.devices.copy(part, rank, array[: part.size], rank)
        self.devices.wait()

    def results(self, begin: int, end: int) -> list[np.ndarray]:
        """Returns elements begin .. end - 1 of each rank's OUT."""
        found = []
        for rank, array in enumerate(self._whole[OUT]):
            with self.devices.on(rank) as stream:
                found.append(array[begin:end].get(stream=stream))
        self.devices.wait()
        return found

    # -- our kernels -------------------------------------------------------------------------------
    def parts(
        self, algorithm: str, elements: int, most_blocks: int | None = None, **constants: int
    ) -> Callable[[int], None]:
        """Returns a function that queues one rank's part of our kernel of an algorithm. All ranks must be queued equally
        often. `most_blocks` and `constants`: instead of the kernel's own."""
        launches = self._launches(algorithm, elements, most_blocks, **constants)

        def queue(rank: int) -> None:
            kernel, grid, block, args = launches[rank]
            with self.devices.on(rank):
                kernel(grid, block, args)

        return queue

    def own(self, algorithm: str, elements: int, most_blocks: int | None = None, **constants: int) -> Run:
        """Returns a function that queues our kernel of an algorithm on all GPUs."""
        launches = self._launches(algorithm, elements, most_blocks, **constants)
        prepared = [self.devices.launcher(rank, *launch) for rank, launch in enumerate(launches)]
        return self.devices.all_of(prepared)

    def _launches(
        self, algorithm: str, elements: int, most_blocks: int | None, **constants: int
    ) -> list[tuple[cupy.RawKernel, tuple[int, int, int], tuple[int, int, int], Args]]:
        """Returns the kernel, the grid, the block and the arguments of each rank."""
        kernel = KERNELS[algorithm]
        loaded = self._loaded(kernel, kernel.defines(self.ranks, elements, **constants))
        grid, block = (kernel.blocks(self.ranks, elements, most_blocks), 1, 1), (kernel.threads, 1, 1)
        addresses = self._addresses(algorithm)
        found = []
        for rank in range(self.ranks):
            given = kernel.arguments(rank, self.ranks, elements, addresses)
            args = tuple(np.asarray(a) if a.dtype.names else a for a in given)
            found.append((loaded[rank], grid, block, args))
        return found

    def _loaded(self, kernel: PeerKernel, defines: tuple[tuple[str, int], ...]) -> list[cupy.RawKernel]:
        key = kernel.source, defines
        if key not in self._kernels:
            self._kernels[key] = [
                self.devices.kernel(rank, kernel.source, kernel.entry, defines) for rank in range(self.ranks)
            ]
        return self._kernels[key]

    def _addresses(self, algorithm: str) -> dict[str, list[int]]:
        if algorithm not in self._flags:
            sizes = peer_kernels.buffers(self.ranks, self.capacity)
            self._flags[algorithm] = {
                name: [self.devices.empty(rank, *sizes[name]) for rank in range(self.ranks)] for name in (FLAGS, ERROR)
            }
            self.reset(algorithm)
        return {
            name: [array.data.ptr for array in arrays]
            for name, arrays in (self._whole | self._flags[algorithm]).items()
        }

    def reset(self, algorithm: str) -> None:
        """Set the flags of an algorithm to zero, as at first and after an error."""
        for arrays in self._flags[algorithm].values():
            for rank, array in enumerate(arrays):
                self.devices.fill(rank, array, 0)
        self.devices.wait()

    def check(self, algorithm: str) -> None:
        """Raises CollectiveError if a rank of our kernels waited in vain, and makes them usable again."""
        if algorithm not in self._flags:
            return
        for rank, word in enumerate(self._flags[algorithm][ERROR]):
            with self.devices.on(rank) as stream:
                block = int(word.get(stream=stream)[0])
            if block:
                self.reset(algorithm)
                rule = tr("rank {rank} waited in vain for another GPU (block {block})", rank=rank, block=block - 1)
                raise CollectiveError(rule)

    # -- NCCL --------------------------------------------------------------------------------------
    @property
    def nccl(self) -> Nccl:
        """Returns NCCL over these GPUs. RuleError if it is missing."""
        self._nccl = self._nccl or Nccl(self.devices)
        return self._nccl

    def of_nccl(self, kind: str, elements: int) -> Run:
        """Returns a function that queues NCCL's collective on all GPUs."""
        return self.nccl.runner(kind, self.arrays(IN, elements), self.arrays(OUT, elements))

    def close(self) -> None:
        """Frees what the GPUs hold."""
        self.devices.wait()
        if self._nccl:
            self._nccl.close()
        self._whole.clear()
        self._flags.clear()
        self._kernels.clear()
        self.devices.free()


# -- verified, then timed ------------------------------------------------------------------------
def runner(gpus: Gpus, kind: str, algorithm: str, elements: int, **settings: int) -> Run:
    """Returns a function that queues a collective: NCCL's, or one of our kernels."""
    if algorithm == NCCL:
        return gpus.of_nccl(kind, elements)
    assert kind == ALL_REDUCE, f"no kernel for {kind}"
    return gpus.own(algorithm, elements, **settings)


def verify(gpus: Gpus, kind: str, algorithm: str, elements: int, seed: int = 0, **settings: int) -> float:
    """Returns the largest error on any GPU, in units of its tolerance. The result is NaN before the run. CollectiveError
    names what is wrong; an all-reduce must also be equal on all GPUs bit for bit.

    An all-reduce of more than WHOLE elements repeats TILE of them, and its first, middle and last TILE are compared.
    """
    tile = elements if elements <= WHOLE or kind != ALL_REDUCE else TILE
    shape = CollectiveShape(kind, ALGORITHMS[kind][-1] if algorithm == NCCL else algorithm, gpus.ranks, tile)
    arrays = executor.inputs(shape, seed)
    gpus.put(arrays)
    gpus.repeat(elements, tile)
    for rank, array in enumerate(gpus.arrays(OUT, elements)):
        gpus.devices.fill(rank, array, 0xFF)
    gpus.devices.wait()
    runner(gpus, kind, algorithm, elements, **settings)()
    gpus.devices.wait()
    gpus.check(algorithm)
    if tile == elements:
        return executor.verify(shape, arrays, gpus.results(0, elements))
    worst = 0.0
    for begin in {0, elements // gpus.ranks - tile // 2, elements - tile}:
        moved = [np.roll(a, -(begin % tile)) for a in arrays]
        worst = max(worst, executor.verify(shape, moved, gpus.results(begin, begin + tile)))
    return worst


def samples(
    gpus: Gpus, run: Run, runs_of_call: int = 1, count: int = SAMPLES, deadline_s: float = DEADLINE_S
) -> list[float]:
    """Returns seconds of one run, `count` samples of as many runs as take about SAMPLE_S. `run` queues `runs_of_call`."""
    gpus.devices.seconds(run, 3, deadline_s)
    once = gpus.devices.seconds(run, 2, deadline_s)
    times = max(1, min(MAX_RUNS, round(SAMPLE_S / max(once, 1e-6))))
    return [gpus.devices.seconds(run, times, deadline_s) / runs_of_call for _ in range(count)]


def measure(
    gpus: Gpus, kind: str, algorithm: str, elements: int, launch: str = LAUNCH, count: int = SAMPLES, **settings: int
) -> Json:
    """Returns a row of a collective's time: verified at this length first. RuleError or CollectiveError say what is
    wrong. `launch`: LAUNCH; for our kernels also one of the other ways."""
    error = verify(gpus, kind, algorithm, elements, **settings)
    if launch == LAUNCH:
        found = samples(gpus, runner(gpus, kind, algorithm, elements, **settings), 1, count)
    else:
        run, runs = _launched(gpus, gpus.parts(algorithm, elements, **settings), launch)
        found = samples(gpus, run, runs, count)
    gpus.check(algorithm)
    return row(kind, algorithm, gpus.ranks, elements, launch, found) | {"error": error} | settings


def _launched(gpus: Gpus, queue: Callable[[int], None], launch: str) -> tuple[Run, int]:
    """Returns what queues runs of our kernel on all GPUs in a way, and how many."""
    devices = gpus.devices
    return {
        CUPY: lambda: (lambda: [queue(rank) for rank in range(gpus.ranks)] and None, 1),
        GRAPH: lambda: (devices.graphs(queue, GRAPH_RUNS), GRAPH_RUNS),
        SINGLE: lambda: (devices.graphs(queue, 1), 1),
        JOINT: lambda: (devices.joint_graph(queue, 1), 1),
    }[launch]()


def row(kind: str, algorithm: str, ranks: int, elements: int, launch: str, found: Sequence[float]) -> Json:
    """Returns a row of samples in seconds: median, p20 and p80 in ms, n, bytes of each rank, bus bandwidth in bytes/s."""
    ms = 1e3 * np.asarray(found)
    median, p20, p80 = (float(np.percentile(ms, q)) for q in (50, 20, 80))
    nbytes = ITEM * elements
    return {
        "kind": kind,
        "algorithm": algorithm,
        "ranks": ranks,
        "elements": elements,
        "bytes": nbytes,
        "launch": launch,
        "median_ms": round(median, 6),
        "p20_ms": round(p20, 6),
        "p80_ms": round(p80, 6),
        "n": len(ms),
        "bus_bytes_per_s": round(nbytes * cost.bus_factor(kind, ranks) / (median / 1e3)),
    }
