"""Training on the GPUs of one process. Data parallel: each runs the step's launches, NCCL adds the gradients.

The launches between two buckets are one CUDA graph on each GPU. The all-reduce of a bucket runs on a stream of its own, so
the way back goes on meanwhile. The update waits for all buckets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kernels.collectives.shape import ALL_REDUCE
from kernels.engines.cuda import devices as cuda_devices
from kernels.engines.cuda.devices import DEADLINE_S, Devices, Nccl
from kernels.i18n import tr
from kernels.ladders import ladder_of
from kernels.model.program import INPUT, Arg, Launch, Program, RuleError
from kernels.model.rules import MAX_STATIC_SHARED
from kernels.parallel.data import Bucket, buckets, replica
from kernels.parallel.plan import DATA, Plan
from kernels.training import graph as graphs
from kernels.training import step
from kernels.training.graph import UPDATE, Graph, node_program
from kernels.training.memory import packed
from kernels.training.networks import IMAGE
from kernels.training.step import FACTOR, GRADIENTS, LABELS, WEIGHTS

if TYPE_CHECKING:
    import cupy

LIMIT = 1e-5  # of the largest weight: how far several GPUs may be from one
NAN = 0xFF  # the byte of which a float32 NaN can consist


class DifferentError(RuleError):
    """Weights of several GPUs that are not those that they must be, as a sentence."""


def segments(graph: Graph, found: Sequence[Bucket]) -> tuple[tuple[int, int], ...]:
    """Returns ranges of a step's launches: up to the end of each bucket, the rest of the way back, the update."""
    ends, at, before_update = {}, 0, 0
    for node in graph.nodes:
        if node.phase == UPDATE:
            before_update = at
        at += len(node_program(node, ladder_of).steps)
        ends[node.name] = at
    cuts = [0, *(ends[bucket.ready.name] for bucket in found), before_update, at]
    return tuple(pairwise(cuts))


class Team:
    """The GPUs 0 .. gpus - 1, each with a stream that computes and one that communicates, and NCCL on the latter. Kernels
    stay loaded. RuleError says what a machine lacks."""

    def __init__(self, gpus: int):
        self.gpus = gpus
        self.devices, self.links = Devices(gpus), Devices(gpus)
        self.nccl = Nccl(self.links) if gpus > 1 else None
        self._loaded: dict[tuple, cupy.RawKernel] = {}

    def event(self, rank: int) -> cupy.cuda.Event:
        """Returns an event of a GPU, without a time."""
        with self.devices.on(rank):
            return cuda_devices.load().cuda.Event(disable_timing=True)

    def call(self, rank: int, launch: Launch, arrays: Mapping[str, cupy.ndarray]) -> Callable[[], None]:
        """Returns what queues a launch on a GPU's current stream."""
        kernel = self._kernel(rank, launch)
        args = tuple(arrays[a] if isinstance(a, str) else _value(a) for a in launch.args)
        return lambda: kernel(launch.grid, launch.block, args, shared_mem=launch.shared)

    def sums(self, arrays: Sequence[cupy.ndarray]) -> tuple[Callable[[], None], Callable[[int], None]]:
        """Returns two functions that queue an all-reduce of one array of each GPU, in place: on all GPUs at once; and the part
        of one GPU on its computing stream, to be captured there."""
        flat = [array.reshape(-1) for array in arrays]
        assert self.nccl is not None  # one GPU has no sums
        nccl, call = self.nccl, self.nccl.call(ALL_REDUCE, flat, flat)
        streams = self.devices.streams
        return nccl.runner(ALL_REDUCE, flat, flat), lambda rank: nccl.one(call, rank, streams[rank])

    def _kernel(self, rank: int, launch: Launch) -> cupy.RawKernel:
        key = rank, launch.source, launch.entry, launch.defines
        if key not in self._loaded:
            self._loaded[key] = self.devices.kernel(*key)
        kernel = self._loaded[key]
        if launch.shared > MAX_STATIC_SHARED:
            with self.devices.on(rank):
                kernel.max_dynamic_shared_size_bytes = launch.shared
        return kernel

    def set(self, rank: int, array: cupy.ndarray, values: np.ndarray) -> None:
        """Copies values to an array of a GPU."""
        with self.devices.on(rank) as stream:
            array.set(np.ascontiguousarray(values, array.dtype).reshape(array.shape), stream=stream)
            stream.synchronize()

    def get(self, rank: int, array: cupy.ndarray) -> np.ndarray:
        """Returns a copy of an array of a GPU."""
        with self.devices.on(rank) as stream:
            found = array.get(stream=stream)
            stream.synchronize()
            return found

    def wait(self, deadline_s: float = DEADLINE_S) -> None:
        """Waits for all that is queued. DevicesHung after the deadline."""
        self.devices.wait(deadline_s)
        self.links.wait(deadline_s)

    def close(self) -> None:
        """Ends NCCL."""
        self.wait()
        if self.nccl:
            self.nccl.close()


