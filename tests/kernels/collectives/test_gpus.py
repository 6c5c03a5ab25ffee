"""Collectives over several GPUs of one process, on emulated GPUs: verified on each, clear words for what is missing."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.collectives import gpus as collective_gpus
from kernels.collectives import kernels
from kernels.collectives.executor import CollectiveError
from kernels.collectives.gpus import CUPY, GRAPH, JOINT, LAUNCH, NCCL, SINGLE, Gpus
from kernels.collectives.kernels import KERNELS
from kernels.collectives.shape import ALGORITHMS, ALL_REDUCE, ONE_SHOT, RING
from kernels.engines.cuda import devices
from kernels.engines.cuda.devices import Devices, DevicesHung
from kernels.model.program import RuleError
from tests.helpers.fake_gpus import FakeGpus, FakeNccl


@pytest.fixture
def fake(monkeypatch):
    """Returns a function that puts emulated GPUs in the place of CuPy."""

    def install(count: int = 2, **settings) -> FakeGpus:
        found = FakeGpus(count, **settings)
        found.install(monkeypatch)
        monkeypatch.setattr(kernels, "MAX_BLOCKS", 4)
        return found

    return install


@pytest.mark.parametrize("algorithm", [*KERNELS, NCCL])
@pytest.mark.parametrize("ranks", [2, 4])
def test_an_all_reduce_is_verified_and_timed(fake, algorithm, ranks):
    fake(ranks)
    gpus = Gpus(ranks, 64)
    row = collective_gpus.measure(gpus, ALL_REDUCE, algorithm, 16 * ranks - 3, LAUNCH, 2)
    assert row["ranks"] == ranks and row["n"] == 2 and row["error"] <= 1 and row["median_ms"] > 0
    assert row["bus_bytes_per_s"] == pytest.approx(
        row["bytes"] * 2 * (ranks - 1) / ranks / (row["median_ms"] / 1e3), rel=1e-3
    )
    gpus.close()


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_nccl_has_every_kind(fake, kind):
    fake(4)
    assert collective_gpus.measure(Gpus(4, 64), kind, NCCL, 32, LAUNCH, 2)["kind"] == kind


def test_a_graph_runs_often_and_counts_one_run(fake, monkeypatch):
    fake(2)
    monkeypatch.setattr(collective_gpus, "GRAPH_RUNS", 3)
    gpus = Gpus(2, 16)
    one_by_one = collective_gpus.measure(gpus, ALL_REDUCE, ONE_SHOT, 16, LAUNCH, 2)
    for launch in (GRAPH, CUPY, SINGLE, JOINT):
        other = collective_gpus.measure(gpus, ALL_REDUCE, ONE_SHOT, 16, launch, 2)
        assert other["launch"] == launch
        assert other["median_ms"] == pytest.approx(one_by_one["median_ms"], rel=1e-3)


def test_a_prepared_launch_leaves_the_context_as_it_was(fake):
    found = fake(3)
    gpus = Gpus(3, 24)
    run = gpus.own(RING, 24)
    run()
    assert found.current == [0]


def test_a_long_array_repeats_a_tile(fake, monkeypatch):
    monkeypatch.setattr(collective_gpus, "WHOLE", 32)
    monkeypatch.setattr(collective_gpus, "TILE", 16)
    fake(2)
    gpus = Gpus(2, 100)
    assert collective_gpus.verify(gpus, ALL_REDUCE, RING, 100) <= 1
    monkeypatch.setattr(devices, "nccl", lambda: FakeNccl(gpus.devices._cupy, wrong=True))
    with pytest.raises(CollectiveError, match="element 0 of rank 0"):
        collective_gpus.verify(gpus, ALL_REDUCE, NCCL, 100)


def test_a_wrong_sum_is_never_timed(fake, monkeypatch):
    found = fake(2)
    monkeypatch.setattr(devices, "nccl", lambda: FakeNccl(found, wrong=True))
    with pytest.raises(CollectiveError, match="element 0 of rank 0 is"):
        collective_gpus.measure(Gpus(2, 16), ALL_REDUCE, NCCL, 16, LAUNCH, 2)


def test_a_lost_gpu_is_an_error_and_the_next_run_is_right(fake):
    found = fake(2, patience=300)
    gpus = Gpus(2, 16)
    found.lost = 1
    run = gpus.own(RING, 16)
    gpus.put([np.ones(16, np.float32)] * 2)
    run()
    found.run()
    found.lost = None
    found.streams[1].work.clear()  # its kernel was never launched
    with pytest.raises(CollectiveError, match="rank 0 waited in vain for another GPU"):
        gpus.check(RING)
    found.patience = 2000
    assert collective_gpus.verify(gpus, ALL_REDUCE, RING, 16) <= 1


def test_gpus_that_never_end_are_reported_after_the_deadline(fake):
    found = fake(2)
    gpus = Gpus(2, 16)
    run = gpus.own(RING, 16)
    found.hangs = True
    run()
    with pytest.raises(DevicesHung, match=r"GPU 0 did not end within 0.05 s: another GPU or its link may be lost"):
        gpus.devices.wait(0.05)


def test_missing_gpus_and_links_are_named(fake):
    fake(1)
    with pytest.raises(RuleError, match="2 GPUs are needed, this machine has 1"):
        Gpus(2, 16)
    fake(3, apart=(2, 0))
    with pytest.raises(RuleError, match="GPU 2 cannot reach the memory of GPU 0"):
        Gpus(3, 16)
    Devices(2)
    assert Devices(3, peers=False).ranks == 3
    Devices(2)  # peers that are connected already are no error


def test_nccl_refuses_chunks_of_two_lengths(fake):
    fake(2)
    with pytest.raises(RuleError, match="NCCL needs elements % ranks == 0, got 15 % 2"):
        collective_gpus.measure(Gpus(2, 16), "all-gather", NCCL, 15)
