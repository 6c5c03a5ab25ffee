"""A training step as a graph: each node runs one rung, each tensor is written by one node and read by others.

The nodes are in the order in which they run: forward, backward, update. As a program the graph runs on every engine. In
float64 it runs by the references of the nodes' ladders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, Program, View
from kernels.model.rung import Ladder
from kernels.model.shape import Shape
from kernels.model.verify import by_output
from kernels.training.compose import Part, compose

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
PHASES = (FORWARD, BACKWARD, UPDATE)
# What a tensor is, for the timeline of memory.
DATA, WEIGHT, STATE, ACTIVATION, GRADIENT, RESULT = ("data", "weight", "state", "activation", "gradient", "result")
ROLES = {DATA: INPUT, WEIGHT: INPUT, STATE: INPUT, ACTIVATION: WORKSPACE, GRADIENT: WORKSPACE, RESULT: OUTPUT}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a step. `below`: of whole numbers, as of a Buffer. `layer`: that made or owns it."""

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    below: int = 0
    layer: str = ""

    def buffer(self, updated: bool) -> Buffer:
        """Returns its buffer; an `updated` one is overwritten by the step."""
        return Buffer(self.name, ROLES[self.kind], self.shape, self.dtype, below=self.below, in_place=updated)

    @property
    def nbytes(self) -> int:
        return self.buffer(updated=False).nbytes


@dataclass(frozen=True)
class Node:
    """A rung at a shape. `tensors`: the tensor of each buffer of its program that is no workspace."""

    name: str
    layer: str
    phase: str  # of PHASES
    rung: str
    shape: Shape
    tensors: Mapping[str, str]
    tiles: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    views: tuple[View, ...]  # the weights in the buffer of all weights, likewise their gradients
    chunks: np.ndarray  # the optimiser's table of them

    def of_kind(self, kind: str) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors.values() if t.kind == kind)

    def nbytes(self, kind: str) -> int:
        return sum(t.nbytes for t in self.of_kind(kind))


Find = Callable[[str], Ladder]  # the ladder of a rung's name


def node_program(node: Node, find: Find) -> Program:
    """Returns what a node runs. RuleError names the rule that its shape breaks."""
    rung = find(node.rung).rung(node.rung)
    return rung.build(node.shape, rung.check(node.shape, node.tiles))


def program(graph: Graph, find: Find) -> Program:
    """Returns the whole step as one program. Weights and state are overwritten by the update."""
    parts = [Part(node.name, node_program(node, find), node.tensors) for node in graph.nodes]
    overwritten = {part.tensors[b.name] for part in parts for b in part.program.in_place if b.name in part.tensors}
    return compose([t.buffer(t.name in overwritten) for t in graph.tensors.values()], parts, graph.views)


def reference(graph: Graph, find: Find, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns every tensor after one step in float64, by the references of the ladders."""
    values: dict[str, np.ndarray] = {
        name: np.asarray(a, np.float64) if np.asarray(a).dtype.kind == "f" else np.asarray(a)
        for name, a in inputs.items()
    }
    for name in dict.fromkeys(view.of for view in graph.views if view.of not in values):
        values[name] = np.zeros(graph.tensors[name].shape)
    values |= {view.name: view.cut(values[view.of]) for view in graph.views}
    fixed = set(values)  # arrays and their parts, which are written in place
    for node in graph.nodes:
        ladder, built = find(node.rung), node_program(node, find)
        given = {b.name: values[node.tensors[b.name]].reshape(b.shape) for b in built.of_role(INPUT)}
        expected = by_output(ladder.reference(node.shape, **given), tuple(b.name for b in built.outputs))
        for name, (result, _) in expected.items():
            tensor = node.tensors.get(name)
            if tensor in fixed:
                values[tensor][...] = result.reshape(values[tensor].shape)
            elif tensor:
                values[tensor] = result
    return values
