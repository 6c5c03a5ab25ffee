"""The time axis of a parallel step: tasks keep their order and their streams, and its figures are those of the formulas."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.collectives.shape import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from kernels.parallel import data, links, pipeline, tensor, times
from kernels.parallel import timeline as lines
from kernels.parallel.plan import DATA, GPIPE, ONE_F_ONE_B, PIPELINES, TENSOR, WAYS, ZERO_1, ZERO_2, ZERO_3, Plan
from kernels.parallel.timeline import COMPUTE, LINK, SEND, Task, Timeline, simulate
from kernels.training.graph import BACKWARD, FORWARD, UPDATE
from kernels.training.networks import NETWORKS

NETWORK = st.sampled_from(list(NETWORKS))


def plans():
    """Yields plans that keep the rules."""
    return st.builds(
        lambda network, way, gpus, batch, micro, bucket: Plan(network, way, gpus, 24 * batch, micro, bucket),
        NETWORK,
        st.sampled_from([w for w in WAYS if w != TENSOR]),
        st.integers(1, 4),
        st.integers(1, 90),
        st.sampled_from([1, 2, 3, 4, 8]),
        st.integers(1, 300_000),
    )


def assert_is_possible(found: Timeline) -> None:
    for n, task in enumerate(found.tasks):
        assert all(found.starts[n] >= found.ends[need] for need in task.needs), task.name
    streams = {stream for task in found.tasks for stream in task.streams}
    for gpu, stream in streams:
        mine = found.of_stream(gpu, stream)
        assert all(found.starts[b] >= found.ends[a] for a, b in itertools.pairwise(mine))
    assert found.total == max(found.ends)


# -- recorded times -----------------------------------------------------------------------------------
def test_only_times_of_sgd_are_used(monkeypatch, tmp_path):
    """A row of Adam, recorded later, does not replace that of SGD."""
    plain = {"network": "lenet5", "memory": times.PLAIN, "batch": 32, "date": "2026-01-01"}
    rows = [plain | {"optimizer": name, "node_us": {"update": us}} for name, us in (("sgd", 2.0), ("adam", 3.0))]
    monkeypatch.setattr(times, "FILE", tmp_path / "training.json")
    times.FILE.write_text(json.dumps(rows), encoding="utf-8")
    assert [row["node_us"]["update"] for row in times.rows.__wrapped__("lenet5")] == [2.0]


# -- the simulator -------------------------------------------------------------------------------------
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.floats(0, 9), st.sets(st.integers(0, 30))), max_size=20))
def test_a_task_waits_for_its_streams_and_for_what_it_needs_and_for_nothing_else(rows):
    tasks = [
        Task(str(n), FORWARD, ((gpu, COMPUTE if own else LINK),), us, tuple(k for k in needs if k < n))
        for n, (gpu, own, us, needs) in enumerate(rows)
    ] or [Task("only", FORWARD, ((0, COMPUTE),), 1.0)]
    found = simulate(tasks, 3)
    assert_is_possible(found)
    for n, start in enumerate(found.starts):
        before = [found.ends[k] for k in range(n) if tasks[k].streams == tasks[n].streams]
        before += [found.ends[k] for k in tasks[n].needs]
        assert start == max(before, default=0.0)


def test_a_task_before_what_it_needs_is_refused():
    with pytest.raises(ValueError, match="comes before"):
        simulate([Task("a", FORWARD, ((0, COMPUTE),), 1.0, (1,)), Task("b", FORWARD, ((0, COMPUTE),), 1.0)], 1)


@settings(max_examples=20, deadline=None)
@given(plans())
def test_the_timeline_of_a_step_is_possible_and_runs_every_node_once(plan):
    found = lines.timeline(plan)
    assert_is_possible(found)
    graph = pipeline.graph_of(plan) if plan.way in PIPELINES else data.replica(plan)
    ran = [node.name for task in found.tasks for node in task.nodes if node.phase != UPDATE]
    copies = 1 if plan.way in PIPELINES else plan.gpus
    sums = [n for n in graph.nodes if n.name.startswith(pipeline.SUM)]
    wanted = [n.name for n in graph.nodes if n.phase != UPDATE and n not in sums] * copies
    if plan.way in PIPELINES:
        wanted += [n.name for n in sums] * plan.gpus  # each stage adds its own gradients
    assert sorted(ran) == sorted(wanted)
    assert sum(task.kind == UPDATE for task in found.tasks) == plan.gpus
    assert 0 <= found.bubble < 1 and 0 <= found.hidden <= 1


# -- data parallel -------------------------------------------------------------------------------------
@settings(max_examples=20, deadline=None)
@given(NETWORK, st.sampled_from([2, 3, 4, 8]), st.integers(1, 200), st.integers(1, 300_000))
def test_overlap_is_never_slower_and_the_bytes_are_those_of_all_gradients(network, gpus, images, bucket):
    plan = Plan(network, DATA, gpus, images * gpus, bucket_bytes=bucket)
    found, after = lines.timeline(plan), lines.timeline(plan, overlap=False)
    assert found.total <= after.total + 1e-9
    assert after.hidden == 0
    moved = [task.nbytes for task in found.tasks if task.kind == ALL_REDUCE]
    buckets = data.buckets(data.replica(plan), bucket)
    assert moved == [each.nbytes for each in buckets]
    one = lines.timeline(lines.one_gpu(plan))
    assert found.busy(0) < one.total + 1e-9
    assert found.total >= found.busy(0)


def test_without_communication_data_parallel_takes_the_time_of_its_images(monkeypatch):
    monkeypatch.setattr(links, "collective_us", lambda *args: 0.0)
    lines.timeline.cache_clear()
    plan = Plan("lenet5", DATA, 4, 4096)
    graph = data.replica(plan)
    wanted = sum(times.node_us("lenet5", node, 1024) for node in graph.nodes)
    assert lines.timeline(plan).total == pytest.approx(wanted)
    lines.timeline.cache_clear()


def test_what_moves_depends_on_what_is_sharded():
    kinds = {}
    for way in (DATA, ZERO_1, ZERO_2, ZERO_3):
        found = lines.timeline(Plan("transformer", way, 4, 256, bucket_bytes=20_000))
        count = len(data.buckets(data.replica(Plan("transformer", way, 4, 256)), 20_000))
        kinds[way] = {k: sum(t.kind == k for t in found.tasks) / count for k in lines.COLLECTIVES}
    assert kinds[DATA] == {ALL_REDUCE: 1, REDUCE_SCATTER: 0, ALL_GATHER: 0}
    assert kinds[ZERO_1] == {ALL_REDUCE: 1, REDUCE_SCATTER: 0, ALL_GATHER: 1}
    assert kinds[ZERO_2] == {ALL_REDUCE: 0, REDUCE_SCATTER: 1, ALL_GATHER: 1}
    assert kinds[ZERO_3] == {ALL_REDUCE: 0, REDUCE_SCATTER: 1, ALL_GATHER: 2}  # forward and back


def test_a_symmetric_step_is_as_long_on_one_shown_gpu_as_on_all():
    for way in (DATA, ZERO_3, TENSOR):
        plan = Plan("transformer", way, 4, 256)
        assert lines.timeline(plan, alone=True).total == pytest.approx(lines.timeline(plan).total)


@settings(max_examples=10, deadline=None)
@given(NETWORK, st.integers(16, 2000))
def test_efficiency_falls_with_the_gpus_and_a_ring_over_thousands_is_slower(network, images):
    plan = Plan(network, DATA, 2, 2 * images)
    for topology in links.TOPOLOGIES:
        found = [lines.weak_efficiency(plan, gpus, topology) for gpus in (1, 2, 8, 64, 1000, 10_000)]
        assert found[0] == pytest.approx(1.0)
        assert all(b < a for a, b in itertools.pairwise(found))
    assert lines.weak_efficiency(plan, 10_000, links.FLAT) < lines.weak_efficiency(plan, 10_000) / 10


# -- tensor parallel -----------------------------------------------------------------------------------
def test_tensor_parallel_waits_for_each_all_reduce():
    plan = Plan("transformer", TENSOR, 4, 256)
    found = lines.timeline(plan)
    assert_is_possible(found)
    moved = [task.nbytes for task in found.tasks if task.kind == ALL_REDUCE]
    assert moved == [e.nbytes for e in tensor.exchanges(plan, tensor.rank_graph(plan))]
    assert found.hidden == 0
    assert found.total == pytest.approx(found.busy(0) + found.busy(0, LINK))


# -- pipelines -----------------------------------------------------------------------------------------
@settings(max_examples=20, deadline=None)
@given(st.sampled_from([GPIPE, ONE_F_ONE_B]), st.integers(1, 6), st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_the_bubble_of_equal_stages_is_the_formula(way, gpus, micro):
    with pytest.MonkeyPatch.context() as patch:
        each = {FORWARD: 1.0, BACKWARD: 2.0, UPDATE: 0.0}
        patch.setattr(lines, "_us", lambda plan, nodes: each[nodes[0].phase])
        patch.setattr(links, "send_us", lambda nbytes: 0.0)
        found = simulate(lines._pipeline_tasks(Plan("lenet5", way, gpus, 24, micro)), gpus)
    assert found.total == pytest.approx(3.0 * (micro + gpus - 1))
    assert found.bubble == pytest.approx(pipeline.bubble(gpus, micro), abs=1e-12)


def test_messages_of_a_pipeline_are_the_tensors_between_its_stages():
    plan = Plan("transformer", ONE_F_ONE_B, 2, 32, 4)
    stages = lines.stages_of(plan)
    found = lines.timeline(plan)
    forward = [t for t in found.tasks if t.kind == SEND and t.name == "0 → 1"]
    back = [t for t in found.tasks if t.kind == SEND and t.name == "1 → 0"]
    assert len(forward) == len(back) == 4
    crossing = stages.received(1, pipeline.Turn(FORWARD, 0))
    assert {t.nbytes for t in forward} == {sum(stages.graph.tensors[n].nbytes for n in crossing)}


# -- constants -----------------------------------------------------------------------------------------
def test_the_link_takes_the_two_measured_times():
    assert links.collective_us(ALL_REDUCE, 2, links.KIB_64) == pytest.approx(26)
    bus = links.GIB / (1e-6 * links.collective_us(ALL_REDUCE, 2, links.GIB))
    assert bus == pytest.approx(325e9)
    assert links.NVLINK.start > 0


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER]), st.integers(2, 5000), st.integers(1, 10**9))
def test_more_gpus_and_more_bytes_take_longer(kind, ranks, nbytes):
    for topology in links.TOPOLOGIES:
        us = links.collective_us(kind, ranks, nbytes, topology)
        assert links.collective_us(kind, ranks, 2 * nbytes, topology) > us > 0
        assert links.collective_us(kind, ranks + links.NODE, nbytes, topology) >= us
    assert links.collective_us(kind, 1, nbytes) == links.collective_us(kind, ranks, 0) == 0


@pytest.mark.parametrize("network", NETWORKS)
def test_a_predicted_step_is_near_the_recorded_one(network):
    for row in times.rows(network):
        predicted = lines.timeline(Plan(network, DATA, 1, row["batch"])).total
        assert predicted == pytest.approx(row["graph_us"], rel=0.1)
        assert predicted == pytest.approx(sum(row["node_us"].values()), rel=0.02)


def test_a_line_goes_through_both_times_and_is_never_negative():
    assert times.line(32, 5.0, 256, 12.0).us(32) == pytest.approx(5.0)
    assert times.line(32, 5.0, 256, 4.0) == times.Line(4.0, 0.0)
    steep = times.line(32, 1.0, 256, 90.0)
    assert steep.fixed == 0 and steep.us(256) == pytest.approx(90.0)


def test_a_network_without_records_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(times, "FILE", tmp_path / "none.json")
    for each in (times.rows, times.lines):
        each.cache_clear()
    try:
        assert not times.recorded("lenet5")
        with pytest.raises(KeyError, match="two are needed"):
            times.lines("lenet5")
    finally:
        for each in (times.rows, times.lines):
            each.cache_clear()


def test_the_newest_recording_of_a_batch_is_used(tmp_path, monkeypatch):
    row = {"network": "lenet5", "optimizer": "sgd", "memory": times.PLAIN, "batch": 32}
    rows = [row | {"date": date, "node_us": {"conv1": us}} for date, us in (("2026-11-20", 1), ("2026-11-21", 2))]
    monkeypatch.setattr(times, "FILE", tmp_path / "training.json")
    for order in (rows, rows[::-1]):
        times.FILE.write_text(json.dumps(order))
        (found,) = times.rows.__wrapped__("lenet5")
        assert found["node_us"] == {"conv1": 2}
