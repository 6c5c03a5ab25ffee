"""Data parallel steps on several GPUs: on queues that run late and in a bad order, and on real GPUs where there are two."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from kernels.engines.cuda import devices as cuda_devices
from kernels.model.program import RuleError
from kernels.parallel import data
from kernels.parallel.devices import DifferentError, Replicas, Team, check_equal, check_near, segments
from kernels.parallel.plan import DATA, GPIPE, Plan
from kernels.training import digits, step
from kernels.training.graph import BACKWARD, FORWARD, UPDATE, node_program
from kernels.training.networks import NETWORKS
from tests.helpers.fake_team import FakeTeam

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


@pytest.mark.slow
@pytest.mark.parametrize("network", ["lenet5", "transformer"])
@pytest.mark.parametrize("computes_first", [True, False])
@pytest.mark.parametrize(("gpus", "overlap"), [(2, True), (2, False), (3, True)])
def test_several_gpus_learn_what_one_learns_in_any_order_of_their_streams(
    network, computes_first, gpus, overlap
):
    graph, weights = trained(network, FakeTeam(gpus, computes_first), overlap)
    check_equal(graph, weights)
    assert check_near(graph, weights[0], alone(network)) <= 1e-5
    first = step.first_weights(graph)
    assert np.abs(weights[0] - first).max() > 1e-3


def test_without_the_waits_between_streams_the_weights_are_wrong():
    graph, weights = trained("lenet5", FakeTeam(2, computes_first=True, deaf=True))
    with pytest.raises(DifferentError, match="differ"):
        check_near(graph, weights[0], alone("lenet5"))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("bucket_bytes", [1, 20_000, 10**9])
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
