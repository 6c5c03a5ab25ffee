"""Gradient accumulation: the images of a step go through the network in parts, and the gradients of the parts are added.

Only the activations of one part exist at a time. A batch norm sees the mean and variance of its part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from kernels.model.program import View
from kernels.model.shape import Shape
from kernels.training.graph import ACTIVATION, BACKWARD, DATA, GRADIENT, RESULT, UPDATE, Graph, Node, Tensor

GRADIENTS, CHUNKS = "gradients", "chunks"
PART = " part "


def accumulated(graph: Graph, parts: int, rung: str, sum_shape: Callable[[int], Shape]) -> Graph:
    """Returns the step for `parts` times the images of a graph, 2 or more. `rung` adds two tensors of sum_shape(elements)."""
    images = [t for t in graph.tensors.values() if t.kind in (DATA, RESULT) and t.name != CHUNKS]
    tensors = dict(graph.tensors) | {t.name: replace(t, shape=(parts * t.shape[0], *t.shape[1:])) for t in images}
    views, nodes, total = list(graph.views), [], ""
    for n in range(1, parts + 1):
        names = _names(graph, images, n)
        tensors |= {
            names[t.name]: replace(t, name=names[t.name]) for t in graph.of_kind(ACTIVATION) + graph.of_kind(GRADIENT)
        }
        views += _views(graph, images, names, n)
        nodes += [_renamed(node, names, n) for node in graph.nodes if node.phase != UPDATE]
        part = names[GRADIENTS]
        if not total:
            total = part
        else:
            summed = GRADIENTS if n == parts else f"{GRADIENTS} of parts 1 to {n}"
            tensors[summed] = replace(graph.tensors[GRADIENTS], name=summed)
            shape, given = sum_shape(tensors[summed].shape[0]), {"A": total, "B": part, "C": summed}
            nodes.append(Node(f"sum of parts 1 to {n}", "update", BACKWARD, rung, shape, given))
            total = summed
    nodes += [node for node in graph.nodes if node.phase == UPDATE]
    return replace(graph, tensors=tensors, nodes=tuple(nodes), views=tuple(views))


def _names(graph: Graph, images: Iterable[Tensor], n: int) -> dict[str, str]:
    """Returns the name in part n of what each part has of its own. Activations of the first part keep theirs."""
    own = [t.name for t in images] + [GRADIENTS] + [v.name for v in graph.views if v.of == GRADIENTS]
    if n > 1:
        own += [t.name for t in graph.of_kind(ACTIVATION) + graph.of_kind(GRADIENT)]
    kept = {t.name: t.name for t in graph.of_kind(ACTIVATION) + graph.of_kind(GRADIENT)}
    return kept | {name: f"{name}{PART}{n}" for name in own}


def _views(graph: Graph, images: Iterable[Tensor], names: dict[str, str], n: int) -> list[View]:
    """Returns the images of a part, in the tensors of all, and the gradients of each weight, in those of the part."""
    cut = [View(names[t.name], t.name, (n - 1) * math.prod(t.shape), t.shape) for t in images]
    gradients = [v for v in graph.views if v.of == GRADIENTS]
    return [*cut, *(replace(v, name=names[v.name], of=names[GRADIENTS]) for v in gradients)]


def _renamed(node: Node, names: dict[str, str], n: int) -> Node:
    tensors = {buffer: names.get(t, t) for buffer, t in node.tensors.items()}
    return replace(node, name=node.name if n == 1 else f"{node.name}{PART}{n}", tensors=tensors)


def of_first_part(name: str) -> str:
    """Returns the name that a tensor has in the first part."""
    return name.partition(PART)[0]
