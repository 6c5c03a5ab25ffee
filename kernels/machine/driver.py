"""NVIDIA's driver, called through its own library: the GPU that the cuda engine uses, or why there is none.

No context is created and CuPy is not imported: a server can do this. Names and numbers are those of cuda.h, CUDA 13.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels.model.rung import MIN_CAPABILITY

CUDA = 13  # the major version that requirements.txt brings; any driver of that version runs all of its minor ones
MIN_DRIVER = "driver 580 or newer"  # the first of CUDA 13
GPU = 0  # the first that CUDA sees: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER choose which that is
PCI = Path("/sys/bus/pci/devices")
# CUdevice_attribute
_COMPUTE_MODE, _MAJOR, _MINOR, _SHARED_BLOCK = 20, 75, 76, 97
_PROHIBITED = 2  # CUcomputemode
_NO_DEVICE = 100  # CUresult
RESTART = "Restart the computer"
DEVICES = "Check that this user may open /dev/nvidia0; start a container with --gpus all"
# CUresult of cuInit: its name without CUDA_ERROR_, what is wrong, what to do
ERRORS: Mapping[int, tuple[str, str, str]] = {
    34: (
        "STUB_LIBRARY",
        "the driver library that was found is the stub of a CUDA toolkit",
        f"Take its folder out of LD_LIBRARY_PATH and install {MIN_DRIVER}",
    ),
    46: (
        "DEVICE_UNAVAILABLE",
        "another program has the GPU for itself",
        "Wait until it ends, or run: nvidia-smi -c DEFAULT",
    ),
    _NO_DEVICE: (
        "NO_DEVICE",
        "the NVIDIA driver finds no GPU",
        "nvidia-smi -L lists the GPUs; one in MIG mode needs an instance",
    ),
    304: ("OPERATING_SYSTEM", "the operating system refuses the driver a call", DEVICES),
    800: ("NOT_PERMITTED", "the operating system does not permit the use of the GPU", DEVICES),
    802: ("SYSTEM_NOT_READY", "the GPUs are not ready", "Start NVIDIA's service nvidia-fabricmanager"),
    803: (
        "SYSTEM_DRIVER_MISMATCH",
        "the driver's library and its kernel module have different versions",
        RESTART,
    ),
    804: (
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "CUDA's compatibility package does not support this GPU",
        f"Take its folder out of LD_LIBRARY_PATH and install {MIN_DRIVER}",
    ),
    999: ("UNKNOWN", "the NVIDIA driver does not start", f"{RESTART}; often that follows sleep or an update"),
}


class GpuUnavailable(Exception):
    """Why no GPU can be used: `text` says what is wrong, `advice` what to do, "" if nothing can be done."""

    def __init__(self, text: str, advice: str = ""):
        super().__init__(text)
        self.text, self.advice = text, advice


@dataclass(frozen=True)
class GpuInfo:
    """The GPU in use. `bus`: its PCI address, which nvidia-smi uses too; `shared_bytes`: the maximum for one block;
    `count`: how many GPUs CUDA sees."""

    name: str
    count: int
    bus: str
    capability: tuple[int, int]
    shared_bytes: int


def library() -> Any:
    """Returns the driver's library. OSError if there is none."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


@cache
def find() -> GpuInfo | GpuUnavailable:
    """Returns the GPU, or why none can be used. The search runs once in a process: a driver that is installed later is
    found when the app is started again."""
    try:
        return _gpu_info(library())
    except OSError:
        return _without_library()
    except AttributeError as e:  # from ctypes: the library has no such function
        return GpuUnavailable(
            f"the driver library that was found is not NVIDIA's ({e})", f"Install {MIN_DRIVER}"
        )
    except GpuUnavailable as e:
        return e


def _gpu_info(driver: Any) -> GpuInfo:
    if code := driver.cuInit(0):
        raise _refusal(code)
    count, version = ctypes.c_int(), ctypes.c_int()
    if code := driver.cuDeviceGetCount(ctypes.byref(count)):
        raise _refusal(code)
    if not count.value:
        raise _refusal(_NO_DEVICE)
    if driver.cuDriverGetVersion(ctypes.byref(version)) or version.value < 1000 * CUDA:
        supports = f"{version.value // 1000}.{version.value % 1000 // 10}"
        raise GpuUnavailable(f"the NVIDIA driver supports CUDA {supports}", f"This app needs {MIN_DRIVER}")
    name, bus = (ctypes.create_string_buffer(256) for _ in range(2))
    driver.cuDeviceGetName(name, len(name), GPU)
    driver.cuDeviceGetPCIBusId(bus, len(bus), GPU)
    found = GpuInfo(
        name.value.decode(),
        count.value,
        bus.value.decode(),
        (_attribute(driver, _MAJOR) or 0, _attribute(driver, _MINOR) or 0),
        _attribute(driver, _SHARED_BLOCK) or 0,
    )
    if found.capability < MIN_CAPABILITY:
        another = "; CUDA_VISIBLE_DEVICES chooses another GPU" if found.count > 1 else ""
        raise GpuUnavailable(
            f"{found.name} has compute capability {dotted(found.capability)}",
            f"CUDA {CUDA} needs {dotted(MIN_CAPABILITY)} or newer{another}",
        )
    if _attribute(driver, _COMPUTE_MODE) == _PROHIBITED:
        raise GpuUnavailable("the GPU's compute mode prohibits programs", "Run: nvidia-smi -c DEFAULT")
    return found


def _refusal(code: int) -> GpuUnavailable:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if code == _NO_DEVICE and visible is not None:
        return GpuUnavailable(
            f'CUDA_VISIBLE_DEVICES is "{visible}", which names no GPU of this machine',
            "Unset it, or name a GPU",
        )
    if code == _NO_DEVICE and not _on_bus():
        return GpuUnavailable("no NVIDIA GPU in this machine")
    if code not in ERRORS:
        return GpuUnavailable(
            f"the NVIDIA driver does not start: cuInit gives error {code}",
            "Run nvidia-smi: it tests the same driver",
        )
    name, text, advice = ERRORS[code]
    return GpuUnavailable(f"{text} (CUDA_ERROR_{name})", advice)


def _without_library() -> GpuUnavailable:
    if _on_bus():
        return GpuUnavailable(
            "this machine has an NVIDIA GPU, but its driver is not installed",
            f"Install {MIN_DRIVER}; start a container with --gpus all",
        )
    return GpuUnavailable("no NVIDIA GPU in this machine")


def _on_bus() -> bool:
    """Returns whether Linux lists a display controller of NVIDIA's, with or without a driver; False on other systems."""
    for device in PCI.glob("*"):
        try:
            vendor, kind = ((device / name).read_text(encoding="ascii") for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor.strip() == "0x10de" and kind.startswith("0x03"):
            return True
    return False


def dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


# -- what the GPU reports ------------------------------------------------------------------------------
def attribute(number: int) -> int | None:
    """Returns a CUdevice_attribute of the GPU that `find` found; None if its driver does not know it."""
    return _attribute(library(), number)


def _attribute(driver: Any, number: int) -> int | None:
    value = ctypes.c_int()
    failed = driver.cuDeviceGetAttribute(ctypes.byref(value), number, GPU)
    return None if failed else value.value


def total_bytes() -> int | None:
    """Returns the bytes of that GPU's memory; None if the driver does not report them."""
    total = ctypes.c_size_t()
    failed = library().cuDeviceTotalMem_v2(ctypes.byref(total), GPU)
    return None if failed else total.value
