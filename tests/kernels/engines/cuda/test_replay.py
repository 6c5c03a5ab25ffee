"""A captured program whose scalars change: the driver gets the new ones, every other argument stays the node's own."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from kernels.engines.cuda.replay import KERNEL, KernelParams, Replay
from kernels.model.program import Program
from kernels.training import digits, step
from kernels.training.loop import Settings, Training, step_of
from kernels.training.networks import NETWORKS

FIRST = 1000  # the handle of the first node; the others follow
ADAM = Settings("lenet5", 32, "adam", {"lr": 0.002})


def program_at(steps: int) -> Program:
    return step_of(ADAM, steps, "cuda")[1]


class Captured:
    """CuPy's graph of a capture."""

    graph, graphExec = 7, 8


@dataclass
class Driver:
    """The driver's functions for a chain of nodes, each with `args` pointers to arguments. `set` holds what was changed."""

    args: list[int]
    kinds: dict[int, int] = field(default_factory=dict)
    error: int = 0
    set: list[tuple[int, list[int], bytes]] = field(default_factory=list)
    pointers: dict[int, ctypes.Array] = field(default_factory=dict)

    def pointer(self, node: int, at: int) -> int:
        """Returns the address of an argument in a node."""
        return 4096 * (node + 1) + 64 * at

    def cuGraphGetRootNodes(self, graph, nodes, count):
        assert graph.value == Captured.graph
        return self._list(nodes, count, [FIRST])

    def cuGraphNodeGetDependentNodes(self, node, nodes, count):
        after = node.value + 1
        return self._list(nodes, count, [after] if after < FIRST + len(self.args) else [])

    def _list(self, nodes, count, found):
        if nodes is not None:
            for n, node in enumerate(found):
                nodes[n] = node
        count._obj.value = len(found)
        return 0

    def cuGraphNodeGetType(self, node, kind):
        kind._obj.value = self.kinds.get(node.value - FIRST, KERNEL)
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node, params):
        n = node.value - FIRST
        found = (ctypes.c_void_p * self.args[n])(*(self.pointer(n, at) for at in range(self.args[n])))
        self.pointers[n] = found  # owned by the node
        params._obj.func, params._obj.params = 77 + n, found
        return 0

    def cuGraphExecKernelNodeSetParams_v2(self, graph, node, params):
        n, given = node.value - FIRST, params._obj
        assert graph.value == Captured.graphExec and given.func == 77 + n
        pointers = [given.params[at] for at in range(self.args[n])]
        is_new = pointers[-1] != self.pointer(n, self.args[n] - 1)
        self.set.append((n, pointers, ctypes.string_at(pointers[-1], 32) if is_new else b""))
        return self.error


def of(program: Program, **changes) -> tuple[Replay, Driver]:
    driver = Driver([len(s.args) for s in program.steps], **changes)
    return Replay(Captured(), program, driver), driver


def test_a_later_step_of_adam_sets_its_factors_and_nothing_else():
    program = program_at(0)
    found, driver = of(program)
    for steps in (1, 2):
        later = program_at(steps)
        found.update(later)
        n, pointers, factors = driver.set[-1]
        assert n == len(program.steps) - 1
        assert pointers[:-1] == [driver.pointer(n, at) for at in range(len(pointers) - 1)]
        assert factors == later.steps[-1].args[-1].tobytes() != program.steps[-1].args[-1].tobytes()
    found.update(program_at(2))
    assert len(driver.set) == 2  # what is set already is not set again


def test_an_unchanged_program_asks_nothing_of_the_driver():
    found, driver = of(program_at(0))
    found.update(program_at(0))
    assert driver.set == [] and driver.pointers == {}


def test_the_layout_of_the_parameters_is_that_of_the_header():
    offsets = {name: getattr(KernelParams, name).offset for name, *_ in KernelParams._fields_}
    assert offsets == {
        "func": 0,
        "grid": 8,
        "block": 20,
        "shared": 32,
        "params": 40,
        "extra": 48,
        "kern": 56,
        "ctx": 64,
    }
    assert ctypes.sizeof(KernelParams) == 72


@pytest.mark.parametrize(
    ("change", "error"),
    [({"grid": (9, 9, 9)}, "differs in more than its arguments"), ({"args": ("other",)}, "has another buffer")],
)
def test_what_no_update_can_set_is_refused(change, error):
    program = program_at(0)
    found, driver = of(program)
    last = program.steps[-1]
    if "args" in change:
        change = {"args": ("other", *last.args[1:])}
    with pytest.raises(ValueError, match=error):
        found.update(replace(program, steps=(*program.steps[:-1], replace(last, **change))))
    assert driver.set == []


def test_a_graph_with_other_nodes_is_refused():
    program = program_at(0)
    found, _ = of(program, kinds={3: 1})  # a copy of memory
    with pytest.raises(ValueError, match="nodes for"):
        found.update(program_at(1))


def test_an_error_of_the_driver_is_named():
    found, _ = of(program_at(0), error=1)
    with pytest.raises(RuntimeError, match="cuGraphExecKernelNodeSetParams_v2 gave error 1"):
        found.update(program_at(1))


# -- on a GPU ------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_replayed_training_is_that_of_launches_one_by_one(network, optimizer):
    from kernels.engines import cuda

    settings = Settings(network, 32, optimizer, {"lr": 0.002})
    graph, program = step_of(settings, 0, "cuda")
    images, _ = digits.load(NETWORKS[network].size)
    inputs = step.inputs(graph, images.images[:32], images.labels[:32])
    found = []
    for name in ("execute", "replay"):
        session = cuda.open(program, inputs)
        session.verify_run()
        for n in range(1, 11):
            getattr(session, name)(step_of(settings, n, "cuda")[1])
        found.append({t.name: session.fetch(t.name) for t in graph.tensors.values() if t.kind in ("weight", "state")})
        session.close()
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name], err_msg=name)


@pytest.mark.gpu
def test_a_training_on_a_gpu_captures_one_graph():
    training = Training(ADAM, "cuda")
    run = training.run(1)
    next(run), next(run)
    graph = training._session._replay
    losses = [next(run).loss for _ in range(10)]
    assert training._session._replay is graph and np.isfinite(losses).all()
    training.close()
