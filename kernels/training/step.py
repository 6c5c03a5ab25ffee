"""A training step of a network at a batch size: its graph, its first weights, its inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from kernels.i18n import tr
from kernels.ladders import ladder_of
from kernels.model.program import Program, RuleError, Step
from kernels.norm.shape import BatchNormShape
from kernels.optimizer.shape import AdamShape, OptimizerShape, SgdShape, sizes_text
from kernels.training import graph as graphs
from kernels.training.accumulate import accumulated
from kernels.training.builder import Builder
from kernels.training.graph import Graph
from kernels.training.layers import LAYERS, cross_entropy, sum_shape
from kernels.training.memory import packed
from kernels.training.networks import IMAGE, NETWORKS, Network
from kernels.training.recompute import recomputed

LABELS, FACTOR, CHUNKS = "labels", "factor", "chunks"
WEIGHTS, GRADIENTS = "weights", "gradients"
# The rung of each operation: the fastest on a GPU, and the fastest of the NumPy implementations.
ON_GPU = {
    "conv": "conv/implicit-gemm",
    "conv-dinput": "conv-dinput/implicit-gemm",
    "conv-dweight": "conv-dweight/implicit-gemm",
    "relu": "relu/float4",
    "relu-backward": "relu-backward/float4",
    "bias-backward": "bias-backward/two-launches",
    "max-pool": "max-pool/patch",
    "max-pool-backward": "max-pool-backward/gather-patch",
    "global-avg-pool": "global-avg-pool/warp",
    "global-avg-pool-backward": "global-avg-pool-backward/four-pixels",
    "batch-norm": "batch-norm/split",
    "batch-norm-backward": "batch-norm-backward/split",
    "residual": "residual/float4",
    "linear": "linear/split",
    "linear-dinput": "linear-dinput/tile",
    "linear-dweight": "linear-dweight/split",
    "cross-entropy": "cross-entropy/online",
    "cross-entropy-backward": "cross-entropy-backward/rows",
    "sum": "add/vector",
    "sgd": "sgd/float4",
    "adam": "adam/float4",
    "bias": "bias/float4",
    "layer-norm": "layer-norm/warp",
    "layer-norm-backward": "layer-norm-backward/registers",
    "split-heads": "split-heads/float4",
    "merge-heads": "merge-heads/float4",
    "attention": "attention-lse/flash-registers",
    "attention-backward": "attention-backward/flash-two-kernels",
}
ON_CPU = ON_GPU | {
    "conv": "conv/im2col-cublas",
    "conv-dinput": "conv-dinput/direct",
    "conv-dweight": "conv-dweight/direct",
    "attention": "attention-lse/blocked",
    "attention-backward": "attention-backward/naive",
    "layer-norm": "layer-norm/three-reads",
    "layer-norm-backward": "layer-norm-backward/columns",
}
OPTIMIZERS: Mapping[str, tuple[type[OptimizerShape], tuple[str, ...]]] = {
    "sgd": (SgdShape, ("v",)),
    "adam": (AdamShape, ("m", "v")),
}


def build(network: Network, batch: int, rungs: Mapping[str, str], optimizer: str = "sgd", **factors: float) -> Graph:
    """Returns the graph of one step: forward, backward, update. `factors` are those of the optimiser's shape."""
    b = Builder(rungs, sum_shape)
    results = {IMAGE: b.data(IMAGE, batch, 1, network.size, network.size)}
    before = IMAGE
    for layer in network.layers:
        b.layer = layer.name
        reads = [results[name] for name in layer.reads or (before,)]
        results[layer.name] = LAYERS[layer.kind](b, *reads, **layer.options)
        before = layer.name
    b.layer = "loss"
    labels = b.data(LABELS, batch, dtype="int32", below=network.classes)
    cross_entropy(b, results[before], labels, b.data(FACTOR, batch))
    shape_of, state = OPTIMIZERS[optimizer]
    sizes = sizes_text(tuple(math.prod(extents) for extents in b.weights.values()))
    return b.updated(optimizer, shape_of(sizes, **factors), state)


