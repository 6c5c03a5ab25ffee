"""Pipeline parallel training on a processor: each rank has a few layers, and the images go through them in micro-batches.

GPipe runs all micro-batches forward, then all back (Huang et al., arXiv 1811.06965; here both in the same order). 1F1B
alternates as soon as a stage can, so that it holds fewer activations (Harlap et al., "PipeDream", arXiv 1806.03377).
The nodes are those of gradient accumulation over as many parts, so the numbers are the same bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kernels.parallel.data import Outcome
from kernels.parallel.plan import GPIPE, Plan
from kernels.parallel.rank import Rank, open_rank, ranges_of, read, weights_of, written
from kernels.training import step
from kernels.training.accumulate import PART
from kernels.training.graph import BACKWARD, FORWARD, STATE, UPDATE, Graph, Node
from kernels.training.step import WEIGHTS, Memory

SUM = "sum of parts 1 to "


class Turn(NamedTuple):
    """What a stage does at once: the forward or the backward pass of a micro-batch, counted from 0."""

    phase: str
    micro: int


def turns(way: str, stages: int, stage: int, micros: int) -> list[Turn]:
    """Returns the turns of a stage in order."""
    forward = [Turn(FORWARD, k) for k in range(micros)]
    backward = [Turn(BACKWARD, k) for k in range(micros)]
    ahead = micros if way == GPIPE else min(micros, stages - stage)  # passes forward before the first one back
    order = forward[:ahead]
    for k in range(micros):
        order.append(backward[k])
        order += forward[ahead + k : ahead + k + 1]
    return order


def in_flight(way: str, stages: int, stage: int, micros: int) -> int:
    """Returns the most micro-batches whose activations a stage holds at the same time."""
    most = now = 0
    for turn in turns(way, stages, stage, micros):
        now += 1 if turn.phase == FORWARD else 0
        most = max(most, now)
        now -= 1 if turn.phase == BACKWARD else 0
    return most


def bubble(stages: int, micros: int) -> float:
    """Returns the share of idle time of a pipeline whose stages all take equally long."""
    return (stages - 1) / (micros + stages - 1)


def graph_of(plan: Plan, rungs: Mapping[str, str] = step.ON_GPU, **factors: float) -> Graph:
    """Returns the graph of the whole step, its images in micro-batches."""
    return step.graph_of(plan.layers, plan.batch, rungs, plan.optimizer, Memory(parts=plan.micro), **factors)


def balanced(costs: Sequence[float], stages: int) -> list[int]:
    """Returns the number of neighbours in each of so many groups, so that the largest sum of a group is the least."""
    sums = np.concatenate([[0.0], np.cumsum(costs)])
    best = {0: (0.0, [0])}  # by how many are in groups: the largest sum, the cuts
    for groups in range(1, stages + 1):
        best = {
            end: min(
                (max(worst, sums[end] - sums[start]), [*cuts, end])
                for start, (worst, cuts) in best.items()
                if start < end
            )
            for end in range(groups, len(costs) - (stages - groups) + 1)
        }
    cuts = best[len(costs)][1]
    return [b - a for a, b in pairwise(cuts)]


@dataclass(frozen=True)
class Stages:
    """A step's nodes divided over stages. `layers`: those of each stage, in order."""

    graph: Graph
    layers: tuple[tuple[str, ...], ...]

    @cached_property
    def of_layer(self) -> dict[str, int]:
        found = {layer: n for n, layers in enumerate(self.layers) for layer in layers}
        return found | {"loss": len(self.layers) - 1}

    def nodes(self, stage: int, turn: Turn) -> list[Node]:
        """Returns the nodes of a turn; a backward one adds the gradients to those of the micro-batches before."""
        return self._by_turn.get((stage, turn), []) + (self._sums.get(turn.micro, []) if turn.phase == BACKWARD else [])

    @cached_property
    def _by_turn(self) -> dict[tuple[int, Turn], list[Node]]:
        found: dict[tuple[int, Turn], list[Node]] = {}
        for node in self.graph.nodes:
            if node.phase != UPDATE and not node.name.startswith(SUM):
                key = self.of_layer[node.layer], Turn(node.phase, micro_of(node))
                found.setdefault(key, []).append(node)
        return found

    @cached_property
    def _sums(self) -> dict[int, list[Node]]:
        sums = [node for node in self.graph.nodes if node.name.startswith(SUM)]
        return {int(node.name.removeprefix(SUM)) - 1: [node] for node in sums}

    @cached_property
    def update(self) -> Node:
        return self.graph.nodes[-1]

    def order(self, way: str, stage: int, micros: int) -> list[Node]:
        """Returns all nodes of a stage in the order in which it runs them."""
        found = [n for t in turns(way, len(self.layers), stage, micros) for n in self.nodes(stage, t)]
        return [*found, self.update]

    @cached_property
    def writers(self) -> dict[str, int]:
        """Returns the stage that computes each tensor between nodes."""
        found: dict[str, int] = {}
        for node in self.graph.nodes:
            if node.phase != UPDATE and not node.name.startswith(SUM):
                for tensor in written(node):
                    found.setdefault(tensor, self.of_layer[node.layer])
        return found

    @cached_property
    def _phases(self) -> dict[str, str]:
        return {t: node.phase for node in reversed(self.graph.nodes) for t in written(node)}

    def phase_of(self, tensor: str) -> str:
        """Returns the pass that computes a tensor."""
        return self._phases[tensor]

    def received(self, stage: int, turn: Turn) -> list[str]:
        """Returns the tensors that a turn uses and another stage computes. On the way back the stage still has those that
        it received forward."""
        mine = {t for node in self.nodes(stage, turn) for t in written(node)}
        if turn.phase == BACKWARD:
            mine.update(self.received(stage, Turn(FORWARD, turn.micro)))
        used = dict.fromkeys(t for node in self.nodes(stage, turn) for t in read(node))
        return [t for t in used if t not in mine and self.writers.get(t, stage) != stage]

    def weights(self, stage: int) -> list[str]:
        return weights_of(self.graph, self.layers[stage])


