"""Tensor parallel training on a processor: every rank sees all images and holds a part of each large layer.

Of a pair of fully connected layers the first is split by its outputs (columns of the product), the second by its inputs
(rows). Then one all-reduce of the second's result is enough forward, and one of the first's input gradient on the way back.
Heads of attention are split with the layer before them (Shoeybi et al., "Megatron-LM", arXiv 1909.08053).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernels.collectives.executor import execute
from kernels.collectives.schedules import schedule
from kernels.collectives.shape import ALL_REDUCE, RING
from kernels.model.program import View
from kernels.parallel.data import Outcome
from kernels.parallel.plan import PAIRS, Plan
from kernels.parallel.rank import Rank, open_rank
from kernels.training import step
from kernels.training.graph import BACKWARD, FORWARD, UPDATE, Graph
from kernels.training.networks import Network
from kernels.training.step import GRADIENTS, WEIGHTS

COLUMNS, ROWS, WHOLE = "columns", "rows", "whole"  # how a weight is split
PARTS = 3  # queries, keys and values of a row


def rank_network(plan: Plan) -> Network:
    """Returns the network of one rank: the first layer of each pair has a part of its outputs, attention of its heads."""
    columns = {column for column, _ in PAIRS[plan.network]}
    layers = []
    for layer in plan.layers.layers:
        options = dict(layer.options)
        if layer.name in columns:
            options["N"] //= plan.gpus
        if "heads" in options:
            options["heads"] //= plan.gpus
        layers.append(replace(layer, options=options))
    return replace(plan.layers, layers=tuple(layers))


def rank_graph(plan: Plan, rungs: Mapping[str, str] = step.ON_GPU, **factors: float) -> Graph:
    """Returns the graph of one rank's step. Its results of row-split layers are sums of a part of the inputs."""
    return step.build(rank_network(plan), plan.batch, rungs, plan.optimizer, **factors)


def split_of(plan: Plan, weight: str) -> str:
    """Returns how a weight is split: by COLUMNS, by ROWS, or not."""
    layer, _, name = weight.rpartition(".")
    for column, row in PAIRS[plan.network]:
        if layer == column:
            return COLUMNS
        if layer == row:
            return ROWS if name == "W" else WHOLE
    return WHOLE


def cut(plan: Plan, weight: str, whole: np.ndarray, rank: int) -> np.ndarray:
    """Returns a rank's part of a weight. The bias of a row-split layer is rank 0's: it is added once."""
    layer = weight.rpartition(".")[0]
    way = split_of(plan, weight)
    if way == ROWS:
        return np.split(whole, plan.gpus, axis=1)[rank]
    if way == COLUMNS:
        parts = PARTS if _feeds_attention(plan, layer) else 1
        grouped = whole.reshape(parts, -1, *whole.shape[1:])  # queries, keys and values are split each
        return np.split(grouped, plan.gpus, axis=1)[rank].reshape(-1, *whole.shape[1:])
    return np.zeros_like(whole) if is_only_on_first(plan, weight) and rank else whole


def join(plan: Plan, weight: str, parts: list[np.ndarray]) -> np.ndarray:
    """Returns the whole weight from the parts of all ranks."""
    layer = weight.rpartition(".")[0]
    way = split_of(plan, weight)
    if way == ROWS:
        return np.concatenate(parts, axis=1)
    if way == COLUMNS:
        count = PARTS if _feeds_attention(plan, layer) else 1
        grouped = [part.reshape(count, -1, *part.shape[1:]) for part in parts]
        return np.concatenate(grouped, axis=1).reshape(-1, *parts[0].shape[1:])
    return parts[0]


def is_only_on_first(plan: Plan, weight: str) -> bool:
    """Returns whether rank 0 alone holds a weight: the bias of a row-split layer."""
    layer, _, name = weight.rpartition(".")
    return name == "b" and any(layer == row for _, row in PAIRS[plan.network])


def _feeds_attention(plan: Plan, layer: str) -> bool:
    names = [each.name for each in plan.layers.layers]
    after = plan.layers.layers[names.index(layer) + 1]
    return after.kind == "attention"


@dataclass(frozen=True)
class Exchange:
    """An all-reduce of a tensor of all ranks, after a node."""

    node: str
    tensor: str
    phase: str
    nbytes: int


def exchanges(plan: Plan, graph: Graph) -> Iterator[Exchange]:
    """Yields the all-reduces of a step in order: of each row-split result forward, of each column-split layer's input
    gradient on the way back."""
    rows = {row for _, row in PAIRS[plan.network]}
    columns = {f"{column} dx" for column, _ in PAIRS[plan.network]}
    for node in graph.nodes:
        tensor = ""
        if node.phase == FORWARD and node.name in rows:
            tensor = node.tensors["y"]
        elif node.phase == BACKWARD and node.name in columns:
            tensor = node.tensors["dx"]
        if tensor:
            yield Exchange(node.name, tensor, node.phase, graph.tensors[tensor].nbytes)


def train(plan: Plan, images: np.ndarray, labels: np.ndarray, seed: int = 0, **factors: float) -> Outcome:
    """Returns one step of tensor parallel training: the whole weights, joined from all ranks, once."""
    whole = step.build(plan.layers, plan.batch, step.ON_CPU, plan.optimizer, **factors)
    graph = rank_graph(plan, step.ON_CPU, **factors)
    ranks = _open(plan, whole, graph, images, labels, seed)
    after = {exchange.node: exchange for exchange in exchanges(plan, graph)}
    for node in graph.nodes:
        if node.phase == UPDATE:
            _leave_to_first(plan, graph, ranks)
        for rank in ranks:
            rank.run(node)
        if node.name in after:
            _all_reduce(ranks, after[node.name].tensor)
    joined = np.zeros(whole.tensors[WEIGHTS].shape, np.float32)
    for view in _weights(whole):
        view.cut(joined)[...] = join(plan, view.name, [rank.arrays[view.name] for rank in ranks])
    return Outcome(whole, [joined], ranks[0].arrays["loss"])


def _open(plan: Plan, whole: Graph, graph: Graph, images, labels, seed: int) -> list[Rank]:
    first = step.inputs(graph, images, labels, seed)
    everything = step.first_weights(whole, seed)
    ranks = [open_rank(graph, graph.nodes, first) for _ in range(plan.gpus)]
    for view in _weights(whole):
        for n, rank in enumerate(ranks):
            rank.arrays[view.name][...] = cut(plan, view.name, view.cut(everything), n)
    return ranks


def _weights(graph: Graph) -> list[View]:
    return [view for view in graph.views if view.of == WEIGHTS]


def _leave_to_first(plan: Plan, graph: Graph, ranks: list[Rank]) -> None:
    """Clears the gradients of weights that rank 0 alone holds, on all others."""
    for view in graph.views:
        if view.of == GRADIENTS and is_only_on_first(plan, view.name.removeprefix("d ")):
            for rank in ranks[1:]:
                rank.arrays[view.name][...] = 0


def _all_reduce(ranks: list[Rank], tensor: str) -> None:
    flat = [rank.arrays[tensor].ravel() for rank in ranks]
    results = execute(schedule(ALL_REDUCE, RING, len(ranks), flat[0].size), flat)
    for rank, result in zip(ranks, results, strict=True):
        rank.arrays[tensor][...] = result.reshape(rank.arrays[tensor].shape)
