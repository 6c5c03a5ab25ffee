"""Preloaded by a worker of a pool: its machine seems to have the GPU that CARD names, "NVIDIA H200 9.0".

The driver's library is a stand-in (kernels.machine.driver.library): what the app finds out of a GPU is found out of it. The
child that would execute kernels on that GPU is another one, whose rows have invented times.
"""

from __future__ import annotations

import os

from kernels.jobs import pool
from kernels.machine import driver
from tests.children.driver import H200, Driver

DEVICE = "KERNEL_THEATRE_TEST_DEVICE"
CHILD = "tests.children.gpu_rows"


def seem_to_have(device: str) -> None:
    name, _, capability = device.rpartition(" ")
    major, minor = map(int, capability.split("."))
    driver.library = lambda: Driver(name=name.encode(), attributes=H200 | {75: major, 76: minor})


def dask_setup(worker) -> None:
    """Called by Dask in the process of a worker."""
    seem_to_have(os.environ[DEVICE])
    local = pool.Worker
    pool.Worker = lambda deadline_s, child: local(deadline_s, CHILD)
