"""A parallel step on the processor computes the numbers of one GPU's step: float64 reference, accumulation bit by bit."""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.engines import cpu
from kernels.ladders import ladder_of
from kernels.model.program import RuleError
from kernels.parallel import data, pipeline, tensor
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, TENSOR, ZERO, Plan
from kernels.training import digits, step
from kernels.training import graph as graphs
from kernels.training.networks import NETWORKS
from kernels.training.step import GRADIENTS, WEIGHTS, Memory
from tests.helpers.offenders import every

RATE = 0.5
LIMIT = 1e-5
BATCH = 12
RANKS = st.sampled_from([1, 2, 3, 4, 6])


@cache
def images(network: str, batch: int = BATCH):
    found, _ = digits.load(NETWORKS[network].size)
    return found.images[:batch], found.labels[:batch]


@cache
def reference(network: str, optimizer: str = "sgd", factors: tuple = (("lr", RATE),)):
    """Returns the graph of one GPU's step and every tensor after it in float64."""
    graph = step.build(NETWORKS[network], BATCH, step.ON_CPU, optimizer, **dict(factors))
    return graph, graphs.reference(graph, ladder_of, step.inputs(graph, *images(network)))


@cache
def accumulated(network: str, parts: int):
    """Returns the graph and the weights of a step in parts, in float32."""
    graph = step.graph_of(NETWORKS[network], BATCH, step.ON_CPU, "sgd", Memory(parts=parts), lr=RATE)
    session = cpu.open(graphs.program(graph, ladder_of), step.inputs(graph, *images(network)))
    session.verify_run()
    return graph, np.array(session.fetch(WEIGHTS)), np.array(session.fetch("loss"))


def weights(graph, flat: np.ndarray) -> list[np.ndarray]:
    return [view.cut(flat) for view in graph.views if view.of == WEIGHTS]


def assert_close(graph, got: np.ndarray, wanted: np.ndarray) -> None:
    for view in (v for v in graph.views if v.of == WEIGHTS):
        mine, right = view.cut(got), view.cut(wanted)
        assert np.abs(mine - right).max() <= LIMIT * max(1.0, np.abs(right).max()), view.name


def assert_is_reference(outcome: data.Outcome, network: str) -> None:
    graph, right = reference(network)
    for got in outcome.weights:
        assert_close(graph, got, right[WEIGHTS])
    np.testing.assert_allclose(outcome.losses, right["loss"], rtol=LIMIT)
    assert np.abs(right[WEIGHTS] - step.first_weights(graph)).max() > 1e-3  # the step moved them


# -- data parallel and sharding ------------------------------------------------------------------------
@settings(max_examples=5, deadline=None)
@given(st.sampled_from(["lenet5", "transformer"]), st.sampled_from(list(ZERO)), RANKS, st.integers(1, 300_000))
def test_data_parallel_and_sharded_steps_are_one_gpu_s_step(network, way, gpus, bucket_bytes):
    plan = Plan(network, way, gpus, BATCH, bucket_bytes=bucket_bytes)
    outcome = data.train(plan, *images(network), lr=RATE)
    assert_is_reference(outcome, network)
    assert all(np.array_equal(outcome.weights[0], other, equal_nan=True) for other in outcome.weights)


def test_sharding_changes_no_bit_of_data_parallel_and_adam_is_sharded_too():
    found = {}
    for way in ZERO:
        plan = Plan("transformer", way, 4, BATCH, bucket_bytes=9_000, optimizer="adam")
        outcome = data.train(plan, *images("transformer"), lr=1e-3, step=1)
        found[way] = weights(outcome.graph, outcome.weights[3])
    for way in ZERO:
        assert all(np.array_equal(a, b) for a, b in zip(found[DATA], found[way], strict=True)), way


