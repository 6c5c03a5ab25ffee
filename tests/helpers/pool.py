"""A pool of real processes on this machine: a Dask scheduler and workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.children import gpu_worker
from tests.children.helpers import until as until_soon

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0  # of a busy machine: the imports of four processes


def until(true, seconds: float = PATIENCE_S) -> None:
    until_soon(true, seconds)


def begun(job) -> None:
    """Waits until a machine works on the job."""
    until(lambda: job.done or "verifying" in job.text)
    assert not job.done, job.result(0)


def start(module: str, *options: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{module}", *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"} | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Machines:
    """A scheduler and workers."""

    def __init__(self, folder: Path):
        file = folder / "scheduler.json"
        self.scheduler = start("dask_scheduler", "--port", "0", "--scheduler-file", str(file), "--no-dashboard")
        until(lambda: file.exists() and file.read_text())
        self.address = json.loads(file.read_text())["address"]
        self.folder, self.workers = folder, []

    def worker(self, device: str = "") -> subprocess.Popen:
        """Starts a worker. device: "NVIDIA H200 9.0", the GPU that its machine seems to have
        (tests.children.gpu_worker)."""
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--resources", "GPU=1"]
        options += ["--preload", gpu_worker.__name__] if device else []
        environment = {gpu_worker.DEVICE: device} if device else {}
        scratch = ["--local-directory", str(self.folder)]
        self.workers.append(start("dask_worker", self.address, *options, *scratch, **environment))
        return self.workers[-1]

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@contextmanager
def running(folder: Path, *devices: str) -> Iterator[Machines]:
    """Yields a pool with a worker for each device, "" for one without a GPU."""
    pytest.importorskip("distributed", reason="no dask.distributed here: pip install distributed")
    machines = Machines(folder)
    try:
        for device in devices:
            machines.worker(device)
        yield machines
    finally:
        machines.close()
