"""A parallel step as a job: rows of one GPU and of several, clear words for missing GPUs, an end for those that hang."""

from __future__ import annotations

import pickle

import pytest

from kernels.engines.cuda import devices
from kernels.jobs import Worker, child, parallel_step
from kernels.jobs.job import JobError
from kernels.jobs.parallel_step import ParallelStep
from kernels.parallel import measured
from kernels.parallel.devices import Ranks
from kernels.parallel.plan import DATA, GPIPE, TENSOR, ZERO_1, Plan
from kernels.parallel.timeline import one_gpu
from tests.helpers.fake_team import FakeTeam

LIMIT_S = 60


class Teams:
    """Fake teams that were opened, and those that were closed."""

    def __init__(self):
        self.opened: list[FakeTeam] = []
        self.closed: list[FakeTeam] = []

    def open(self, gpus: int) -> FakeTeam:
        team = FakeTeam(gpus)
        team.close = lambda: self.closed.append(team)
        team.devices.free = lambda: None
        team.devices.name = lambda rank: "NVIDIA Pretence"
        self.opened.append(team)
        return team


@pytest.fixture
def teams(monkeypatch):
    """Puts two fake GPUs, whose steps take 1 ms for each GPU, in the place of real ones."""
    found = Teams()
    monkeypatch.setattr(parallel_step, "Team", found.open)
    monkeypatch.setattr(
        devices, "refusal", lambda gpus: "" if gpus <= 2 else f"{gpus} GPUs are needed, this machine has 2"
    )
    monkeypatch.setattr(Ranks, "seconds", lambda self, times: [self.step(), 1e-3 * self.plan.gpus][1])
    monkeypatch.setattr(measured, "CHECKED_BATCH", 8)
    return found


def messages(request: ParallelStep) -> list[tuple]:
    """Returns what the process that runs jobs sends for a request."""
    sent, waiting = [], [pickle.dumps(request)]

    def receive():
        if waiting:
            return waiting.pop()
        raise EOFError

    child.handle_requests(receive, lambda *message: sent.append(message))
    return sent


@pytest.mark.parametrize(("way", "micro"), [(DATA, 4), (TENSOR, 1), (GPIPE, 2)])
def test_the_step_is_timed_on_one_gpu_and_on_all(teams, way, micro):
    plan = Plan("lenet5", way, 2, 16, micro)
    sent = messages(ParallelStep(plan))
    rows = next(message[1] for message in sent if message[0] == "rows")
    one, two = rows
    assert (one["gpus"], one["way"], two["gpus"], two["way"]) == (1, DATA, 2, way)
    assert (one["step_us"], two["step_us"]) == (1000, 2000)
    assert 0 < two["error_of_weights"] <= 1e-5 and two["device"] == "NVIDIA Pretence"
    assert [message[1] for message in sent if message[0] == "part"] == rows
    texts = [message[2] for message in sent if message[0] == "progress"]
    assert texts == ["comparing the weights with one GPU", "timing the step", "timing the step"]
    assert sent[-1] == ("ready",)
    assert teams.closed == teams.opened and {team.gpus for team in teams.opened} == {1, 2}


def test_wrong_weights_are_named_and_nothing_stays_open(teams, monkeypatch):
    right = measured.after

    def wrong(plan, team, overlap):
        graph, weights = right(plan, team, overlap)
        return graph, [w + (plan.gpus > 1) for w in weights]

    monkeypatch.setattr(measured, "after", wrong)
    sent = messages(ParallelStep(Plan("lenet5", TENSOR, 2, 16)))
    name, text, usable = sent[-2]
    assert (name, usable) == ("error", True) and "at most 1e-05 is right" in text
    assert teams.closed == teams.opened
    assert not any(message[0] == "part" for message in sent)


def test_missing_gpus_and_ways_without_gpus_are_named(teams):
    assert messages(ParallelStep(Plan("lenet5", DATA, 4, 16)))[-2] == (
        "error",
        "4 GPUs are needed, this machine has 2",
        True,
    )
    name, text, usable = messages(ParallelStep(Plan("lenet5", ZERO_1, 2, 16)))[-2]
    assert (name, usable) == ("error", True) and text.startswith("zero1 runs on a processor only")


def test_gpus_that_hang_end_the_process(teams, monkeypatch):
    def hang(self, deadline_s: float = 0.0):
        raise devices.DevicesHung("GPU 1 did not end within 20 s: another GPU or its link may be lost")

    monkeypatch.setattr(FakeTeam, "wait", hang)
    sent = messages(ParallelStep(Plan("lenet5", DATA, 2, 16)))
    assert sent[-1] == ("error", "GPU 1 did not end within 20 s: another GPU or its link may be lost", False)
    assert teams.closed == []  # closing would wait for the GPU that is lost


def test_equal_steps_are_one_run():
    plan = Plan("lenet5", DATA, 2, 16)
    assert ParallelStep(plan).key() == ParallelStep(Plan("lenet5", DATA, 2, 16)).key()
    assert ParallelStep(plan).key() != ParallelStep(one_gpu(plan)).key()


@pytest.mark.skipif(devices.count() > 1, reason="this machine has several GPUs")
def test_without_several_gpus_the_job_says_so():
    worker = Worker()
    try:
        with pytest.raises(JobError, match=devices.refusal(2)[:20]):
            worker.submit(ParallelStep(Plan("lenet5", DATA, 2, 16))).result(LIMIT_S)
    finally:
        worker.close()
