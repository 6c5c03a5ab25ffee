"""Data parallel training on a processor: each rank trains a replica on its part of the images, and gradients are combined.

A bucket is a group of gradients that are combined together, as soon as the last of them is computed (Li et al., "PyTorch
Distributed: Experiences on Accelerating Data Parallel Training", arXiv 2006.15704). With sharding each rank keeps a part of
the optimiser's state, then of the gradients, then of the weights (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
Training Trillion Parameter Models", arXiv 1910.02054).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernels.collectives.executor import execute
from kernels.collectives.schedules import bounds, schedule
from kernels.collectives.shape import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, RING
from kernels.parallel.plan import Plan
from kernels.parallel.rank import Range, Rank, open_rank, ranges_of, written
from kernels.training import step
from kernels.training.graph import BACKWARD, FORWARD, STATE, UPDATE, Graph, Node
from kernels.training.networks import IMAGE
from kernels.training.step import CHUNKS, FACTOR, GRADIENTS, LABELS, WEIGHTS

ITEM = 4  # bytes of a float32
Array = np.ndarray


@dataclass(frozen=True)
class Bucket:
    """Gradients that are combined together: their names, where they lie in the buffer of all gradients, and the node after
    which the last of them is there."""

    names: tuple[str, ...]
    ranges: tuple[Range, ...]
    ready: Node

    @property
    def elements(self) -> int:
        return sum(stop - first for first, stop in self.ranges)

    @property
    def nbytes(self) -> int:
        return ITEM * self.elements

    def shard(self, rank: int, ranks: int) -> list[Range]:
        """Returns where a rank's part of the bucket lies, one of `ranks` parts of nearly equal size."""
        first, stop = bounds(self.elements, ranks)[rank : rank + 2]
        found, at = [], 0
        for begin, end in self.ranges:
            low, high = max(first, at), min(stop, at + end - begin)
            if low < high:
                found.append((begin + low - at, begin + high - at))
            at += end - begin
        return found


def buckets(graph: Graph, bucket_bytes: int) -> tuple[Bucket, ...]:
    """Returns the gradients of a step in buckets of at least so many bytes, in the order in which the way back computes
    them. Only the last bucket may be smaller."""
    gradients = {view.name for view in graph.views if view.of == GRADIENTS}
    found: list[Bucket] = []
    names: list[str] = []
    last = graph.nodes[0]  # that computed a gradient
    for node in graph.nodes:
        new = [t for t in written(node) if t in gradients]
        if node.phase != BACKWARD or not new:
            continue
        names += new
        last = node
        bucket = Bucket(tuple(names), tuple(ranges_of(graph, names)), node)
        if bucket.nbytes >= bucket_bytes:
            found.append(bucket)
            names = []
    if names:
        found.append(Bucket(tuple(names), tuple(ranges_of(graph, names)), last))
    return tuple(found)


class Gathers:
    """When each bucket of sharded weights is gathered and dropped in a step: before the first node of a phase that uses one
    of its weights, and after the last."""

    def __init__(self, graph: Graph, found: Sequence[Bucket]):
        self.before: dict[str, list[int]] = {}  # buckets by the name of a node
        self.after: dict[str, list[int]] = {}
        for phase in (FORWARD, BACKWARD):
            nodes = [node for node in graph.nodes if node.phase == phase]
            for n, bucket in enumerate(found):
                wanted = {name.removeprefix("d ") for name in bucket.names}
                using = [node for node in nodes if wanted & set(node.tensors.values())]
                if using:
                    self.before.setdefault(using[0].name, []).append(n)
                    self.after.setdefault(using[-1].name, []).append(n)
        self._nodes = [node.name for node in graph.nodes]

    def together(self) -> list[frozenset[int]]:
        """Returns the buckets that are whole at the same time, during each node."""
        found, now = [], set()
        for name in self._nodes:
            now |= set(self.before.get(name, ()))
            found.append(frozenset(now))
            now -= set(self.after.get(name, ()))
        return found


