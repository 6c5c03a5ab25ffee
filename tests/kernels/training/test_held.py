"""The memory that a step really allocates: by role it is what the timeline predicts for the same kernels."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from kernels import engines
from kernels.engines.protocol import RESOLUTION
from kernels.ladders import ladder_of
from kernels.training import graph as graphs
from kernels.training import step
from kernels.training.compose import lifetimes
from kernels.training.held import held
from kernels.training.loop import Settings, Training
from kernels.training.memory import ROLES, WORKSPACE, timeline
from kernels.training.networks import NETWORKS
from kernels.training.step import Memory

ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)


def of(network: str, memory: Memory, engine: str = "cpu") -> tuple[graphs.Graph, dict[str, np.ndarray]]:
    training = Training(Settings(network, 8, memory=memory), engine)
    return training.next_step()[0], training.next_inputs()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("engine", ["cpu", ON_GPU])
def test_what_is_allocated_is_what_the_timeline_predicts(network, engine):
    graph, inputs = of(network, Memory(), engine)
    predicted: dict[str, list] = {}
    for moment in timeline(graph):
        predicted.setdefault(moment.node.name, []).append(moment.nbytes)
    found = held(graph, inputs, engine)
    assert list(found) == [node.name for node in graph.nodes]
    pool = 512 * len(graph.tensors) * (engine == "cuda")  # the pool rounds each buffer up
    for name, sizes in found.items():
        for role, nbytes in zip(ROLES, sizes, strict=True):
            least = min(moment[role] for moment in predicted[name])
            most = max(moment[role] for moment in predicted[name])
            if role == WORKSPACE:  # what NumPy allocates within a launch comes on top
                assert nbytes >= least, name
            else:
                assert least <= nbytes <= most + pool, (name, role)


@pytest.mark.parametrize("memory", [Memory(every=2), Memory(parts=4)])
def test_recomputing_and_parts_are_measured_too(memory):
    graph, inputs = of("residual", memory)
    plain, plain_inputs = of("residual", Memory())
    activation = ROLES.index("activation")

    def most(sizes) -> int:
        return max(row[activation] for row in sizes.values())

    assert most(held(graph, inputs)) < most(held(plain, plain_inputs))


def test_measuring_changes_no_input():
    graph, inputs = of("lenet5", Memory())
    before = {name: array.copy() for name, array in inputs.items()}
    held(graph, inputs)
    for name, array in before.items():
        np.testing.assert_array_equal(array, inputs[name], err_msg=name)
    assert not tracemalloc.is_tracing()


def test_the_traced_bytes_of_a_step_are_its_arrays():
    """Without temporary arrays nothing is left: a fill within one buffer."""
    graph, inputs = of("lenet5", Memory())
    program = graphs.program(graph, ladder_of)
    steps = engines.load("cpu").allocate_by_need(program, inputs, lifetimes(program))
    by_name = dict(zip((s.name for s in program.steps), steps, strict=True))
    relu = next(found for name, found in by_name.items() if name.startswith("relu1"))
    assert relu.other < RESOLUTION + relu.buffers["relu1.y"]
    assert step.WEIGHTS in relu.buffers and "d conv1.y" not in relu.buffers


def test_a_step_that_needs_a_freed_tensor_fails():
    graph, inputs = of("lenet5", Memory())
    program = graphs.program(graph, ladder_of)
    lives = lifetimes(program)
    first, last = lives["relu1.y"]
    with pytest.raises(KeyError, match=r"relu1\.y"):
        engines.load("cpu").allocate_by_need(program, inputs, lives | {"relu1.y": (first, last - 1)})
