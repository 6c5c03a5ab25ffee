"""A collective as a job: a row for each algorithm; GPUs that never end make the process unusable."""

from __future__ import annotations

import pickle

import pytest

from kernels.collectives import gpus as collective_gpus
from kernels.collectives import kernels
from kernels.collectives.executor import CollectiveError
from kernels.collectives.gpus import NCCL
from kernels.collectives.shape import ALL_REDUCE, BROADCAST, RING
from kernels.engines.cuda import devices
from kernels.jobs import Worker, child
from kernels.jobs.exchange import Exchange, exchange
from kernels.jobs.job import JobError
from tests.helpers.fake_gpus import FakeGpus


@pytest.fixture
def fake(monkeypatch):
    """Puts two emulated GPUs in the place of CuPy."""
    found = FakeGpus(2)
    found.install(monkeypatch)
    monkeypatch.setattr(kernels, "MAX_BLOCKS", 4)
    monkeypatch.setattr(collective_gpus, "SAMPLES", 2)
    return found


def run(request: Exchange) -> list:
    return exchange(request, lambda share, text: None)


def test_rows_of_every_algorithm(fake):
    rows = run(Exchange(ALL_REDUCE, 2, 16))
    assert [row["algorithm"] for row in rows] == [*kernels.KERNELS, NCCL]
    assert all(row["median_ms"] > 0 and row["device"] == "NVIDIA Pretence" for row in rows)
    assert fake.freed == [0, 1]
    assert [row["algorithm"] for row in run(Exchange(BROADCAST, 2, 16))] == [NCCL]


def test_an_algorithm_that_fails_says_why_and_the_others_run(fake, monkeypatch):
    verify = collective_gpus.verify

    def wrong(gpus, kind, algorithm, elements, **settings):
        if algorithm == RING:
            raise CollectiveError("element 3 of rank 1 is wrong")
        return verify(gpus, kind, algorithm, elements, **settings)

    monkeypatch.setattr(collective_gpus, "verify", wrong)
    rows = {row["algorithm"]: row for row in run(Exchange(ALL_REDUCE, 2, 16))}
    assert rows[RING]["refused"] == "element 3 of rank 1 is wrong"
    assert all("median_ms" in row for name, row in rows.items() if name != RING)


def test_emulated_gpus_count_and_verify_every_kernel():
    rows = run(Exchange(ALL_REDUCE, 3, 10, emulated=True))
    assert [row["algorithm"] for row in rows] == list(kernels.KERNELS)
    assert all(row["equal"] and row["same_bytes"] for row in rows)


def messages(request: Exchange) -> list[tuple]:
    """Returns what the process that runs jobs sends for a request."""
    sent, packed = [], [pickle.dumps(request)]

    def receive():
        if packed:
            return packed.pop()
        raise EOFError

    child.handle_requests(receive, lambda *message: sent.append(message))
    return sent


def test_gpus_that_hang_end_the_process(fake, monkeypatch):
    monkeypatch.setattr(devices.Devices.wait, "__defaults__", (0.05,))
    fake.hangs = True
    sent = messages(Exchange(ALL_REDUCE, 2, 16))
    name, text, usable = sent[-1]
    assert (name, usable) == ("error", False)
    assert text.startswith("GPU 0 did not end within 0.05 s")


def test_missing_gpus_are_named_and_the_process_goes_on(fake):
    sent = messages(Exchange(ALL_REDUCE, 3, 16))
    assert sent[-2] == ("error", "3 GPUs are needed, this machine has 2", True)
    assert sent[-1] == ("ready",)


@pytest.mark.skipif(devices.count() > 1, reason="this machine has several GPUs")
def test_without_several_gpus_the_job_says_so():
    worker = Worker()
    try:
        with pytest.raises(JobError):
            worker.submit(Exchange(ALL_REDUCE, 2, 16)).result(60)
    finally:
        worker.close()
