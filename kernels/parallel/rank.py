"""One rank of a parallel step: the nodes of a training graph that one GPU runs, and on a processor the arrays that it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from kernels.ladders import ladder_of
from kernels.model import values
from kernels.model.program import Program, cpu_of
from kernels.model.shape import Shape
from kernels.training import graph as graphs
from kernels.training.graph import Graph, Node, node_program
from kernels.training.step import GRADIENTS, WEIGHTS

Range = tuple[int, int]  # first element and the one after the last


def part_of(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """Returns the graph of these nodes alone, in this order, with the tensors that they use."""
    used = {tensor for node in nodes for tensor in node.tensors.values()}
    views = [view for view in graph.views if view.name in used]
    used |= {view.of for view in views}
    tensors = {name: t for name, t in graph.tensors.items() if name in used}
    return replace(graph, tensors=tensors, nodes=tuple(nodes), views=tuple(views))


@lru_cache(maxsize=2048)
def _signature(rung: str, shape: Shape, tiles: tuple[tuple[str, int], ...]) -> tuple[int, tuple[str, ...]]:
    built = node_program(Node("", "", "", rung, shape, {}, dict(tiles)), ladder_of)
    return len(built.steps), tuple(b.name for b in built.outputs)


def _signature_of(node: Node) -> tuple[int, tuple[str, ...]]:
    """Returns the launches of a node, and the buffers of its program that it writes."""
    return _signature(node.rung, node.shape, tuple(node.tiles.items()))


def written(node: Node) -> tuple[str, ...]:
    """Returns the tensors that a node writes."""
    _, outputs = _signature_of(node)
    return tuple(node.tensors[name] for name in outputs if name in node.tensors)


def read(node: Node) -> tuple[str, ...]:
    """Returns the tensors that a node uses and does not write."""
    mine = written(node)
    return tuple(t for t in node.tensors.values() if t not in mine)


def ranges_of(graph: Graph, names: Iterable[str]) -> list[Range]:
    """Returns where these weights lie in the buffer of all weights, in order; neighbours are joined. A gradient lies where
    its weight does."""
    wanted = set(names)
    found: list[Range] = []
    for view in sorted((v for v in graph.views if v.name in wanted), key=lambda v: v.offset):
        stop = view.offset + math.prod(view.shape)
        if found and view.offset - found[-1][1] < 64:  # the gap up to the next aligned tensor
            found[-1] = found[-1][0], stop
        else:
            found.append((view.offset, stop))
    return found


def weights_of(graph: Graph, layers: Iterable[str]) -> list[str]:
    wanted = set(layers)
    return [v.name for v in graph.views if v.of == WEIGHTS and v.name.rpartition(".")[0] in wanted]


@dataclass
class Rank:
    """A rank on the processor. What it was not given, and has not computed or received, is NaN: a step that used it would
    be wrong."""

    graph: Graph
    program: Program
    arrays: dict[str, np.ndarray]

    def __post_init__(self):
        self._first, at = {}, 0
        for node in self.graph.nodes:
            count, _ = _signature_of(node)
            self._first[node.name] = at, at + count
            at += count

    def run(self, node: Node) -> None:
        """Runs the launches of a node."""
        at = self._first[node.name]
        for step in self.program.steps[at[0] : at[1]]:
            cpu_of(step)(*(self.arrays[a] if isinstance(a, str) else a for a in step.args))

    def flat(self, name: str, ranges: Sequence[Range]) -> np.ndarray:
        """Returns a copy of these ranges of an array, one behind the other."""
        return np.concatenate([self.arrays[name][first:stop] for first, stop in ranges])

    def put(self, name: str, ranges: Sequence[Range], flat: np.ndarray) -> None:
        """Writes an array of `flat` to these ranges."""
        at = 0
        for first, stop in ranges:
            self.arrays[name][first:stop] = flat[at : at + stop - first]
            at += stop - first


def open_rank(graph: Graph, nodes: Sequence[Node], given: Mapping[str, np.ndarray]) -> Rank:
    """Returns a rank that runs these nodes and holds copies of what it is given, of the tensors that they use."""
    part = part_of(graph, nodes)
    program = graphs.program(part, ladder_of)
    arrays: dict[str, np.ndarray] = {}
    for b in program.buffers:
        if b.name in given:
            arrays[b.name] = np.array(given[b.name], b.dtype).reshape(b.shape)
        else:
            arrays[b.name] = np.full(b.shape, values.poison(np.dtype(b.dtype)), b.dtype)
    arrays |= {view.name: view.cut(arrays[view.of]) for view in program.views}
    return Rank(part, program, arrays)


__all__ = ["GRADIENTS", "Range", "Rank", "open_rank", "part_of", "ranges_of", "read", "weights_of", "written"]
