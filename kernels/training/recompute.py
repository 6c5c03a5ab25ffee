"""Activation checkpointing: only some layers keep their results for the way back. The others are computed again there.

Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174.
"""

from __future__ import annotations

from dataclasses import replace

from kernels.training.graph import ACTIVATION, BACKWARD, FORWARD, RESULT, Graph, Node, Tensor

AGAIN = " again"


def recomputed(graph: Graph, every: int) -> Graph:
    """Returns the step with the results of every n-th layer kept. Before the way back needs another, it is computed again
    from the last kept one. The numbers are the same, bit by bit: the same kernels run on the same inputs."""
    layers = list(dict.fromkeys(node.layer for node in graph.nodes if node.phase == FORWARD))
    again = _Again(graph, {*layers[every - 1 :: every], layers[-1]})
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.phase == BACKWARD:
            for tensor in node.tensors.values():
                nodes += again.nodes_for(tensor)
            node = replace(node, tensors=again.renamed(node))
        nodes.append(node)
    return replace(graph, tensors={**graph.tensors, **again.tensors}, nodes=tuple(nodes))


class _Again:
    """What is computed again: new tensors, under new names."""

    def __init__(self, graph: Graph, kept: set[str]):
        self.graph, self.names = graph, {}
        self.tensors: dict[str, Tensor] = {}
        makers: dict[str, Node] = {}
        for node in graph.nodes:
            for tensor in self._of_kind(node, ACTIVATION):
                makers.setdefault(tensor, node)  # the first that names it writes it
        self._makers = {t: n for t, n in makers.items() if n.layer not in kept and not self._of_kind(n, RESULT)}

    def _of_kind(self, node: Node, kind: str) -> list[str]:
        tensors = self.graph.tensors
        return [t for t in node.tensors.values() if t in tensors and tensors[t].kind == kind]

    def renamed(self, node: Node) -> dict[str, str]:
        return {buffer: self.names.get(tensor, tensor) for buffer, tensor in node.tensors.items()}

    def nodes_for(self, tensor: str) -> list[Node]:
        """Returns the nodes that compute a tensor again, those of its inputs first; none if it is there."""
        if tensor in self.names or tensor not in self._makers:
            return []
        maker = self._makers[tensor]
        own = [t for t, node in self._makers.items() if node is maker]
        nodes = [node for t in maker.tensors.values() if t not in own for node in self.nodes_for(t)]
        for t in own:
            self.names[t] = t + AGAIN
            self.tensors[t + AGAIN] = replace(self.graph.tensors[t], name=t + AGAIN)
        return [*nodes, replace(maker, name=maker.name + AGAIN, phase=BACKWARD, tensors=self.renamed(maker))]
