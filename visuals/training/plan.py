"""A training step as its launches: what each runs, and the bytes that must exist while it runs, by role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.i18n import cached, mark
from kernels.ladders import ladder_of
from kernels.model.program import WORKSPACE, Launch, Program
from kernels.training import graph as graphs
from kernels.training import step
from kernels.training.graph import ACTIVATION, DATA, GRADIENT, STATE, WEIGHT, Graph, Node, node_program
from kernels.training.memory import ROLES, timeline
from kernels.training.step import PLAIN, Memory

NAMES: Mapping[str, str] = {
    WEIGHT: mark("weights"),
    STATE: mark("optimiser state"),
    DATA: mark("images"),
    ACTIVATION: mark("activations"),
    GRADIENT: mark("gradients"),
    WORKSPACE: mark("workspace"),
}
FAINT = (STATE, DATA)  # the paler one of two roles with one colour
HUES: Mapping[str, str] = {  # the colour of each role on the stage and in the strip
    WEIGHT: "filter",
    STATE: "filter",
    DATA: "input",
    ACTIVATION: "input",
    GRADIENT: "output",
    WORKSPACE: "workspace",
}


@dataclass(frozen=True)
class Part:
    """One launch of a step: its node, by its index in the graph, and which of the node's launches it is, from 0."""

    node: int
    nth: int
    of: int
    launch: Launch


@dataclass(frozen=True)
class Plan:
    """The launches of a step in order, and their memory: int64 [launches, roles], in bytes."""

    graph: Graph
    parts: tuple[Part, ...]
    memory: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """Returns the bytes that exist during each launch: int64 [launches]."""
        return self.memory.sum(axis=1)

    @property
    def peak(self) -> int:
        """Returns the launch with the most bytes."""
        return int(self.total.argmax())

    def node(self, n: int) -> Node:
        return self.graph.nodes[self.parts[n].node]

    def first_of(self, node: int) -> int:
        """Returns the first launch of a node."""
        return next(n for n, part in enumerate(self.parts) if part.node == node)

    def at(self, n: int) -> dict[str, int]:
        """Returns the bytes during one launch by role."""
        return dict(zip(ROLES, self.memory[n].tolist(), strict=True))

    def launches(self, phase: str) -> int:
        return sum(self.graph.nodes[part.node].phase == phase for part in self.parts)

    def largest(self, role: str) -> int:
        """Returns the most bytes of a role during any launch."""
        return int(self.memory[:, ROLES.index(role)].max())


@cached(32)
def plan(network: str, batch: int, optimizer: str, memory: Memory = PLAIN) -> Plan:
    """Returns the plan of a network's step with the kernels for a GPU. RuleError names a rule that a shape breaks."""
    graph, _ = step.cached(network, batch, cpu=False, optimizer=optimizer, factors=(), memory=memory)
    nbytes = [[moment.nbytes[role] for role in ROLES] for moment in timeline(graph)]
    return Plan(graph, _parts(graph, graphs.program(graph, ladder_of)), np.array(nbytes, np.int64))


def _parts(graph: Graph, program: Program) -> tuple[Part, ...]:
    parts: list[Part] = []
    for n, node in enumerate(graph.nodes):
        count = len(node_program(node, ladder_of).steps)
        first = len(parts)
        parts += [Part(n, k, count, program.launch(first + k)) for k in range(count)]
    if len(parts) != len(program.steps):
        raise ValueError(f"{len(program.steps)} launches for nodes of {len(parts)}")
    return tuple(parts)


def all_bytes(network: str, batch: int, optimizer: str, memory: Memory = PLAIN) -> int:
    """Returns the bytes of all buffers of a step on the processor."""
    return step.cached(network, batch, cpu=True, optimizer=optimizer, factors=(), memory=memory)[1].nbytes()


def held(graph: Graph) -> dict[str, int]:
    """Returns the bytes of each activation that the forward pass keeps for the backward pass."""
    phases: dict[str, set[str]] = {}
    for node in graph.nodes:
        for name in node.tensors.values():
            phases.setdefault(name, set()).add(node.phase)
    return {t.name: t.nbytes for t in graph.of_kind(ACTIVATION) if graphs.BACKWARD in phases.get(t.name, ())}


__all__ = ["FAINT", "HUES", "NAMES", "ROLES", "WORKSPACE", "Part", "Plan", "all_bytes", "held", "plan"]