@dataclass
class _Memory:
    """The arrays of one GPU's replica by name, and its launches ready to be queued."""

    arrays: dict[str, cupy.ndarray]
    calls: list[Callable[[], None]]


def _value(a: Arg) -> object:
    """Returns a value as CuPy takes it: a struct as an array."""
    return np.asarray(a) if isinstance(a, np.void) else a


class Ranks(ABC):
    """The GPUs of a team with the arrays of their parts of a step, and their launches as CUDA graphs."""

    graph: Graph  # of the step on one GPU

    def __init__(self, team: Team):
        self.team = team
        self._memories: list[_Memory] = []
        self._first: list[dict[str, np.ndarray]] = []  # what a step changes in place, as it was at first

    def _add(self, program: Program, inputs: Mapping[str, np.ndarray]) -> None:
        """Adds the next GPU's arrays, NaN or its inputs, and its launches."""
        rank, arrays = len(self._memories), {}
        for b in program.buffers:
            arrays[b.name] = self.team.devices.empty(rank, b.shape, b.dtype)
            self.team.devices.fill(rank, arrays[b.name], NAN)
        arrays |= {view.name: view.cut(arrays[view.of]) for view in program.views}
        for b in program.of_role(INPUT):
            self.team.set(rank, arrays[b.name], inputs[b.name])
        calls = [self.team.call(rank, each, arrays) for each in program.launches]
        self._memories.append(_Memory(arrays, calls))
        self._first.append({b.name: inputs[b.name] for b in program.in_place})

    def _load_kernels(self) -> None:
        """Runs every launch of every GPU once, so that kernels are loaded."""
        for rank, each in enumerate(self._memories):
            with self.team.devices.on(rank):
                for call in each.calls:
                    call()
        self.team.wait()

    def _captured(self, rank: int, calls: Sequence[Callable[[], None]]) -> cupy.cuda.Graph:
        """Returns a CUDA graph of these calls on a GPU, None without any."""
        if not calls:
            return None
        with self.team.devices.on(rank) as stream:
            stream.begin_capture()
            try:
                for call in calls:
                    call()
            finally:
                captured = stream.end_capture()
        return captured

    def _launch(self, rank: int, graph: cupy.cuda.Graph) -> None:
        if graph is not None:
            with self.team.devices.on(rank) as stream:
                graph.launch(stream)

    @abstractmethod
    def step(self) -> None:
        """Queues one step on all GPUs."""

    @abstractmethod
    def weights(self) -> list[np.ndarray]:
        """Returns the whole weights, float32: of each GPU, or joined from all."""

    def reset(self) -> None:
        """Sets weights and state back to the first ones."""
        self.team.wait()
        for rank, first in enumerate(self._first):
            for name, values in first.items():
                self.team.set(rank, self._memories[rank].arrays[name], values)

    def seconds(self, times: int) -> float:
        """Returns the seconds of a step, of so many queued one behind the other."""
        return self.team.devices.seconds(self.step, times)

    def close(self) -> None:
        """Frees the arrays."""
        self.team.wait()
        self._memories.clear()