def test_batch_norm_sees_the_images_of_its_gpu_alone():
    plan = Plan("residual", DATA, 2, BATCH)
    outcome = data.train(plan, *images("residual"), lr=RATE)
    graph, right = reference("residual")
    whole = [
        np.abs(a - b).max()
        for a, b in zip(weights(graph, outcome.weights[0]), weights(graph, right[WEIGHTS]), strict=True)
    ]
    assert max(whole) > 1e-3, "it should differ from the step with all images"
    parts, flat, losses = accumulated("residual", 2)
    for mine, theirs in zip(weights(graph, outcome.weights[0]), weights(parts, flat), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6, rtol=LIMIT)
    np.testing.assert_array_equal(outcome.losses, losses)


def test_a_bucket_that_is_combined_too_early_is_wrong(monkeypatch):
    real = data.buckets

    def early(graph, bucket_bytes):
        first, *rest = real(graph, bucket_bytes)
        nodes = [n for n in graph.nodes if n.phase == "backward"]
        return (data.Bucket(first.names, first.ranges, nodes[0]), *rest)

    monkeypatch.setattr(data, "buckets", early)
    outcome = data.train(Plan("lenet5", DATA, 2, BATCH), *images("lenet5"), lr=RATE)
    with pytest.raises(AssertionError):
        assert_is_reference(outcome, "lenet5")


# -- buckets -------------------------------------------------------------------------------------------
@settings(max_examples=20, deadline=None)
@given(st.sampled_from(list(NETWORKS)), st.integers(1, 400_000), st.sampled_from([1, 2, 3, 7, 8]))
def test_buckets_hold_every_gradient_once_and_shards_cover_them(network, nbytes, ranks):
    graph = step.build(NETWORKS[network], 4, step.ON_GPU)
    found = data.buckets(graph, nbytes)
    gradients = sorted(v.name for v in graph.views if v.of == GRADIENTS)
    assert sorted(name for bucket in found for name in bucket.names) == gradients
    assert all(bucket.nbytes >= nbytes for bucket in found[:-1])
    covered = np.zeros(graph.tensors[GRADIENTS].shape, int)
    for bucket in found:
        for rank in range(ranks):
            for first, stop in bucket.shard(rank, ranks):
                covered[first:stop] += 1
    assert covered.max() == 1
    for view in (v for v in graph.views if v.of == GRADIENTS):
        assert view.cut(covered).all()
    order = [graph.nodes.index(bucket.ready) for bucket in found]
    assert order == sorted(order)


# -- tensor parallel -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("network", "gpus"), [("lenet5", 1), ("lenet5", 3), ("lenet5", 8), ("transformer", 2), ("transformer", 4)]
)
def test_tensor_parallel_is_one_gpu_s_step(network, gpus):
    plan = Plan(network, TENSOR, gpus, BATCH)
    assert_is_reference(tensor.train(plan, *images(network), lr=RATE), network)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([("lenet5", 3), ("lenet5", 8), ("transformer", 2), ("transformer", 4)]), st.integers(0, 9))
def test_a_weight_is_the_join_of_its_parts(case, seed):
    network, gpus = case
    plan = Plan(network, TENSOR, gpus, BATCH)
    whole, part = reference(network)[0], tensor.rank_graph(plan)
    extents = {view.name: view.shape for view in part.views}
    values = np.random.default_rng(seed).standard_normal(whole.tensors[WEIGHTS].shape).astype(np.float32)
    for view in (v for v in whole.views if v.of == WEIGHTS):
        parts = [tensor.cut(plan, view.name, view.cut(values), rank) for rank in range(gpus)]
        assert all(p.shape == extents[view.name] for p in parts), view.name
        np.testing.assert_array_equal(tensor.join(plan, view.name, parts), view.cut(values))


def test_a_pair_of_layers_needs_one_all_reduce_each_way():
    plan = Plan("transformer", TENSOR, 2, BATCH)
    found = list(tensor.exchanges(plan, tensor.rank_graph(plan)))
    assert [e.phase for e in found] == ["forward"] * 4 + ["backward"] * 4
    assert {e.nbytes for e in found} == {4 * BATCH * 8 * 32}  # images, tokens, width


