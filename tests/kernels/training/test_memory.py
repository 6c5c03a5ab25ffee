"""Memory of a training step: tensors that share bytes, activations computed again, gradients accumulated over parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cpu
from kernels.ladders import ladder_of
from kernels.model.program import RuleError
from kernels.training import digits, loop, memory, step
from kernels.training import graph as graphs
from kernels.training.graph import ACTIVATION, BACKWARD, FORWARD, UPDATE
from kernels.training.loop import Settings, Training
from kernels.training.networks import NETWORKS
from kernels.training.step import Memory

names = pytest.mark.parametrize("name", NETWORKS)
steps = st.integers(0, 9)
lives = st.tuples(steps, steps, st.integers(1, 2000)).map(lambda of: (min(of[:2]), max(of[:2]), of[2]))


def graph_of(name: str, batch: int = 4, rungs=step.ON_CPU, **saved: int) -> graphs.Graph:
    return step.graph_of(NETWORKS[name], batch, rungs, "sgd", Memory(**saved), lr=0.5)


def held(name: str, **saved: int) -> int:
    """Returns the most bytes that a step with 32 images holds, with the rungs of a GPU."""
    return memory.peak(memory.timeline(graph_of(name, 32, step.ON_GPU, **saved))).total


def inputs_of(graph: graphs.Graph, name: str, batch: int = 4) -> dict[str, np.ndarray]:
    training, _ = digits.load(NETWORKS[name].size)
    return step.inputs(graph, training.images[:batch], training.labels[:batch])


def ran(graph: graphs.Graph, inputs: dict[str, np.ndarray], pack: bool = True) -> dict[str, np.ndarray]:
    """Returns weights and losses after a step on the processor."""
    program = graphs.program(graph, ladder_of)
    session = cpu.open(memory.packed(program) if pack else program, inputs)
    session.verify_run()
    return {name: np.array(session.fetch(name)) for name in (step.WEIGHTS, "loss")}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


# -- one buffer for all ------------------------------------------------------------------------------
@settings(max_examples=20)
@given(st.lists(lives, min_size=1, max_size=12))
def test_tensors_that_live_at_the_same_time_share_no_byte(found):
    tensors = {str(n): life for n, life in enumerate(found)}
    starts = memory._placed(tensors)
    for a, (first, last, nbytes) in tensors.items():
        assert starts[a] % memory.ALIGNMENT == 0
        for b in tensors:
            if a < b and first <= tensors[b][1] and tensors[b][0] <= last:
                assert starts[a] + nbytes <= starts[b] or starts[b] + tensors[b][2] <= starts[a]


@names
def test_a_packed_step_computes_the_same_in_less_memory(name):
    graph = graph_of(name)
    inputs, program = inputs_of(graph, name), graphs.program(graph, ladder_of)
    assert_same(ran(graph, inputs), ran(graph, inputs, pack=False))
    packed = memory.packed(program).nbytes()
    assert memory.peak(memory.timeline(graph)).total <= packed < 0.7 * program.nbytes()


def test_a_kept_tensor_is_there_after_the_step():
    graph, program = step.cached("residual", 4, cpu=True, optimizer="sgd", factors=(("lr", 0.5),))
    inputs = inputs_of(graph, "residual")
    whole = cpu.open(graphs.program(graph, ladder_of), inputs)
    packed = cpu.open(program, inputs)
    whole.verify_run(), packed.verify_run()
    for name in step.statistics(graph):
        np.testing.assert_array_equal(packed.fetch(name), whole.fetch(name))


# -- by role -----------------------------------------------------------------------------------------
@names
def test_activations_rise_through_forward_and_fall_through_backward(name):
    moments = memory.timeline(graph_of(name))
    held = [(m.node.phase, m.nbytes[ACTIVATION]) for m in moments]
    forward = [n for phase, n in held if phase == FORWARD]
    backward = [n for phase, n in held if phase == BACKWARD]
    assert forward[0] < forward[-1] and max(backward) <= max(forward)
    assert [n for phase, n in held if phase == UPDATE] == [0] * len([m for m in moments if m.node.phase == UPDATE])
    assert all(m.nbytes["weight"] == moments[0].nbytes["weight"] > 0 for m in moments)


# -- computed again ----------------------------------------------------------------------------------
@names
@pytest.mark.parametrize("every", [1, 3])
def test_a_recomputed_step_gives_the_same_bits(name, every):
    plain, again = graph_of(name), graph_of(name, every=every)
    inputs = inputs_of(plain, name)
    assert_same(ran(plain, inputs), ran(again, inputs))
    assert (len(again.nodes) > len(plain.nodes)) == (every > 1)


def test_recomputing_saves_memory_where_the_network_is_deep():
    assert held("residual", every=3) < 0.8 * held("residual")
    # LeNet-5 gains little: its largest tensors are those of its first layers, on both ways.
    assert held("lenet5", every=3) > 0.9 * held("lenet5")
    assert held("residual", every=50) == held("residual")  # all is computed again at once


def test_what_is_computed_again_reads_what_was_kept():
    graph = graph_of("residual", every=3)
    written = {t.name for t in graph.tensors.values() if t.kind in ("data", "weight", "state")}
    written |= {name for v in graph.views for name in (v.name, v.of)}
    for node in graph.nodes:
        program = graphs.node_program(node, ladder_of)
        for buffer in program.of_role("input"):
            assert node.tensors[buffer.name] in written, node.name
        written |= {node.tensors[b.name] for b in program.outputs if b.name in node.tensors}


# -- accumulated --------------------------------------------------------------------------------------
@pytest.mark.parametrize("parts", [2, 4])
def test_gradients_of_parts_add_up_to_those_of_all_images(parts):
    plain, split = graph_of("lenet5"), graph_of("lenet5", parts=parts)
    inputs = inputs_of(plain, "lenet5")
    expected = graphs.reference(plain, ladder_of, inputs)
    np.testing.assert_allclose(
        graphs.reference(split, ladder_of, inputs)["gradients"], expected["gradients"], rtol=1e-9, atol=1e-12
    )
    found = ran(split, inputs)
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    np.testing.assert_allclose(found[step.WEIGHTS], expected[step.WEIGHTS], atol=1e-5)


def test_both_ways_to_save_memory_go_together():
    graph, plain = graph_of("residual", every=2, parts=2), graph_of("residual")
    inputs = inputs_of(plain, "residual")
    expected = graphs.reference(graph, ladder_of, inputs)
    np.testing.assert_allclose(ran(graph, inputs)[step.WEIGHTS], expected[step.WEIGHTS], atol=1e-5)
    assert held("residual", every=2, parts=2) < min(0.6 * held("residual"), held("residual", every=2))


def test_training_in_parts_learns_and_averages_the_statistics_of_each():
    training = Training(Settings("residual", 50, "sgd", {"lr": 0.1}, memory=Memory(every=3, parts=2)))
    losses = [point.loss for point in training.run(1)]
    assert np.mean(losses[-5:]) < 0.6 < 2 < losses[0]
    assert training.accuracy() > 0.6


# -- bad input ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("saved", "rule"),
    [
        ({"parts": 3}, "50 images cannot be split into 3 equal parts"),
        ({"parts": 0}, "50 images cannot be split into 0 equal parts"),
        ({"every": -1}, "a layer in 0 or more is kept, got every -1"),
    ],
)
def test_bad_settings_name_the_rule(saved, rule):
    with pytest.raises(RuleError, match=rule):
        Training(Settings("residual", 50, memory=Memory(**saved)))


def test_a_step_that_exceeds_memory_is_refused_with_what_would_help(monkeypatch):
    monkeypatch.setattr(loop.engines.load("cpu"), "free_bytes", lambda: 20_000_000)
    rule = r"a step needs \d+ MB of memory, 20 MB are free; with activations computed again, \d+ MB less"
    with pytest.raises(RuleError, match=rule):
        Training(Settings("residual", 1000))
    Training(Settings("residual", 100))