class Replicas(Ranks):
    """A network on the GPUs of a team, each with its part of the images."""

    def __init__(
        self,
        plan: Plan,
        team: Team,
        images: np.ndarray,
        labels: np.ndarray,
        overlap: bool = True,
        seed: int = 0,
        **factors: float,
    ):
        """`overlap`: whether a bucket is combined while the way back goes on, or all of them after it. RuleError if the plan
        is not data parallel over the team's GPUs."""
        if plan.way != DATA or plan.gpus != team.gpus:
            rule = tr(
                "data parallel over {gpus} GPUs runs here, got {way} over {got}",
                gpus=team.gpus,
                way=plan.way,
                got=plan.gpus,
            )
            raise RuleError(rule)
        super().__init__(team)
        self.plan, self.overlap = plan, overlap and plan.gpus > 1
        self.graph = replica(plan, step.ON_GPU, **factors)
        self.buckets = buckets(self.graph, plan.bucket_bytes)
        program = packed(graphs.program(self.graph, ladder_of), step.statistics(self.graph))
        for rank in range(plan.gpus):
            self._add(program, self._inputs(rank, images, labels, seed))
        self._reduce = [self._runners(bucket) for bucket in self.buckets] if team.nccl else []
        self._events = [team.event(rank) for rank in range(plan.gpus)]
        self._run_once()
        cuts = segments(self.graph, self.buckets)
        self._graphs = [
            [self._captured(rank, each.calls[first:stop]) for first, stop in cuts]
            for rank, each in enumerate(self._memories)
        ]
        self.reset()

    def _inputs(self, rank: int, images: np.ndarray, labels: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        each = self.plan.batch // self.plan.gpus
        part = slice(rank * each, (rank + 1) * each)
        first = step.inputs(self.graph, images[part], labels[part], seed)
        mean = np.full(each, 1 / self.plan.batch, np.float32)  # of all images
        return first | {IMAGE: images[part], LABELS: labels[part], FACTOR: mean}

    def _runners(self, bucket: Bucket) -> list[Callable[[], None]]:
        """Returns what queues the all-reduce of a bucket on all GPUs, one for each of its ranges."""
        assert self.team.nccl is not None  # one GPU has no sums
        found = []
        for first, stop in bucket.ranges:
            parts = [each.arrays[GRADIENTS].reshape(-1)[first:stop] for each in self._memories]
            found.append(self.team.nccl.runner(ALL_REDUCE, parts, parts))
        return found

    # -- a step ----------------------------------------------------------------------------------------
    def _run_once(self) -> None:
        """Runs every launch and every all-reduce once: kernels are loaded, NCCL has connected the GPUs."""
        self._load_kernels()
        for n in range(len(self._reduce)):
            self._combine(n)
        self.team.wait()

    def _segment(self, n: int) -> None:
        for rank, each in enumerate(self._graphs):
            self._launch(rank, each[n])

    def _combine(self, bucket: int) -> None:
        """Queues the all-reduce of a bucket behind what each GPU has been given to compute so far."""
        self._after(self.team.devices, self.team.links)
        for run in self._reduce[bucket]:
            run()

    def _after(self, first: Devices, then: Devices) -> None:
        """Lets one stream of each GPU wait for all that the other one has so far."""
        for rank, event in enumerate(self._events):
            with first.on(rank) as stream:
                event.record(stream)
            with then.on(rank) as stream:
                stream.wait_event(event)

    def step(self) -> None:
        """Queues one step on all GPUs."""
        count = len(self.buckets)
        for n in range(count):
            self._segment(n)
            if self.overlap:
                self._combine(n)
        self._segment(count)
        if self._reduce and not self.overlap:
            for n in range(count):
                self._combine(n)
        if self._reduce:
            self._after(self.team.links, self.team.devices)
        self._segment(count + 1)

    # -- around it -------------------------------------------------------------------------------------
    def weights(self) -> list[np.ndarray]:
        """Returns the weights of each GPU, float32."""
        self.team.wait()
        return [self.team.get(rank, each.arrays[WEIGHTS]) for rank, each in enumerate(self._memories)]

    def close(self) -> None:
        """Frees the arrays."""
        super().close()
        self._graphs.clear()
        self._reduce.clear()


def check_equal(graph: Graph, weights: Sequence[np.ndarray]) -> None:
    """DifferentError if the weights of two GPUs differ in any bit."""
    for view in (v for v in graph.views if v.of == WEIGHTS):
        for rank, other in enumerate(weights):
            if not np.array_equal(view.cut(weights[0]), view.cut(other)):
                raise DifferentError(tr("{name} on GPU {rank} differs from GPU 0", name=view.name, rank=rank))


def check_exact(graph: Graph, weights: np.ndarray, right: np.ndarray) -> None:
    """DifferentError if weights differ in any bit from those of one GPU."""
    for view in (v for v in graph.views if v.of == WEIGHTS):
        if not np.array_equal(view.cut(weights), view.cut(right)):
            raise DifferentError(tr("{name} differs from one GPU with the same parts", name=view.name))


def check_near(graph: Graph, weights: np.ndarray, right: np.ndarray, limit: float = LIMIT) -> float:
    """Returns the largest difference of a weight over the largest weight. DifferentError if it is above the limit, or no
    number."""
    views = [view for view in graph.views if view.of == WEIGHTS]
    largest = max(float(np.abs(view.cut(right)).max()) for view in views)
    worst = np.max([np.abs(view.cut(weights) - view.cut(right)).max() for view in views])  # NaN stays NaN
    error = float(worst) / largest
    if not error <= limit:
        raise DifferentError(
            tr(
                "the weights differ by {error} of the largest one, at most {limit} is right",
                error=f"{error:.2g}",
                limit=f"{limit:g}",
            )
        )
    return error
