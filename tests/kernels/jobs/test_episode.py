"""Episodes of training: together they are one training, bit by bit; what ends one early keeps what came before."""

from __future__ import annotations

import itertools
import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from kernels.jobs import Worker
from kernels.jobs import episode as episodes
from kernels.jobs.episode import Episode, by_node, train
from kernels.jobs.job import JobError
from kernels.training import step
from kernels.training.loop import Settings, Training

SMALL = Settings("lenet5", 300, "sgd", {"lr": 0.05})  # five steps are an epoch


def quiet(share, text):
    """Takes no notice of progress."""


def run(request: Episode, part=lambda part: None):
    (row,) = train(request, quiet, part)
    return row


def test_episodes_together_are_one_training_bit_by_bit():
    whole = Training(SMALL)
    losses = [(p.step, p.loss) for p in whole.run(1)]
    state, points, count = None, [], 0
    while count < 50:
        row = run(Episode(SMALL, 1, state, seconds=0.0))  # each takes one step
        points += row["points"]
        state, count = row["state"], count + 1
        assert len(row["points"]) == 1
        if row["done"]:
            break
    assert points == losses and count == 5
    for name, array in whole.state().arrays.items():
        np.testing.assert_array_equal(array, state.arrays[name], err_msg=name)
    assert row["accuracy"] == [(5, whole.accuracy())]


def test_the_first_episode_knows_the_accuracy_before_training():
    row = run(Episode(SMALL, 1, seconds=0.0))
    assert [step for step, _ in row["accuracy"]] == [0]
    assert row["accuracy"][0][1] < 0.4


def test_parts_hold_the_points_so_far(monkeypatch):
    monkeypatch.setattr(episodes, "PART_S", 0.0)
    parts = []
    row = run(Episode(SMALL, 1, seconds=60.0), parts.append)
    assert [point for part in parts for point in part["points"]] == row["points"]
    assert len(parts) == 5


def test_a_diverging_training_keeps_its_points_and_the_state_before_the_episode():
    settings = Settings("residual", 50, "sgd", {"lr": 1e6})
    first = run(Episode(settings, 2, seconds=0.0))
    row = run(Episode(settings, 2, first["state"], seconds=60.0))
    assert "no finite number" in row["diverged"] and not row["done"]
    assert row["points"] and row["state"] is first["state"]
    assert np.isfinite(row["state"].arrays["weights"]).all()


def test_timing_the_nodes_changes_no_number():
    plain, timed = (run(Episode(SMALL, 1, seconds=0.0, timed=timed)) for timed in (False, True))
    assert plain["points"] == timed["points"] and plain["node_ms"] is None
    graph, _ = step.cached("lenet5", 300, True, "sgd", (("lr", 0.05),))
    assert list(timed["node_ms"]) == [node.name for node in graph.nodes]
    assert min(timed["node_ms"].values()) > 0
    assert sum(timed["node_ms"].values()) == pytest.approx(timed["step_ms"])


def test_the_steps_of_a_node_are_added():
    graph, program = step.cached("lenet5", 32, False, "sgd", ())
    found = by_node(graph, program, np.ones(len(program.steps)))
    assert sum(found.values()) == len(program.steps)
    assert found["conv2 db"] == 2 and found["conv1"] == 1
    with pytest.raises(ValueError, match="3 steps for nodes of 44"):
        by_node(graph, replace(program, steps=program.steps[:3]), np.ones(3))


def test_requests_differ_by_state_and_settings():
    state = Training(SMALL).state()
    other = type(state)(state.steps, state.arrays | {"weights": state.arrays["weights"] + 1})
    requests = [Episode(SMALL, 1), Episode(SMALL, 2), Episode(SMALL, 1, state), Episode(SMALL, 1, other)]
    assert len({request.key() for request in requests}) == 4
    assert Episode(SMALL, 1, state).key() == Episode(SMALL, 1, Training(SMALL).state()).key()


# -- in the worker's process ---------------------------------------------------------------------------
@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.close()


def test_the_worker_runs_an_episode_and_keeps_no_result(worker):
    request = Episode(SMALL, 1, seconds=0.2)
    rows = [worker.submit(request).result(timeout=60) for _ in range(2)]
    assert rows[0][0]["points"][0] == rows[1][0]["points"][0]
    assert not worker.submit(request).cached


def test_a_killed_process_ends_one_episode_with_a_sentence(worker):
    job = worker.submit(Episode(SMALL, 50, seconds=60.0))
    while not job.parts:
        assert not job.done
        time.sleep(0.01)
    os.kill(worker._child.pid, signal.SIGKILL)
    with pytest.raises(JobError, match=r"the process that ran training lenet5 died \(SIGKILL"):
        job.result(timeout=60)
    (row,) = worker.submit(Episode(SMALL, 1, seconds=0.0)).result(timeout=60)
    assert row["points"]
    assert list(itertools.chain(*(part["points"] for part in job.parts)))
