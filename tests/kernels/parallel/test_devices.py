"""Parallel steps on several GPUs: on queues that run late and in a bad order, and on real GPUs where there are two."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from kernels.engines.cuda import devices as cuda_devices
from kernels.model.program import RuleError
from kernels.parallel import data
from kernels.parallel.devices import DifferentError, Replicas, Team, check_equal, check_exact, check_near, segments
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, TENSOR, ZERO_1, Plan
from kernels.parallel.split_devices import open_step
from kernels.training import digits, step
from kernels.training.graph import BACKWARD, FORWARD, UPDATE, node_program
from kernels.training.networks import NETWORKS
from tests.helpers.fake_team import FakeTeam
from tests.helpers.offenders import every

BATCH, STEPS = 12, 2
FACTORS = {"lr": 0.1}


@cache
def images(network: str):
    found, _ = digits.load(NETWORKS[network].size)
    return found.images[:BATCH], found.labels[:BATCH]


def trained(network: str, team, overlap: bool = True, bucket_bytes: int = 20_000):
    """Returns the graph and the weights of each GPU after some steps."""
    plan = Plan(network, DATA, team.gpus, BATCH, bucket_bytes=bucket_bytes)
    replicas = Replicas(plan, team, *images(network), overlap, **FACTORS)
    for _ in range(STEPS):
        replicas.step()
    found = replicas.weights()
    replicas.close()
    return replicas.graph, found


@cache
def alone(network: str) -> np.ndarray:
    return trained(network, FakeTeam(1))[1][0]


@pytest.mark.parametrize("computes_first", [True, False])
@pytest.mark.parametrize(
    ("network", "gpus", "overlap"), [("lenet5", 2, False), ("lenet5", 3, True), ("transformer", 2, True)]
)
def test_several_gpus_learn_what_one_learns_in_any_order_of_their_streams(network, computes_first, gpus, overlap):
    graph, weights = trained(network, FakeTeam(gpus, computes_first), overlap)
    check_equal(graph, weights)
    assert check_near(graph, weights[0], alone(network)) <= 1e-5
    first = step.first_weights(graph)
    assert np.abs(weights[0] - first).max() > 1e-3


def test_without_the_waits_between_streams_the_weights_are_wrong():
    graph, weights = trained("lenet5", FakeTeam(2, computes_first=True, deaf=True))
    with pytest.raises(DifferentError, match="differ"):
        check_near(graph, weights[0], alone("lenet5"))


@every("network", NETWORKS)
@every("bucket_bytes", [1, 20_000, 10**9])
def test_segments_end_at_the_buckets_and_before_the_update(network, bucket_bytes):
    graph = step.build(NETWORKS[network], 4, step.ON_GPU)
    found = data.buckets(graph, bucket_bytes)
    cuts = segments(graph, found)
    launches = [node for node in graph.nodes for _ in node_program(node, step.ladder_of).steps]
    assert [launches[stop - 1] for _, stop in cuts[: len(found)]] == [bucket.ready for bucket in found]
    covered = [n for first, stop in cuts for n in range(first, stop)]
    assert covered == list(range(len(launches)))
    phases = [{launches[n].phase for n in range(*cut)} for cut in cuts]
    assert phases[-1] == {UPDATE} and all(each <= {FORWARD, BACKWARD} for each in phases[:-1])


def test_weights_that_differ_are_named():
    graph = step.build(NETWORKS["lenet5"], 4, step.ON_GPU)
    right = step.first_weights(graph)
    check_equal(graph, [right, right.copy()])
    wrong = right.copy()
    view = next(v for v in graph.views if v.name == "fc2.W")
    view.cut(wrong)[3, 4] += np.float32(1e-3)
    with pytest.raises(DifferentError, match=r"fc2\.W on GPU 1"):
        check_equal(graph, [right, wrong])
    with pytest.raises(DifferentError, match="at most 1e-05"):
        check_near(graph, wrong, right)
    view.cut(wrong)[3, 4] = np.nan
    with pytest.raises(DifferentError, match="nan"):
        check_near(graph, wrong, right)


def test_only_data_parallel_over_the_team_runs():
    for plan in (Plan("lenet5", GPIPE, 2, BATCH), Plan("lenet5", DATA, 3, BATCH)):
        with pytest.raises(RuleError, match="data parallel over 2 GPUs runs here"):
            Replicas(plan, FakeTeam(2), *images("lenet5"))


# -- tensor parallel and pipelines ---------------------------------------------------------------------
def split(network: str, way: str, team, micro: int = 1):
    """Returns the graph and the joined weights after some steps."""
    plan = Plan(network, way, team.gpus, BATCH, micro)
    ranks = open_step(plan, team, *images(network), **FACTORS)
    for _ in range(STEPS):
        ranks.step()
    (found,) = ranks.weights()
    ranks.close()
    return ranks.graph, found


@pytest.mark.parametrize("computes_first", [True, False])
@pytest.mark.parametrize(("network", "gpus"), [("lenet5", 3), ("transformer", 4)])
def test_parts_of_layers_learn_what_whole_layers_learn(network, gpus, computes_first):
    graph, weights = split(network, TENSOR, FakeTeam(gpus, computes_first))
    assert check_near(graph, weights, alone(network)) <= 1e-5


@cache
def in_parts(network: str, micro: int) -> np.ndarray:
    return split(network, GPIPE, FakeTeam(1), micro)[1]


@pytest.mark.parametrize("computes_first", [True, False])
@pytest.mark.parametrize(
    ("network", "way", "gpus", "micro"),
    [("lenet5", GPIPE, 2, 4), ("transformer", ONE_F_ONE_B, 2, 3), ("residual", GPIPE, 4, 2)],
)
def test_stages_learn_bit_by_bit_what_one_gpu_learns_in_parts(network, way, gpus, micro, computes_first):
    graph, weights = split(network, way, FakeTeam(gpus, computes_first), micro)
    check_exact(graph, weights, in_parts(network, micro))
    if network != "residual":  # batch norm sees a micro-batch
        assert check_near(graph, weights, alone(network)) <= 1e-5


def test_a_pipeline_without_its_waits_learns_something_else():
    for computes_first in (True, False):
        graph, weights = split("lenet5", GPIPE, FakeTeam(2, computes_first, deaf=True), 2)
        with pytest.raises(DifferentError):
            check_exact(graph, weights, in_parts("lenet5", 2))


def test_a_lost_exchange_is_noticed(monkeypatch):
    monkeypatch.setattr(FakeTeam, "sums", lambda self, arrays: (lambda: None, lambda rank: None))
    with pytest.raises(DifferentError):
        check_near(*split("lenet5", TENSOR, FakeTeam(2)), alone("lenet5"))


def test_a_step_returns_to_its_first_weights():
    for way, micro in ((TENSOR, 1), (GPIPE, 2)):
        plan = Plan("lenet5", way, 2, BATCH, micro)
        ranks = open_step(plan, FakeTeam(2), *images("lenet5"), **FACTORS)
        ranks.step()
        (first,) = ranks.weights()
        ranks.reset()
        ranks.step()
        assert np.array_equal(ranks.weights()[0], first)


def test_sharded_state_runs_on_a_processor_only():
    with pytest.raises(RuleError, match="zero1 runs on a processor only; on GPUs run: data, tensor"):
        open_step(Plan("lenet5", ZERO_1, 2, BATCH), FakeTeam(2), *images("lenet5"))
    for way in (TENSOR, GPIPE):
        with pytest.raises(RuleError, match="the plan has 3 GPUs, 2 are open"):
            open_step(Plan("lenet5", way, 3, BATCH), FakeTeam(2), *images("lenet5"))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("network", "way", "micro"),
    [("lenet5", TENSOR, 1), ("transformer", TENSOR, 1), ("lenet5", GPIPE, 4), ("transformer", ONE_F_ONE_B, 2)],
)
def test_two_gpus_share_a_network(network, way, micro):
    if cuda_devices.count() < 2:
        pytest.skip("two GPUs are needed")
    one, two = Team(1), Team(2)
    _, (right,) = trained(network, one)
    graph, weights = split(network, way, two, micro)
    assert check_near(graph, weights, right) <= 1e-5
    if micro > 1:
        check_exact(graph, weights, split(network, way, one, micro)[1])
    two.close()


@pytest.mark.gpu
@pytest.mark.parametrize("network", ["lenet5", "transformer"])
@pytest.mark.parametrize("overlap", [True, False])
def test_two_gpus_learn_what_one_learns(network, overlap):
    if cuda_devices.count() < 2:
        pytest.skip("two GPUs are needed")
    one, two = Team(1), Team(2)
    _, (right,) = trained(network, one)
    graph, weights = trained(network, two, overlap)
    check_equal(graph, weights)
    assert check_near(graph, weights[0], right) <= 1e-5
    two.close()