@dataclass(frozen=True)
class Memory:
    """How a step saves memory. `every`: the results of every n-th layer are kept and the others computed again; 0 keeps all.
    `parts`: the images go through the network in so many parts."""

    every: int = 0
    parts: int = 1


PLAIN = Memory()


def graph_of(
    network: Network, batch: int, rungs: Mapping[str, str], optimizer: str, memory: Memory = PLAIN, **factors: float
) -> Graph:
    """Returns the graph of a step that may save memory. RuleError if the images cannot be split into equal parts."""
    if memory.every < 0 or memory.parts < 1 or batch % memory.parts:
        raise RuleError(
            tr("{batch} images cannot be split into {parts} equal parts", batch=batch, parts=memory.parts)
            if memory.every >= 0
            else tr("a layer in 0 or more is kept, got every {every}", every=memory.every)
        )
    graph = build(network, batch // memory.parts, rungs, optimizer, **factors)
    if memory.every:
        graph = recomputed(graph, memory.every)
    return accumulated(graph, memory.parts, rungs["sum"], sum_shape) if memory.parts > 1 else graph


@lru_cache(maxsize=16)
def cached(
    network: str, batch: int, cpu: bool, optimizer: str, factors: tuple[tuple[str, float], ...], memory: Memory = PLAIN
) -> tuple[Graph, Program]:
    """Returns the graph and the program of a step, with the rungs of a processor or of a GPU. Tensors that do not live at the
    same time share memory."""
    graph = graph_of(NETWORKS[network], batch, ON_CPU if cpu else ON_GPU, optimizer, memory, **dict(factors))
    return graph, packed(graphs.program(graph, ladder_of), statistics(graph))


def at(graph: Graph, program: Program, t: int) -> tuple[Graph, Program]:
    """Returns the graph and the program of step t, counted from 1, of an optimiser whose corrections depend on t. They
    differ from the first step's in the scalars of the update alone, so nothing else is built again."""
    last = graph.nodes[-1]
    node = replace(last, shape=last.shape.with_(step=t))
    built = graphs.node_program(node, ladder_of).steps
    kept = program.steps[: -len(built)]
    steps = [_with_scalars(*pair) for pair in zip(program.steps[-len(built) :], built, strict=True)]
    return replace(graph, nodes=(*graph.nodes[:-1], node)), replace(program, steps=(*kept, *steps))


def _with_scalars(step: Step, other: Step) -> Step:
    """Returns a step with the scalars of another one and its own buffers."""
    pairs = zip(step.args, other.args, strict=True)
    return replace(step, args=tuple(a if isinstance(a, str) else b for a, b in pairs))


def statistics(graph: Graph) -> list[str]:
    """Returns the tensors with the mean and 1/std of each batch norm, of each part of the images."""
    norms = [n for n in graph.nodes if isinstance(n.shape, BatchNormShape) and n.phase == graphs.FORWARD]
    return [node.tensors[name] for node in norms for name in ("mean", "invstd")]


def first_weights(graph: Graph, seed: int = 0) -> np.ndarray:
    """Returns all weights before training, float32: filters and matrices normal with variance 2 / (inputs of a sum) (He
    et al., arXiv 1502.01852), factors of norms 1, everything else 0. The gaps between tensors are 0."""
    rng = np.random.default_rng(seed)
    flat = np.zeros(graph.tensors[WEIGHTS].shape, np.float32)
    for view in graph.views:
        if view.of != WEIGHTS:
            continue
        values = view.cut(flat)
        if len(view.shape) > 1:
            inputs = math.prod(view.shape[1:])
            values[...] = rng.standard_normal(view.shape, np.float32) * np.float32(math.sqrt(2 / inputs))
        elif view.name.endswith(".gamma"):
            values[...] = 1
    return flat


def inputs(graph: Graph, images: np.ndarray, labels: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """Returns every input of a first step: images [N, 1, H, W], labels [N], first weights, state 0."""
    found = {
        IMAGE: images,
        LABELS: labels,
        FACTOR: np.full(len(labels), 1 / len(labels), np.float32),
        WEIGHTS: first_weights(graph, seed),
        CHUNKS: graph.chunks,
    }
    states = {t.name: np.zeros(t.shape, np.float32) for t in graph.of_kind(graphs.STATE)}
    return found | states
