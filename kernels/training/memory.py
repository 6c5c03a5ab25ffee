"""The memory of a training step: what each launch holds, by role, and one buffer for all that lives for a part of a step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernels.ladders import ladder_of
from kernels.model.program import WORKSPACE, Buffer, Program, View
from kernels.training import graph as graphs
from kernels.training.compose import lifetimes, live_bytes
from kernels.training.graph import ACTIVATION, DATA, GRADIENT, RESULT, STATE, WEIGHT, Graph, Node, node_program

SHARED = "shared workspace"
ROLES = (WEIGHT, STATE, DATA, ACTIVATION, GRADIENT, WORKSPACE)  # in the order in which they are stacked
ALIGNMENT = 256  # bytes, as of a buffer of its own on a GPU


@dataclass(frozen=True)
class Moment:
    """One launch or call of a step and the bytes that must exist while it runs, by role (ROLES)."""

    node: Node
    step: str
    nbytes: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.nbytes.values())


def timeline(graph: Graph) -> tuple[Moment, ...]:
    """Returns each launch of a step with its memory, in order. Weights, the optimiser's state, images and labels are there
    from the beginning; a tensor between nodes is there from its first use to its last."""
    program = graphs.program(graph, ladder_of)
    fixed: dict[str, int] = dict.fromkeys(ROLES, 0)
    for tensor in graph.tensors.values():
        if tensor.kind in (WEIGHT, STATE, DATA, RESULT):
            fixed[DATA if tensor.kind == RESULT else tensor.kind] += tensor.nbytes
    kinds = {t.name: t.kind for t in graph.tensors.values()}
    moments = []
    for node, step, live in zip(_nodes(graph), program.steps, live_bytes(program), strict=True):
        nbytes = dict(fixed)
        for name, size in live.items():
            nbytes[kinds.get(name, WORKSPACE)] += size
        moments.append(Moment(node, step.name, nbytes))
    return tuple(moments)


def _nodes(graph: Graph) -> Iterator[Node]:
    """Yields the node of each step of the graph's program."""
    for node in graph.nodes:
        yield from (node for _ in node_program(node, ladder_of).steps)


def peak(moments: tuple[Moment, ...]) -> Moment:
    """Returns the first launch that holds the most memory."""
    return max(moments, key=lambda moment: moment.total)


def packed(program: Program, kept: Collection[str] = ()) -> Program:
    """Returns the program with its workspace in one buffer. Tensors that do not live at the same time share its bytes; the
    `kept` ones are there until the end, to be read after it.

    The largest is placed first, each at the lowest place that is free while it lives.
    """
    lives = lifetimes(program)
    lives |= {name: (lives[name][0], len(program.steps)) for name in kept}
    workspace = {b.name: b for b in program.of_role(WORKSPACE) if b.name in lives}
    starts = _placed({name: (*lives[name], b.nbytes) for name, b in workspace.items()})
    if not starts:
        return program
    size = max(start + workspace[name].nbytes for name, start in starts.items())
    shared = Buffer(SHARED, WORKSPACE, (-(-size // 4),))
    buffers = tuple(b for b in program.buffers if b.name not in workspace)
    views = [
        View(
            name,
            SHARED,
            start // np.dtype(workspace[name].dtype).itemsize,
            workspace[name].shape,
            workspace[name].dtype,
        )
        for name, start in starts.items()
    ]
    for view in program.views:
        if view.of in workspace:
            of = workspace[view.of]
            first = starts[view.of] // np.dtype(of.dtype).itemsize
            view = replace(view, of=SHARED, offset=first + view.offset, dtype=of.dtype)
        views.append(view)
    return replace(program, buffers=(*buffers, shared), views=tuple(views))


def _placed(tensors: Mapping[str, tuple[int, int, int]]) -> dict[str, int]:
    """Returns the first byte of each tensor, given its first step, its last step and its bytes."""
    starts: dict[str, int] = {}
    for name, (first, last, nbytes) in sorted(tensors.items(), key=lambda item: -item[1][2]):
        taken = sorted(
            (starts[other], starts[other] + tensors[other][2])
            for other in starts
            if tensors[other][0] <= last and first <= tensors[other][1]
        )
        start = 0
        for begin, end in taken:
            if start + nbytes <= begin:
                break
            start = max(start, -(-end // ALIGNMENT) * ALIGNMENT)
        starts[name] = start
    return starts
