"""The memory of one step as it is really allocated: each tensor when it is first used, and freed after its last use."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels import engines
from kernels.ladders import ladder_of
from kernels.training import graph as graphs
from kernels.training.compose import lifetimes
from kernels.training.graph import RESULT, Graph, node_program
from kernels.training.memory import DATA, ROLES, WORKSPACE

Held = Mapping[str, tuple[int, ...]]  # of each node, by name: the bytes of each role (ROLES)


def held(graph: Graph, inputs: Mapping[str, np.ndarray], engine: str = "cpu") -> Held:
    """Returns the bytes that exist while each node runs, measured in one step on an engine.

    Of several launches of a node it is the one with the most bytes. What a launch allocates beyond the tensors counts as
    workspace. The inputs are not changed.
    """
    program = graphs.program(graph, ladder_of)
    steps = engines.load(engine).allocate_by_need(program, inputs, lifetimes(program))
    kinds = {t.name: DATA if t.kind == RESULT else t.kind for t in graph.tensors.values()}
    found: dict[str, tuple[int, ...]] = {}
    at = 0
    for node in graph.nodes:
        count = len(node_program(node, ladder_of).steps)
        rows = [_by_role(step.buffers, step.other, kinds) for step in steps[at : at + count]]
        found[node.name] = max(rows, key=sum)
        at += count
    return found


def _by_role(buffers: Mapping[str, int], other: int, kinds: Mapping[str, str]) -> tuple[int, ...]:
    sums = dict.fromkeys(ROLES, 0) | {WORKSPACE: other}
    for name, nbytes in buffers.items():
        sums[kinds.get(name, WORKSPACE)] += nbytes
    return tuple(sums[role] for role in ROLES)
