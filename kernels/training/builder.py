"""Builds the graph of a training step: layers add their nodes forward, and the way back follows from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernels.training.graph import (
    ACTIVATION,
    BACKWARD,
    DATA,
    FORWARD,
    GRADIENT,
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

    def __init__(self, rungs: Mapping[str, str], sum_shape: Callable[[int], Any]):
        self.rungs, self._sum_shape = rungs, sum_shape
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.steps: list[Step] = []
        self.phase, self.layer = FORWARD, ""
        self._gradients: dict[str, str] = {}  # the gradient of each tensor, so far

    # -- tensors -----------------------------------------------------------------------------------
    def _tensor(
        self, name: str, kind: str, shape: tuple[int, ...], dtype: str = "float32", below: int = 0
    ) -> str:
        if name in self.tensors:
            raise ValueError(f"two tensors are named {name}")
        self.tensors[name] = Tensor(name, kind, shape, dtype, below, self.layer)
        return name

    def data(self, name: str, *shape: int, dtype: str = "float32", below: int = 0) -> str:
        """Adds an input of the step that no gradient reaches. Returns its name, like all that follow."""
        return self._tensor(name, DATA, shape, dtype, below)

    def weight(self, name: str, *shape: int) -> str:
        return self._tensor(f"{self.layer}.{name}", WEIGHT, shape)

    def activation(self, name: str, *shape: int, dtype: str = "float32") -> str:
        return self._tensor(f"{self.layer}.{name}", ACTIVATION, shape, dtype)

    def gradient(self, tensor: str) -> str:
        """Adds the gradient of a tensor: one more if it has one."""
        name, n = f"d {tensor}", 2
        while name in self.tensors:
            name, n = f"d {tensor} {n}", n + 1
        return self._tensor(name, GRADIENT, self.tensors[tensor].shape)

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        return self.tensors[tensor].shape

    # -- nodes -------------------------------------------------------------------------------------
    def node(self, name: str, operation: str, shape: Any, **tensors: str) -> None:
        """Adds a node that runs the rung of an operation on these tensors."""
        full = " ".join(filter(None, (self.layer, name)))
        self.nodes.append(Node(full, self.layer, self.phase, self.rungs[operation], shape, tensors))

    def on_the_way_back(self, result: str, backward: Backward) -> str:
        """Registers what adds the gradients of a layer, once that of its result is known. Returns the result's name."""
        layer = self.layer

        def in_layer(gradient: str) -> None:
            self.layer = layer
            backward(gradient)

        self.steps.append(Step(result, in_layer))
        return result

    def learns(self, tensor: str) -> bool:
        """Returns whether a gradient of this tensor is needed: of weights and of all that follows from them."""
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
        self.node(
            f"sum of {first} and {gradient}", "sum", self._sum_shape(count), a=first, b=gradient, y=total
        )
        self._gradients[tensor] = total

    def go_back(self, loss: str, gradient: str) -> None:
        """Adds the nodes of every gradient, from the loss to the first layer."""
        self.phase = BACKWARD
        self._gradients[loss] = gradient
        for step in reversed(self.steps):
            if step.result in self._gradients:
                step.backward(self._gradients[step.result])

    def gradient_of(self, weight: str) -> str:
        return self._gradients[weight]

    def graph(self) -> Graph:
        return Graph(dict(self.tensors), tuple(self.nodes))
