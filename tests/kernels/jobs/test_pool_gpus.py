"""A pool with GPUs, for an app without one: workers announce them, and runs of the cuda engine go to them.

The workers and the scheduler are real processes. Their GPUs are stand-ins for the driver's library, and so are the rows: no
kernel runs on a GPU here.
"""

from __future__ import annotations

import pytest

from kernels import engines
from kernels.conv.presets import CONV_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.jobs.job import JobError, Request
from kernels.jobs.pool import Pool
from kernels.ladders import find
from kernels.machine import driver, elsewhere, processor
from kernels.records import availability
from tests.helpers.pool import PATIENCE_S, running, until

H200, A100 = "NVIDIA H200", "NVIDIA A100"
SHAPE = GemmShape(256, 256, 256, dtype="fp16")


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    with running(tmp_path_factory.mktemp("pool"), "", f"{H200} 9.0", f"{A100} 8.0") as machines:
        yield machines


@pytest.fixture(scope="module")
def pool(machines):
    pool = Pool(machines.address, child="tests.children.acts")
    until(lambda: len(pool.machines()) == 3)
    yield pool
    pool.close()


def request(*rungs: str, engine: str = "cuda") -> Request:
    return Request(rungs or ("gemm/mma-sync",), SHAPE, engine=engine)


def test_workers_announce_their_gpus(pool):
    found = pool.machines()
    assert found.keys() == {H200, A100, processor.device_name()}
    assert found[H200].gpu.capability == (9, 0) and found[A100].gpu.capability == (8, 0)
    assert found[H200].gpu.shared_bytes > 200_000 and found[H200].status().ready
    without = found[processor.device_name()]
    assert without.gpu is None and not without.status().ready
    assert without.status().text.startswith(f"{without.device}, of the pool: ")


def test_a_run_on_a_gpu_goes_to_a_machine_that_has_one(pool):
    jobs = [pool.submit(request(), fresh=True, owner=str(n)) for n in range(2)]
    jobs += [pool.submit(request("gemm/wmma")), pool.submit(request("gemm/cublas-fp16"))]
    devices = {job.result(PATIENCE_S)[0]["device"] for job in jobs}
    assert devices <= {H200, A100}


@pytest.mark.parametrize("device", [H200, A100])
def test_a_run_goes_to_the_chosen_device(pool, device):
    (row,) = pool.submit(request(), device=device).result(PATIENCE_S)
    assert row["device"] == device and row["engine"] == "cuda"


def test_a_gpu_is_not_looked_for_on_a_chosen_device_without_one(pool):
    with pytest.raises(JobError, match="no machine of the pool has a GPU now; it has"):
        pool.submit(request(), device=processor.device_name()).result(PATIENCE_S)


def test_rules_are_those_of_the_chosen_device(pool, monkeypatch):
    def refusal(device: str, name: str) -> str:
        monkeypatch.setattr(elsewhere, "_current", lambda: pool.machines()[device])
        assert engines.load("cuda").status().ready
        return engines.refusal("cuda", find(name), SHAPE, find(name).default_tiles)

    assert refusal(H200, "gemm/mma-sync") == refusal(A100, "gemm/mma-sync") == refusal(H200, "gemm/wgmma") == ""
    assert "NVIDIA A100 has 8.0" in refusal(A100, "gemm/wgmma")


def test_libraries_are_those_of_the_chosen_machine(monkeypatch):
    gpu, cudnn = driver.GpuInfo(H200, 1, "0", (9, 0), 232_448), find("conv/cudnn-direct")
    for why in ("cuDNN was not found", ""):
        machine = elsewhere.Machine(H200, gpu, rungs={cudnn.name: why} if why else {})
        monkeypatch.setattr(elsewhere, "_current", lambda machine=machine: machine)
        found = availability.missing_library(cudnn, CONV_PRESETS["toy"].shape)
        assert found == (f"cuDNN was not called here: {why}" if why else "")
    missing = elsewhere.Machine(H200, gpu, libraries={"cublas": "cuBLAS was not found"})
    monkeypatch.setattr(elsewhere, "_current", lambda: missing)
    assert engines.refusal("cuda", find("gemm/cublas"), GemmShape(64, 64, 64), {}) == "cuBLAS was not found"


def test_an_announcement_survives_the_network(pool):
    for machine in pool.machines().values():
        assert elsewhere.Machine.from_message(machine.to_message()) == machine
