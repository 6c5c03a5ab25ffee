"""A simulated machine with an NVIDIA GPU, cuDNN and PyTorch, so that its pages can be tested without one.

Nothing runs on it. Its rows have the form of measured rows, with invented times.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

from kernels.engines import cuda
from kernels.engines.protocol import ALLOCATED, memory_of
from kernels.jobs.job import Request
from kernels.ladders import find, ladder_of
from kernels.libraries import cudnn, wheels
from kernels.libraries import torch as torch_library
from kernels.machine import driver
from kernels.machine.status import Status
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Program
from kernels.model.result import Measurement, Result
from kernels.model.rung import Rung
from kernels.records import unsupported
from kernels.records.row import row
from tests.children.driver import Driver

DEVICE = os.environ.get("KERNEL_THEATRE_TEST_DEVICE", "NVIDIA Pretence 0").rpartition(" ")[0]
CEILINGS = {
    "copy_bytes_per_s": 4e12,
    "copy_n": 20,
    "copy": "device to device, 1024 MiB",
    "fp32_flops_per_s": 5e13,
    "fp32_n": 19,
    "fp32": "FMA kernel",
    "launch_us": 1.4,
    "launch_n": 18,
    "launch": "empty kernel, queued",
    "launch_sync_us": 11.0,
    "cache_bytes": 50 * 2**20,
    "device": DEVICE,
    "date": "2026-01-02",
}
# Versions of a driver and libraries that are installed. nvidia-smi is not, so the clocks are unknown.
CONDITIONS = {
    "driver": None,
    "cuda": "13.0",
    "cublas": "13.1.0",
    "cufft": "12.0.0",
    "cudnn": "9.19.0",
    "torch": "2.11.0",
    "cupy": "14.2.0",
    "numpy": "2.4.0",
    "clock_sm_mhz": None,
    "clock_memory_mhz": None,
    "event_floor_ms": 0.001,
    "clock_sm_mhz_after": None,
    "clock_memory_mhz_after": None,
    "ceilings": CEILINGS,
}
RUNS = itertools.count()
COPIES = {"h2d_pageable": 0.4, "d2h_pageable": 0.2, "h2d_pinned": 0.1, "d2h_pinned": 0.05, "n": 11}


def replacements() -> Iterator[tuple[Any, str, Callable]]:
    """Yields (module, name, replacement) of every function that detects the machine's GPU and libraries."""
    yield driver, "library", lambda: Driver(name=DEVICE.encode())
    yield driver, "find", driver.find.__wrapped__  # its cached result is of another machine
    yield cuda, "status", lambda: Status(True, DEVICE)
    yield wheels, "missing", lambda library: ""
    yield cudnn, "load", lambda: None
    yield torch_library, "find", lambda: None


def rows(request: Request) -> list[dict[str, Any]]:
    """Returns the rows of a run of the request: a row per rung, or why its library does not support the shape."""
    fastest_ms = 0.01 + 1e-5 * next(RUNS)  # two runs differ, as on a GPU
    rungs = [find(name) for name in request.rungs]
    return [_row(n * 0.01 + fastest_ms, rung, request) for n, rung in enumerate(rungs)]


def _row(ms: float, rung: Rung, request: Request) -> dict[str, Any]:
    recorded = unsupported.recorded(rung.name, request.shape)
    if recorded:
        return {"rung": rung.name, "unsupported": recorded["said"]}
    ladder = ladder_of(rung.name)
    tiles = {name: value for name, value in request.tiles.items() if name in rung.tiles}
    all_tiles = rung.check(request.shape, tiles | dict(request.tiles.get(rung.name, {})))
    program = rung.build(request.shape, all_tiles)
    result = Result(
        rung.name,
        request.engine or "cuda",
        ladder.shape(**request.shape.params()),
        all_tiles,
        None,
        1e-7,
        _measurement(ms, program, request.mode),
        rung.cost(request.shape, program),
    )
    return row(result, program, "unknown")


def _measurement(ms: float, program: Program, mode: str) -> Measurement:
    """Returns a measurement of a program whose n samples spread by 2 % from `ms`."""
    stages, allocated = [], dict.fromkeys((INPUT, OUTPUT, WORKSPACE), 0)
    for role, at in ALLOCATED.items():
        if program.of_role(role):
            allocated[role] = program.nbytes(role)
            stages.append({"at": at, **allocated})
    stages += [{"at": step.name, **allocated} for step in program.steps]
    steps = program.steps if len(program.steps) > 1 else ()
    return Measurement(
        samples_ms=tuple(ms * (1 + 0.001 * i) for i in range(21)),
        mode=mode,
        memory=memory_of(allocated, stages),
        device=DEVICE,
        parts_ms=tuple((step.name, ms / len(steps)) for step in steps),
        conditions=CONDITIONS | {"queued": "3 of 21"},
        copies_ms=COPIES,
    )