def test_without_the_all_reduce_of_the_way_back_the_weights_are_wrong(monkeypatch):
    real = tensor.exchanges
    monkeypatch.setattr(tensor, "exchanges", lambda *args: (e for e in real(*args) if e.phase == "forward"))
    outcome = tensor.train(Plan("transformer", TENSOR, 2, BATCH), *images("transformer"), lr=RATE)
    with pytest.raises(AssertionError):
        assert_is_reference(outcome, "transformer")


# -- pipelines -----------------------------------------------------------------------------------------
@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from(list(NETWORKS)),
    st.sampled_from([GPIPE, ONE_F_ONE_B]),
    st.integers(1, 6),
    st.sampled_from([1, 2, 3, 4]),
)
def test_a_pipeline_is_gradient_accumulation_bit_by_bit(network, way, gpus, micro):
    plan = Plan(network, way, gpus, BATCH, micro=micro)
    costs = {layer.name: 1.0 for layer in plan.layers.layers}
    outcome = pipeline.train(plan, costs, *images(network), lr=RATE)
    graph, flat, losses = accumulated(network, micro)
    for mine, theirs in zip(weights(graph, outcome.weights[0]), weights(graph, flat), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(outcome.losses, losses)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([GPIPE, ONE_F_ONE_B]), st.integers(1, 9), st.integers(1, 20))
def test_a_stage_runs_each_micro_batch_once_each_way_and_holds_few(way, stages, micros):
    for stage in range(stages):
        found = pipeline.turns(way, stages, stage, micros)
        assert sorted(found) == sorted(pipeline.Turn(p, k) for p in ("forward", "backward") for k in range(micros))
        assert all(found.index(("forward", k)) < found.index(("backward", k)) for k in range(micros))
        held = pipeline.in_flight(way, stages, stage, micros)
        assert held == (micros if way == GPIPE else min(micros, stages - stage))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=9), st.integers(1, 5))
def test_stages_are_as_equal_as_neighbours_can_be(costs, stages):
    stages = min(stages, len(costs))
    sizes = pipeline.balanced([float(c) for c in costs], stages)
    assert sum(sizes) == len(costs) and min(sizes) >= 1 and len(sizes) == stages

    def slowest(cuts):
        return max(sum(costs[a:b]) for a, b in pairwise(cuts))

    every = ([0, *inner, len(costs)] for inner in combinations(range(1, len(costs)), stages - 1))
    mine = [0, *np.cumsum(sizes).tolist()]
    assert slowest(mine) == min(map(slowest, every))


def test_a_received_tensor_that_is_lost_shows(monkeypatch):
    real = pipeline.Stages.received
    monkeypatch.setattr(pipeline.Stages, "received", lambda self, *a: [t for t in real(self, *a) if t != "relu1.y"])
    plan = Plan("lenet5", GPIPE, 4, BATCH, micro=1)
    outcome = pipeline.train(plan, dict.fromkeys(("conv1", "relu1"), 9.0), *images("lenet5"), lr=RATE)
    assert not np.isfinite(outcome.losses).all()


# -- rules ---------------------------------------------------------------------------------------------
@every(
    ("values", "words"),
    [
        ({"network": "lenet5", "gpus": 3, "batch": 32}, "32 images cannot be split equally over 3 GPUs"),
        ({"network": "residual", "way": TENSOR}, "nothing to split"),
        ({"network": "transformer", "way": TENSOR, "gpus": 8}, "block1 attention has 4 heads, which 8 GPUs"),
        ({"network": "lenet5", "way": TENSOR, "gpus": 7}, "fc1 has 120 outputs, which 7 GPUs"),
        ({"network": "lenet5", "way": GPIPE, "gpus": 12}, "12 GPUs are more than the 11 layers"),
        ({"network": "lenet5", "way": ONE_F_ONE_B, "batch": 32, "micro": 5}, "5 equal micro-batches"),
        ({"network": "alexnet"}, "network must be one of"),
        ({"network": "lenet5", "way": "model"}, "way must be one of"),
        ({"network": "lenet5", "gpus": 0}, "gpus must be 1 or more"),
    ],
)
def test_a_broken_rule_is_named(values, words):
    with pytest.raises(RuleError, match=words):
        Plan(**values)
