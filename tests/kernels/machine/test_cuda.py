"""The driver, nvidia-smi and CuPy use the same GPU; messages name a GPU that is hidden, full or one of two."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.engines.cuda.device import smi
from kernels.jobs.job import JobError, Request
from kernels.jobs.process import ROOT
from kernels.jobs.worker import Worker
from kernels.ladders import LADDERS
from kernels.machine import driver, memory_levels
from kernels.records import availability

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

TOY = Request(("conv/direct",), ConvShape(1, 1, 8, 8, 2, 3, 3), engine="cuda", seconds=0.05)
PRINT_STATUS = "from kernels.engines import cuda; from kernels.machine import driver as d; s = cuda.status(); print(s.why); print(s.which); print(getattr(d.find(), 'bus', ''))"
# Allocates all of the GPU's memory but the given bytes, in another process, until its stdin ends.
FILL = """
import cupy, sys
pool, left = cupy.cuda.MemoryPool(), int(sys.argv[1])
held = [pool.malloc(max(cupy.cuda.Device().mem_info[0] - left, 1))]
print("held", flush=True)
sys.stdin.read()
"""


def status_of_new_process(visible: str | None) -> list[str]:
    """Returns why, which and bus of a new process with this CUDA_VISIBLE_DEVICES."""
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    env |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    completed = subprocess.run(
        [sys.executable, "-c", PRINT_STATUS], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    return completed.stdout.split("\n")[:3]


def test_driver_cupy_and_nvidia_smi_report_the_same_gpu():
    import cupy

    gpu, device = driver.find(), cupy.cuda.Device()
    assert gpu.bus.lower() == device.pci_bus_id.lower()
    assert gpu.name == cuda.device_name() == memory_levels.gpu(cuda.status()).device
    assert gpu.name == cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    assert "".join(map(str, gpu.capability)) == device.compute_capability
    assert gpu.shared_bytes == device.attributes["MaxSharedMemoryPerBlockOptin"]
    bus, name = smi("pci.bus_id", "name")
    if bus is None:
        pytest.skip("nvidia-smi is missing here, or does not know this GPU")
    assert bus.lower().endswith(gpu.bus.lower()) and name in gpu.name


def test_conditions_have_the_clocks_of_this_gpu():
    conditions = cuda.conditions()
    if conditions["driver"] is None:
        pytest.skip("nvidia-smi is missing here")
    assert conditions["clock_sm_mhz"] is None or 100 < conditions["clock_sm_mhz"] < 4000


def test_hidden_gpu_is_reported():
    for value in ("", "-1"):
        why, which, bus = status_of_new_process(value)
        assert why.startswith(f'CUDA_VISIBLE_DEVICES is "{value}", which names no GPU of this machine. Unset it')
        assert not which and not bus


def test_chosen_gpu_of_two_is_used():
    why, which, first = status_of_new_process("0,1")
    if "of 2" not in which:
        pytest.skip(f"one GPU here: {why}")
    assert which == "GPU 0 of 2"
    assert status_of_new_process("1,0")[2] == status_of_new_process("1")[2] != first


def test_this_gpu_supports_every_recorded_rung():
    if driver.find().capability < (9, 0):
        pytest.skip("an older GPU than that of the recordings")
    for ladder in LADDERS.values():
        shape = next(iter(ladder.presets.values())).shape
        for rung in availability.supported_rungs(ladder, "cuda", shape):
            why = cuda.refusal(rung, shape, rung.default_tiles)
            assert not why or "pip install" in why, rung.name


@pytest.fixture
def fill_memory():
    """A function that starts another process, which leaves only the given bytes of the GPU's memory free."""
    processes = []

    def fill(left: int) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", FILL, str(left)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout.readline() == "held\n"

    yield fill
    for process in processes:
        process.communicate()


@pytest.mark.parametrize("left_mib", [32, 800])
def test_full_gpu_is_an_error_with_bytes_and_the_next_run_works(fill_memory, left_mib):
    """With 32 MiB not even a context fits; with 800 one does, and perhaps the toy, with or without ceilings."""
    worker = Worker(deadline_s=60)
    try:
        fill_memory(left_mib << 20)
        try:
            (row,) = worker.submit(TOY).result(60)
            assert left_mib == 800 and row["median_ms"] > 0
        except JobError as e:
            assert "the GPU's memory is full" in str(e) or "bytes are free" in str(e), str(e)
        (row,) = worker.submit(Request(TOY.rungs, TOY.shape, engine="cpu", seconds=0.05)).result(60)
        assert row["engine"] == "cpu"
    finally:
        worker.close()
