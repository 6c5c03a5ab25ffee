"""A training step as its launches: what each runs, and the bytes that must exist while it runs, by role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.i18n import cached, mark
from kernels.ladders import ladder_of
from kernels.model.program import Launch, Program
from kernels.training import graph as graphs
from kernels.training import step
from kernels.training.compose import live_bytes
from kernels.training.graph import ACTIVATION, DATA, GRADIENT, RESULT, STATE, WEIGHT, Graph, Node, node_program

WORKSPACE = "workspace"
# The roles of memory in the order in which they are stacked: what stays from step to step is at the bottom.
ROLES = (WEIGHT, STATE, DATA, ACTIVATION, GRADIENT, WORKSPACE)
NAMES: Mapping[str, str] = {
    WEIGHT: mark("weights"), STATE: mark("optimiser state"), DATA: mark("images"), ACTIVATION: mark("activations"),
    GRADIENT: mark("gradients"), WORKSPACE: mark("workspace"),
}  # fmt: skip
STAYS = (WEIGHT, STATE, DATA)
HUES: Mapping[str, str] = {  # the colour of each role on the stage and in the strip
    WEIGHT: "filter", STATE: "filter", DATA: "input", ACTIVATION: "input", GRADIENT: "output", WORKSPACE: "workspace",
}  # fmt: skip


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
def plan(network: str, batch: int, optimizer: str) -> Plan:
    """Returns the plan of a network's step with the kernels for a GPU. RuleError names a rule that a shape breaks."""
    graph, program = step.cached(network, batch, False, optimizer, ())
    return Plan(graph, _parts(graph, program), memory(graph, program))


def _parts(graph: Graph, program: Program) -> tuple[Part, ...]:
    parts: list[Part] = []
    for n, node in enumerate(graph.nodes):
        count = len(node_program(node, ladder_of).steps)
        first = len(parts)
        parts += [Part(n, k, count, program.steps[first + k]) for k in range(count)]
    if len(parts) != len(program.steps):
        raise ValueError(f"{len(program.steps)} launches for nodes of {len(parts)}")
    return tuple(parts)


def memory(graph: Graph, program: Program) -> np.ndarray:
    """Returns the bytes that must exist during each launch: int64 [launches, ROLES].

    Weights, state and images exist all the time. An activation, a gradient or a workspace exists from the first launch
    that uses it to the last one.
    """
    found = np.zeros((len(program.steps), len(ROLES)), np.int64)
    for kind in STAYS:
        found[:, ROLES.index(kind)] = graph.nbytes(kind)
    for n, live in enumerate(live_bytes(program)):
        for name, nbytes in live.items():
            tensor = graph.tensors.get(name)
            found[n, ROLES.index(tensor.kind if tensor else WORKSPACE)] += nbytes
    return found


def all_bytes(network: str, batch: int, optimizer: str) -> int:
    """Returns the bytes of all buffers of a step on the processor, where each has memory of its own to the end."""
    _, program = step.cached(network, batch, True, optimizer, ())
    return sum(b.nbytes for b in program.buffers)


def held(graph: Graph) -> dict[str, int]:
    """Returns the bytes of each activation that the forward pass keeps for the backward pass."""
    phases: dict[str, set[str]] = {}
    for node in graph.nodes:
        for name in node.tensors.values():
            phases.setdefault(name, set()).add(node.phase)
    return {
        t.name: t.buffer(False).nbytes
        for t in graph.of_kind(ACTIVATION)
        if graphs.BACKWARD in phases.get(t.name, ())
    }


__all__ = ["HUES", "NAMES", "RESULT", "ROLES", "Part", "Plan", "all_bytes", "held", "memory", "plan"]
