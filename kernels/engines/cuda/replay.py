"""A program captured once as a CUDA graph. A scalar that changes from run to run is set in the graph, which stays.

Names and numbers are those of cuda.h, CUDA 13. CuPy captures and launches graphs, the driver's library changes them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernels.machine import driver
from kernels.model.program import Launch, Program, Step

if TYPE_CHECKING:
    import cupy

KERNEL = 0  # CUgraphNodeType


class KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2: what a node launches. `params` points to one pointer for each argument."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", 3 * ctypes.c_uint),
        ("block", 3 * ctypes.c_uint),
        ("shared", ctypes.c_uint),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
    )


class Replay:
    """A captured program: `launch` runs it on a stream, `update` sets the scalars of another one in it.

    graph: CuPy's, of a capture of `program`. A program whose steps are all launches of one kernel can be updated.
    """

    def __init__(self, graph: cupy.cuda.Graph, program: Program, library: ctypes.CDLL | None = None):
        self._graph, self.program = graph, program
        self._driver = library or driver.library()
        self._nodes: list[int] = []

    def launch(self, stream: cupy.cuda.Stream) -> None:
        self._graph.launch(stream)

    def update(self, program: Program) -> None:
        """Sets every scalar in which a program differs from the one before. ValueError if anything else differs."""
        for n, (old, new) in enumerate(zip(self.program.steps, program.steps, strict=True)):
            if new is not old and new != old:
                self._set(n, old, new)
        self.program = program

    def _set(self, n: int, old: Step, new: Step) -> None:
        changed = _changed_scalars(old, new)
        self._nodes = self._nodes or self._in_order()
        params, node = KernelParams(), ctypes.c_void_p(self._nodes[n])
        self._call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(params))
        values = {at: np.array(new.args[at]) for at in changed}
        pointers = [values[at].ctypes.data if at in values else params.params[at] for at in range(len(new.args))]
        params.params = (ctypes.c_void_p * len(pointers))(*pointers)
        self._call(
            "cuGraphExecKernelNodeSetParams_v2", ctypes.c_void_p(self._graph.graphExec), node, ctypes.byref(params)
        )

    def _in_order(self) -> list[int]:
        """Returns the node of each step. ValueError if the graph is no chain of one kernel for each step."""
        nodes = list(self._chain())
        kinds = [self._kind(node) for node in nodes]
        if len(nodes) != len(self.program.steps) or set(kinds) != {KERNEL}:
            raise ValueError(f"a graph of {len(nodes)} nodes for {len(self.program.steps)} launches")
        return nodes

    def _chain(self) -> Iterator[int]:
        """Yields the nodes from the first on, until one has not exactly one successor."""
        found = self._listed("cuGraphGetRootNodes", self._graph.graph)
        while len(found) == 1:
            yield found[0]
            found = self._listed("cuGraphNodeGetDependentNodes", found[0])

    def _listed(self, function: str, of: int) -> list[int]:
        """Returns the nodes that a function of the driver lists: it is called for their number first."""
        count = ctypes.c_size_t()
        self._call(function, ctypes.c_void_p(of), None, ctypes.byref(count))
        if not count.value:
            return []
        nodes = (ctypes.c_void_p * count.value)()
        self._call(function, ctypes.c_void_p(of), nodes, ctypes.byref(count))
        return [int(node) for node in nodes]

    def _kind(self, node: int) -> int:
        kind = ctypes.c_int()
        self._call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        return kind.value

    def _call(self, function: str, *args: object) -> None:
        if code := getattr(self._driver, function)(*args):
            raise RuntimeError(f"{function} gave error {code}")


def _changed_scalars(old: Step, new: Step) -> Sequence[int]:
    """Returns the positions of the arguments that differ. ValueError if one is a buffer, or if more than arguments differs."""
    if not (isinstance(old, Launch) and isinstance(new, Launch)) or _without_args(old) != _without_args(new):
        raise ValueError(f"{new.name} differs in more than its arguments")
    changed = [at for at, (a, b) in enumerate(zip(old.args, new.args, strict=True)) if a != b]
    if any(isinstance(a, str) for at in changed for a in (old.args[at], new.args[at])):
        raise ValueError(f"{new.name} has another buffer")
    return changed


def _without_args(step: Launch) -> tuple:
    return step.source, step.entry, step.grid, step.block, step.defines, step.shared
