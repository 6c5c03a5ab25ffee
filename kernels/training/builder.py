"""Builds the graph of a training step: layers add their nodes forward, and the way back follows from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kernels.model.program import View
from kernels.model.shape import Shape
from kernels.optimizer.shape import OptimizerShape
from kernels.training.graph import (
    ACTIVATION,
    BACKWARD,
    DATA,
    FORWARD,
    GRADIENT,
    RESULT,
    STATE,
    UPDATE,
    WEIGHT,
    Graph,
    Node,
    Tensor,
)

Backward = Callable[[str], None]  # called with the name of the gradient of a layer's result


@dataclass(frozen=True)
class Step:
    """One layer on the way back: its result, and what adds the nodes of its gradients."""

    result: str
    backward: Backward


class Builder:
    """A graph under construction.

    `rungs`: the rung of each operation. `sum_shape` returns the shape of a sum of two tensors of n elements, for a tensor
    that several layers read: its gradients are added.
    """

    def __init__(self, rungs: Mapping[str, str], sum_shape: Callable[[int], Shape]):
        self.rungs, self._sum_shape = rungs, sum_shape
        self.tensors: dict[str, Tensor] = {}
        self.weights: dict[str, tuple[int, ...]] = {}
        self.nodes: list[Node] = []
        self.steps: list[Step] = []
        self.phase, self.layer = FORWARD, ""
        self._gradients: dict[str, str] = {}  # the gradient of each tensor, so far

    # -- tensors -----------------------------------------------------------------------------------
    def _tensor(self, name: str, kind: str, shape: tuple[int, ...], dtype: str = "float32", below: int = 0) -> str:
        if name in self.tensors:
            raise ValueError(f"two tensors are named {name}")
        self.tensors[name] = Tensor(name, kind, shape, dtype, below, self.layer)
        return name

    def data(self, name: str, *shape: int, dtype: str = "float32", below: int = 0) -> str:
        """Adds an input of the step that no gradient reaches. Returns its name, like all that follow."""
        return self._tensor(name, DATA, shape, dtype, below)

    def weight(self, name: str, *shape: int) -> str:
        """Adds a weight: a part of one buffer, beside the others."""
        full = f"{self.layer}.{name}"
        if full in self.weights:
            raise ValueError(f"two weights are named {full}")
        self.weights[full] = shape
        return full

    def weight_gradient(self, weight: str) -> str:
        """Returns the gradient of a weight: the same part of the buffer of all gradients."""
        return f"d {weight}"

    def result(self, name: str, *shape: int) -> str:
        return self._tensor(name, RESULT, shape)

    def activation(self, name: str, *shape: int, dtype: str = "float32") -> str:
        return self._tensor(f"{self.layer}.{name}", ACTIVATION, shape, dtype)

    def gradient(self, tensor: str) -> str:
        """Adds the gradient of a tensor: one more if it has one."""
        name, n = f"d {tensor}", 2
        while name in self.tensors:
            name, n = f"d {tensor} {n}", n + 1
        return self._tensor(name, GRADIENT, self.shape_of(tensor))

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        return self.tensors[tensor].shape

    # -- nodes -------------------------------------------------------------------------------------
    def node(
        self, name: str, operation: str, shape: Shape, tiles: Mapping[str, int] | None = None, **tensors: str
    ) -> None:
        """Adds a node that runs the rung of an operation on these tensors, at its default tile sizes or at others."""
        full = " ".join(filter(None, (self.layer, name)))
        rung = self.rungs[operation]
        self.nodes.append(Node(full, self.layer, self.phase, rung, shape, tensors, tiles or {}))

    def on_the_way_back(self, result: str, backward: Backward) -> str:
        """Registers what adds the gradients of a layer, once that of its result is known. Returns the result's name."""
        layer = self.layer

        def in_layer(gradient: str) -> None:
            self.layer = layer
            backward(gradient)

        self.steps.append(Step(result, in_layer))
        return result

    def learns(self, tensor: str) -> bool:
        """Returns whether a gradient of this tensor is needed: of all that follows from a weight."""
        return self.tensors[tensor].kind != DATA

    def receive(self, tensor: str, gradient: str) -> None:
        """Takes one gradient of a tensor. A second one is added to the first."""
        if tensor not in self._gradients:
            self._gradients[tensor] = gradient
            return
        first, count = self._gradients[tensor], 1
        for extent in self.shape_of(tensor):
            count *= extent
        total = self.gradient(tensor)
        self.node(f"sum of {first} and {gradient}", "sum", self._sum_shape(count), A=first, B=gradient, C=total)
        self._gradients[tensor] = total

    def go_back(self, loss: str, gradient: str) -> None:
        """Adds the nodes of every gradient, from the loss to the first layer."""
        self.phase = BACKWARD
        self._gradients[loss] = gradient
        for step in reversed(self.steps):
            if step.result in self._gradients:
                step.backward(self._gradients[step.result])

    def updated(self, optimizer: str, shape: OptimizerShape, state: tuple[str, ...]) -> Graph:
        """Returns the graph with the update of all weights. They lie in one buffer, as the optimiser's shape says, and so
        do their gradients and each array of its state."""
        self.phase, self.layer = UPDATE, "update"
        extent = (shape.extent,)
        self._tensor("weights", WEIGHT, extent)
        self._tensor("gradients", GRADIENT, extent)
        arrays = {name: self._tensor(f"state {name}", STATE, extent) for name in state}
        table = np.array(shape.chunks, np.int32)
        chunks = self._tensor("chunks", DATA, table.shape, "int32")
        self.node("", optimizer, shape, None, w="weights", g="gradients", chunks=chunks, **arrays)
        views = [
            View(prefix + name, of, first, extents)
            for prefix, of in (("", "weights"), ("d ", "gradients"))
            for (name, extents), (first, _) in zip(self.weights.items(), shape.tensors, strict=True)
        ]
        return Graph(dict(self.tensors), tuple(self.nodes), tuple(views), table)
