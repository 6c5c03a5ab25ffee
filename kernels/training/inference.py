"""The forward pass of a trained network on the processor: batch norm with the running statistics of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kernels.engines import cpu
from kernels.ladders import ladder_of
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, View
from kernels.norm.shape import BatchNormInferenceShape, BatchNormShape
from kernels.training import step
from kernels.training.accumulate import of_first_part
from kernels.training.compose import Part, compose
from kernels.training.graph import DATA, FORWARD, WEIGHT, Graph, Node, node_program
from kernels.training.networks import IMAGE, NETWORKS

MOMENTUM = 0.1  # of the running statistics, PyTorch's default
CHUNK = 512  # images at a time
RUNNING = "running "  # before the name of a statistic of the batch
FIRST = {"mean": 0.0, "invstd": 1.0}  # a mean, and instead of 1/std a variance
INFERENCE = {"mean": "mean", "invstd": "var"}  # the buffers of batch norm in inference


def running_names(graph: Graph) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Yields the name, the shape and the first value of each running statistic: a mean, and under the name of 1/std a
    variance."""
    for name in step.statistics(graph):
        if name == of_first_part(name):
            yield RUNNING + name, graph.tensors[name].shape, FIRST[name.rpartition(".")[2]]


def predicted(network: str, arrays: Mapping[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Returns the label of each image [n, 1, H, W] that a network finds the most likely: int64 [n].

    `arrays`: the buffer of all weights, and the running statistics (running_names).
    """
    return np.concatenate(
        [outputs(network, arrays, images[n : n + CHUNK]).argmax(axis=1) for n in range(0, len(images), CHUNK)]
    )


def outputs(network: str, arrays: Mapping[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Returns the outputs of a network for images [n, 1, H, W]: float32 [n, classes]."""
    graph = step.build(NETWORKS[network], len(images), step.ON_CPU)
    nodes = [node for node in graph.nodes if node.phase == FORWARD]
    *nodes, loss = (_inference(node) for node in nodes)
    result = loss.tensors["x"]
    parts = [Part(node.name, node_program(node, ladder_of), node.tensors) for node in nodes]
    used = {name for part in parts for name in part.tensors.values()}
    statistics = {name: a for name, a in arrays.items() if name.startswith(RUNNING)}
    tensors = [
        Buffer(
            t.name, OUTPUT if t.name == result else INPUT if t.kind in (DATA, WEIGHT) else WORKSPACE, t.shape, t.dtype
        )
        for t in graph.tensors.values()
        if t.name in used or t.name == step.WEIGHTS
    ]
    tensors += [Buffer(name, INPUT, a.shape) for name, a in statistics.items()]
    views: list[View] = [view for view in graph.views if view.of == step.WEIGHTS]
    session = cpu.open(
        compose(tensors, parts, views), {IMAGE: images, step.WEIGHTS: arrays[step.WEIGHTS], **statistics}
    )
    return np.array(session.verify_run())


def _inference(node: Node) -> Node:
    """Returns the node of the forward pass in inference: of batch norm another one, with the running statistics."""
    if not isinstance(node.shape, BatchNormShape):
        return node
    shape = BatchNormInferenceShape(**node.shape.params())
    tensors = {name: tensor for name, tensor in node.tensors.items() if name not in FIRST}
    tensors |= {buffer: RUNNING + node.tensors[name] for name, buffer in INFERENCE.items()}
    return Node(node.name, node.layer, node.phase, "batch-norm-inference/formula", shape, tensors)
