"""The GPU that the cuda engine uses: whether it can be used, its free memory, its stream."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from kernels.i18n import cached, tr
from kernels.libraries import wheels
from kernels.machine import driver as machine_driver
from kernels.machine import elsewhere
from kernels.machine.status import Status
from kernels.model import values
from kernels.model.program import RefusedError, RuleError

CONTEXT_MIB = 600  # about the size of a context
SMI_S = 10  # nvidia-smi takes seconds if the driver is loaded for it


def status() -> Status:
    """Returns the GPU's name, or why it, CuPy or NVRTC cannot be used, on the machine that the reader's runs go to. CuPy is
    not imported, which takes a second: a server calls this at every rerun."""
    there = elsewhere.chosen()
    return there.status() if there else status_here()


@cached(machine_driver.LANGUAGES)
def status_here() -> Status:
    """Returns the same of this machine."""
    gpu = machine_driver.find()
    if isinstance(gpu, machine_driver.GpuUnavailable):
        return Status(ready=False, text=gpu.text, advice=gpu.advice)
    if importlib.util.find_spec("cupy") is None:
        return Status(
            ready=False,
            text=tr("CuPy is not installed"),
            advice=tr("pip install {wheel} installs it", wheel=f"cupy-cuda{machine_driver.CUDA}x"),
        )
    if wheels.missing("nvrtc"):
        name, wheel = wheels.WHEELS["nvrtc"]
        return Status(
            ready=False,
            text=tr("{library} was not found on this machine", library=tr(name)),
            advice=tr("pip install {wheel} installs it", wheel=wheel),
        )
    which = tr("GPU {n} of {count}", n=machine_driver.GPU, count=gpu.count) if gpu.count > 1 else ""
    return Status(ready=True, text=gpu.name, which=which)


def device_name() -> str:
    return status().text


@cache
def load() -> ModuleType:
    """Returns CuPy. RuleError if it does not load."""
    try:
        import cupy
    except Exception as e:  # a broken installation raises anything
        message = next((line for line in reversed(str(e).splitlines()) if line.strip("= ")), type(e).__name__)
        raise RuleError(
            f"CuPy does not load; pip install --force-reinstall cupy-cuda{machine_driver.CUDA}x repairs it ({message.strip()})"
        ) from None
    return cupy


def free_bytes() -> int:
    """Returns the free bytes of the GPU's memory. RuleError if not even a context fits into it."""
    cupy = load()
    try:
        return cupy.cuda.Device().mem_info[0]
    except cupy.cuda.runtime.CUDARuntimeError as e:
        used, total, left = smi("memory.used", "memory.total", "memory.free")
        # A GPU too full for a context reports that it is busy (seen on an H200 with 32 MiB left, CUDA 13.2).
        full = "cudaErrorDevicesUnavailable" in str(e) and left is not None and left < CONTEXT_MIB
        if not full and "cudaErrorMemoryAllocation" not in str(e):
            raise
    used_text = f"{used:,} of {total:,} MiB" if used and total else "all of it"
    raise RuleError(f"the GPU's memory is full: other programs hold {used_text}; nvidia-smi lists them")


@contextmanager
def refused_when_full() -> Iterator[None]:
    """Turn an out-of-memory error of CuPy or PyTorch into a RefusedError with the free bytes."""
    try:
        yield
    except (MemoryError, RuntimeError) as e:
        if type(e).__name__ != "OutOfMemoryError":
            raise
        message = str(e).partition("\n")[0].rstrip(".")
        raise RefusedError(f"the GPU's memory is full, {free_bytes():,} bytes are free ({message})") from None


@cache
def own_stream():
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def poison(array, stream) -> None:
    """Fill an array with NaN, an integer array with a number far below any result."""
    array.data.memset_async(0x80 if values.is_whole(array.dtype) else 0xFF, array.nbytes, stream)


def clear(array, stream) -> None:
    """Fill an array with zeros."""
    array.data.memset_async(0, array.nbytes, stream)


def smi(*fields: str) -> list[Any]:
    """Returns what nvidia-smi reports about the GPU in use, integers as int. A field that it does not know is None; all
    are None if it is missing or does not answer."""
    unknown: list[Any] = [None] * len(fields)
    gpu = machine_driver.find()
    if isinstance(gpu, machine_driver.GpuUnavailable):
        return unknown
    query = [f"--id={gpu.bus}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        ran = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, timeout=SMI_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return unknown
    values = [value.strip() for value in ran.stdout.split(",")]
    if ran.returncode or len(values) != len(fields):
        return unknown
    return [int(v) if v.isdigit() else None if v.startswith("[") else v for v in values]