def micro_of(node: Node) -> int:
    """Returns the micro-batch of a node, from 0."""
    part = node.name.partition(PART)[2]
    return int(part) - 1 if part else 0


def split(plan: Plan, costs: Mapping[str, float], rungs: Mapping[str, str] = step.ON_GPU, **factors: float) -> Stages:
    """Returns the stages of a plan: neighbours among the layers, so that the slowest stage is as fast as possible. `costs`:
    the time of each layer in any unit."""
    names = [layer.name for layer in plan.layers.layers]
    sizes = balanced([costs.get(name, 0.0) for name in names], plan.gpus)
    ends = np.cumsum([0, *sizes])
    layers = tuple(tuple(names[a:b]) for a, b in pairwise(ends))
    return Stages(graph_of(plan, rungs, **factors), layers)


def train(
    plan: Plan, costs: Mapping[str, float], images: np.ndarray, labels: np.ndarray, seed: int = 0, **factors: float
) -> Outcome:
    """Returns one step of pipeline training: the weights of all stages, joined, once. Each stage holds only its weights and
    gets from other stages only what its nodes use."""
    stages = split(plan, costs, step.ON_CPU, **factors)
    ranks = _open(plan, stages, step.inputs(stages.graph, images, labels, seed))
    todo = [list(turns(plan.way, plan.gpus, n, plan.micro)) for n in range(plan.gpus)]
    done: set[str] = set()  # tensors that exist
    while any(todo):
        ready = [n for n, own in enumerate(todo) if own and done.issuperset(stages.received(n, own[0]))]
        if not ready:
            raise RuntimeError("each stage of the pipeline waits for another")
        for n in ready:
            turn = todo[n].pop(0)
            for tensor in stages.received(n, turn):
                ranks[n].arrays[tensor][...] = ranks[stages.writers[tensor]].arrays[tensor]
            for node in stages.nodes(n, turn):
                ranks[n].run(node)
                done.update(written(node))
    joined = np.zeros(stages.graph.tensors[WEIGHTS].shape, np.float32)
    for n, rank in enumerate(ranks):
        rank.run(stages.update)
        for first, stop in ranges_of(stages.graph, stages.weights(n)):
            joined[first:stop] = rank.arrays[WEIGHTS][first:stop]
    return Outcome(stages.graph, [joined], ranks[-1].arrays["loss"])


def _open(plan: Plan, stages: Stages, inputs: Mapping[str, np.ndarray]) -> list[Rank]:
    graph = stages.graph
    large = [WEIGHTS, *(t.name for t in graph.of_kind(STATE))]
    ranks = []
    for n in range(plan.gpus):
        given = dict(inputs)
        for name in large:
            given[name] = np.full_like(inputs[name], np.nan)
            for first, stop in ranges_of(graph, stages.weights(n)):
                given[name][first:stop] = inputs[name][first:stop]
        ranks.append(open_rank(graph, stages.order(plan.way, n, plan.micro), given))
    return ranks