def replica(plan: Plan, rungs: Mapping[str, str] = step.ON_GPU, **factors: float) -> Graph:
    """Returns the graph of one rank's step: its part of the images."""
    return step.build(plan.layers, plan.batch // plan.gpus, rungs, plan.optimizer, **factors)


@dataclass
class Outcome:
    """A parallel step's result: each rank's weights, float32, and the loss of each image in their order."""

    graph: Graph
    weights: list[Array]
    losses: Array


def train(plan: Plan, images: Array, labels: Array, seed: int = 0, **factors: float) -> Outcome:
    """Returns one step of data parallel training, with the state sharded as the plan's way says. Gradients are those of the
    mean loss of all images."""
    graph = replica(plan, step.ON_CPU, **factors)
    work = _Work(plan, graph, _open(plan, graph, images, labels, seed))
    for node in graph.nodes:
        if node.phase == UPDATE:
            work.share_update()
        work.gather_weights(node)
        for rank in work.ranks:
            rank.run(node)
        work.drop_weights(node)
        for bucket in work.buckets:
            if bucket.ready is node:
                work.combine(bucket)
    work.collect()
    losses = np.concatenate([rank.arrays["loss"] for rank in work.ranks])
    return Outcome(graph, [rank.arrays[WEIGHTS] for rank in work.ranks], losses)


def _open(plan: Plan, graph: Graph, images: Array, labels: Array, seed: int) -> list[Rank]:
    each = plan.batch // plan.gpus
    parts = [slice(n * each, (n + 1) * each) for n in range(plan.gpus)]
    first = step.inputs(graph, images[parts[0]], labels[parts[0]], seed)
    mean = {FACTOR: np.full(each, 1 / plan.batch, np.float32)}  # of all images, not of the rank's
    return [open_rank(graph, graph.nodes, first | mean | {IMAGE: images[part], LABELS: labels[part]}) for part in parts]


@dataclass
class _Work:
    """The ranks of a step and what moves between them."""

    plan: Plan
    graph: Graph
    ranks: list[Rank]

    def __post_init__(self):
        self.buckets = buckets(self.graph, self.plan.bucket_bytes)
        self.gathers = Gathers(self.graph, self.buckets)
        self.states = [t.name for t in self.graph.of_kind(STATE)]
        if self.plan.zero >= 1:
            for name in self.states:
                self._keep_shards(name, self.buckets)
        if self.plan.zero >= 3:
            self._keep_shards(WEIGHTS, self.buckets)

    def _keep_shards(self, name: str, of: Iterable[Bucket]) -> None:
        """Overwrites with NaN what a rank does not hold: the shards of the others."""
        for bucket in of:
            for n, rank in enumerate(self.ranks):
                own = [(first, rank.arrays[name][first:stop].copy()) for first, stop in self._shard(bucket, n)]
                rank.put(name, bucket.ranges, np.full(bucket.elements, np.nan, np.float32))
                for first, kept in own:
                    rank.arrays[name][first : first + len(kept)] = kept

    def _shard(self, bucket: Bucket, rank: int) -> list[Range]:
        return bucket.shard(rank, len(self.ranks))

    def combine(self, bucket: Bucket) -> None:
        """All-reduces a bucket, or reduce-scatters it if gradients are sharded."""
        kind = REDUCE_SCATTER if self.plan.zero >= 2 else ALL_REDUCE
        results = self._collective(kind, GRADIENTS, bucket)
        for rank, result in zip(self.ranks, results, strict=True):
            rank.put(GRADIENTS, bucket.ranges, result)
        if self.plan.zero >= 2:
            self._keep_shards(GRADIENTS, [bucket])

    def _collective(self, kind: str, name: str, bucket: Bucket) -> list[Array]:
        arrays = [rank.flat(name, bucket.ranges) for rank in self.ranks]
        return execute(schedule(kind, RING, len(arrays), bucket.elements), arrays)

    def share_update(self) -> None:
        """Lets each rank update its shard only: the optimiser's table of chunks gets the rank's part of each chunk."""
        if not self.plan.zero:
            return
        for n, rank in enumerate(self.ranks):
            shard = [r for bucket in self.buckets for r in self._shard(bucket, n)]
            rank.arrays[CHUNKS][...] = _within(self.graph.chunks, shard)

    def gather_weights(self, node: Node) -> None:
        """Gathers sharded weights before the first node that uses them."""
        if self.plan.zero >= 3:
            for n in self.gathers.before.get(node.name, ()):
                self._gather(self.buckets[n])

    def drop_weights(self, node: Node) -> None:
        """Gives gathered weights back after the last node that uses them."""
        if self.plan.zero >= 3:
            self._keep_shards(WEIGHTS, [self.buckets[n] for n in self.gathers.after.get(node.name, ())])

    def _gather(self, bucket: Bucket) -> None:
        for rank, result in zip(self.ranks, self._collective(ALL_GATHER, WEIGHTS, bucket), strict=True):
            rank.put(WEIGHTS, bucket.ranges, result)

    def collect(self) -> None:
        """Gathers the updated weights of all ranks, if each has updated a shard."""
        if self.plan.zero:
            for bucket in self.buckets:
                self._gather(bucket)


def _within(chunks: Array, shard: Sequence[Range]) -> Array:
    """Returns the part of each chunk (first element, elements) that is in the shard: none has 0 elements."""
    found = np.zeros_like(chunks)
    for n, (first, count) in enumerate(chunks.tolist()):
        for begin, end in shard:
            low, high = max(first, begin), min(first + count, end)
            if low < high:
                found[n] = low, high - low
    return found


def shard_elements(found: Sequence[Bucket], rank: int, ranks: int, whole: Collection[int] = ()) -> int:
    """Returns the elements that a rank holds of all buckets: its shards, and all of the `whole` ones."""
    return sum(bucket.elements if n in whole else _sizes(bucket, ranks)[rank] for n, bucket in enumerate(found))


def _sizes(bucket: Bucket, ranks: int) -> list[int]:
    return [stop - first for first, stop in pairwise(bounds(bucket.elements, ranks))]
