"""What each GPU holds: the same bytes as one GPU's step where nothing is split, and less of exactly what is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.model.program import RefusedError
from kernels.parallel import data, memory
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, TENSOR, WAYS, ZERO_1, ZERO_2, ZERO_3, Plan
from kernels.training import step
from kernels.training.graph import ACTIVATION, GRADIENT, STATE, WEIGHT
from kernels.training.memory import ROLES, peak, timeline
from kernels.training.networks import NETWORKS

BATCH = 24
COSTS = {name: tuple((layer.name, 1.0) for layer in net.layers) for name, net in NETWORKS.items()}


def holdings(network: str, way: str, gpus: int, **more):
    plan = Plan(network, way, gpus, BATCH, optimizer="adam", **more)
    return memory.holdings(plan, COSTS[network])


@pytest.mark.parametrize("way", [DATA, TENSOR])
def test_one_gpu_holds_what_train_says(way):
    (one,) = holdings("lenet5", way, 1)
    graph, _ = step.cached("lenet5", BATCH, False, "adam", ())
    assert one.peak.nbytes == peak(timeline(graph)).nbytes
    assert one.largest(GRADIENT) == graph.tensors["gradients"].nbytes


@settings(max_examples=5, deadline=None)
@given(st.sampled_from(list(NETWORKS)), st.sampled_from([2, 3, 4, 6]), st.integers(1, 60_000))
def test_each_stage_of_zero_shards_one_more_role(network, gpus, bucket_bytes):
    found = [holdings(network, way, gpus, bucket_bytes=bucket_bytes)[0] for way in (DATA, ZERO_1, ZERO_2, ZERO_3)]
    for role, first in ((STATE, 1), (GRADIENT, 2), (WEIGHT, 3)):
        sizes = [each.largest(role) for each in found]
        assert len(set(sizes[:first])) == 1 and len(set(sizes[first:])) == 1, role
        assert sizes[first] <= sizes[0]
    assert found[1].largest(STATE) < found[0].largest(STATE) / gpus * 1.1 + 64
    assert len({each.largest(ACTIVATION) for each in found}) == 1


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(list(NETWORKS)), st.integers(1, 8), st.integers(1, 60_000))
def test_the_shards_of_all_gpus_are_the_whole_state(network, gpus, bucket_bytes):
    graph = step.build(NETWORKS[network], 4, step.ON_GPU)
    found = data.buckets(graph, bucket_bytes)
    shards = [data.shard_elements(found, rank, gpus) for rank in range(gpus)]
    assert sum(shards) == sum(bucket.elements for bucket in found)
    assert max(shards) - min(shards) <= len(found)


def test_images_are_split_by_data_parallel_and_layers_by_tensor_parallel():
    one = holdings("transformer", DATA, 1)[0]
    four = holdings("transformer", DATA, 4)[0]
    split = holdings("transformer", TENSOR, 4)[0]
    assert four.largest(WEIGHT) == one.largest(WEIGHT)
    assert one.largest(ACTIVATION) / 4.5 < four.largest(ACTIVATION) < one.largest(ACTIVATION) / 3.5
    assert split.largest(WEIGHT) < one.largest(WEIGHT) / 2
    assert split.largest(ACTIVATION) > four.largest(ACTIVATION)


def test_1f1b_holds_fewer_activations_than_gpipe_where_it_holds_fewer_micro_batches():
    gpipe = holdings("transformer", GPIPE, 4, micro=8)
    other = holdings("transformer", ONE_F_ONE_B, 4, micro=8)
    held = [(a.largest(ACTIVATION), b.largest(ACTIVATION)) for a, b in zip(gpipe, other, strict=True)]
    assert all(b < a for a, b in held)
    assert held[3][1] < held[3][0] / 3  # the last stage holds one micro-batch in place of eight
    weights = sum(each.largest(WEIGHT) for each in gpipe)
    whole = holdings("transformer", DATA, 1)[0].largest(WEIGHT)
    assert whole * 0.98 < weights <= whole


def test_every_byte_of_a_moment_is_there():
    for way in WAYS:
        for each in holdings("lenet5", way, 2, bucket_bytes=1_000):
            assert all(set(m.nbytes) == set(ROLES) and min(m.nbytes.values()) >= 0 for m in each.moments), way


def test_too_little_memory_is_refused_with_the_bytes_and_what_helps():
    plan = Plan("transformer", DATA, 4, BATCH, bucket_bytes=4_000)
    wanted = memory.needed(plan)
    memory.check(plan, free=wanted)
    with pytest.raises(RefusedError) as error:
        memory.check(plan, free=wanted - 1)
    saved = wanted - memory.needed(Plan("transformer", ZERO_3, 4, BATCH, bucket_bytes=4_000))
    assert saved > 0
    text = str(error.value)
    assert f"needs {wanted / 1e9:.6f} GB" in text and f"saves {saved / 1e9:.6f} GB" in text
    assert "the activations need" in text
