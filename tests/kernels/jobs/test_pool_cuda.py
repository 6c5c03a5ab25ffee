"""A pool whose worker has a real GPU: it announces the device, runs on it, and its rows name it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernels.gemm.shape import GemmShape
from kernels.jobs.job import Request
from kernels.jobs.pool import Pool
from kernels.machine import driver
from kernels.machine.others import Programs
from tests.helpers.pool import PATIENCE_S, running, until

pytestmark = [pytest.mark.gpu, pytest.mark.alone]
SHAPE = GemmShape(256, 256, 256, dtype="fp16")
BUSY = """
import cupy
print("begun", flush=True)
a = cupy.ones((4096, 4096), cupy.float32)
while True:
    a @ a
    cupy.cuda.Device().synchronize()
"""


def test_a_worker_announces_its_device_and_runs_on_it(tmp_path):
    rows = []
    with running(tmp_path, "") as machines:
        pool = Pool(machines.address, on_rows=rows.append)
        try:
            until(lambda: len(pool.machines()) == 1)
            (device, machine), *_ = pool.machines().items()
            assert machine.gpu == driver.find() and device == machine.gpu.name
            request = Request(("gemm/mma-sync", "gemm/cublas-fp16"), SHAPE, engine="cuda", seconds=0.05)
            found = pool.submit(request).result(PATIENCE_S)
        finally:
            pool.close()
    assert [row["rung"] for row in found] == ["gemm/mma-sync", "gemm/cublas-fp16"] and rows == [found]
    assert {row["device"] for row in found} == {device} and all(row["median_ms"] > 0 for row in found)


def test_another_program_on_the_gpu_is_counted():
    import cupy

    a = cupy.ones((4096, 4096), cupy.float32)
    other = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
    try:
        other.stdout.readline()
        programs = Programs(driver.find().bus)

        def found() -> int:
            a @ a  # so that this process is among those that NVML lists
            cupy.cuda.Device().synchronize()
            return programs.readings()["programs"]

        until(lambda: found() > 0)
    finally:
        other.kill()
        other.wait()
