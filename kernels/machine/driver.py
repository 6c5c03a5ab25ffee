"""NVIDIA's driver, called through its own library: the GPU that the cuda engine uses, or why there is none.

No context is created and CuPy is not imported: a server can do this. Names and numbers are those of cuda.h, CUDA 13.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels.i18n import cached, mark, tr
from kernels.model.rung import MIN_CAPABILITY

CUDA = 13  # the major version that requirements.txt brings; any driver of that version runs all of its minor ones
MIN_DRIVER = mark("driver 580 or newer")  # the first of CUDA 13
LANGUAGES = 64  # whose results are cached
GPU = 0  # the first that CUDA sees: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER choose which that is
PCI = Path("/sys/bus/pci/devices")
# CUdevice_attribute
_COMPUTE_MODE, _MAJOR, _MINOR, _SHARED_BLOCK = 20, 75, 76, 97
_PROHIBITED = 2  # CUcomputemode
_NO_DEVICE = 100  # CUresult
RESTART = mark("Restart the computer")
DEVICES = mark("Check that this user may open /dev/nvidia0; start a container with --gpus all")
# CUresult of cuInit: its name without CUDA_ERROR_, what is wrong, what to do
ERRORS: Mapping[int, tuple[str, str, str]] = {
    34: (
        "STUB_LIBRARY",
        mark("the driver library that was found is the stub of a CUDA toolkit"),
        mark("Take its folder out of LD_LIBRARY_PATH and install {driver}"),
    ),
    46: (
        "DEVICE_UNAVAILABLE",
        mark("another program uses the GPU exclusively"),
        mark("Wait until it ends, or run: nvidia-smi -c DEFAULT"),
    ),
    _NO_DEVICE: (
        "NO_DEVICE",
        mark("the NVIDIA driver finds no GPU"),
        mark("nvidia-smi -L lists the GPUs; a GPU in MIG mode needs an instance"),
    ),
    304: ("OPERATING_SYSTEM", mark("the operating system refused a call of the driver"), DEVICES),
    800: ("NOT_PERMITTED", mark("the operating system does not permit the use of the GPU"), DEVICES),
    802: ("SYSTEM_NOT_READY", mark("the GPUs are not ready"), mark("Start NVIDIA's service nvidia-fabricmanager")),
    803: (
        "SYSTEM_DRIVER_MISMATCH",
        mark("the driver's library and its kernel module have different versions"),
        RESTART,
    ),
    804: (
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        mark("CUDA's compatibility package does not support this GPU"),
        mark("Take its folder out of LD_LIBRARY_PATH and install {driver}"),
    ),
    999: (
        "UNKNOWN",
        mark("the NVIDIA driver does not start"),
        mark("Restart the computer; this error often follows sleep or an update"),
    ),
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


def library() -> ctypes.CDLL:
    """Returns the driver's library. OSError if there is none."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


@cached(LANGUAGES)
def find() -> GpuInfo | GpuUnavailable:
    """Returns the GPU, or why none can be used. The search runs once in a process for each language: a driver that is installed later is
    found when the app is started again."""
    try:
        return _gpu_info(library())
    except OSError:
        return _without_library()
    except AttributeError as e:  # from ctypes: the library has no such function
        return GpuUnavailable(tr("the driver library that was found is not NVIDIA's ({error})", error=e), _install())
    except GpuUnavailable as e:
        return e


def _gpu_info(driver: ctypes.CDLL) -> GpuInfo:
    if code := driver.cuInit(0):
        raise _refusal(code)
    count, version = ctypes.c_int(), ctypes.c_int()
    if code := driver.cuDeviceGetCount(ctypes.byref(count)):
        raise _refusal(code)
    if not count.value:
        raise _refusal(_NO_DEVICE)
    if driver.cuDriverGetVersion(ctypes.byref(version)) or version.value < 1000 * CUDA:
        supports = f"{version.value // 1000}.{version.value % 1000 // 10}"
        raise GpuUnavailable(
            tr("the NVIDIA driver supports CUDA {version}", version=supports),
            tr("This app needs {driver}", driver=tr(MIN_DRIVER)),
        )
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
        fields = {"cuda": CUDA, "capability": dotted(MIN_CAPABILITY)}
        raise GpuUnavailable(
            tr("{gpu} has compute capability {capability}", gpu=found.name, capability=dotted(found.capability)),
            tr("CUDA {cuda} needs {capability} or newer; CUDA_VISIBLE_DEVICES chooses another GPU", **fields)
            if found.count > 1
            else tr("CUDA {cuda} needs {capability} or newer", **fields),
        )
    if _attribute(driver, _COMPUTE_MODE) == _PROHIBITED:
        raise GpuUnavailable(tr("the GPU's compute mode prohibits programs"), tr("Run: nvidia-smi -c DEFAULT"))
    return found


def _refusal(code: int) -> GpuUnavailable:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if code == _NO_DEVICE and visible is not None:
        return GpuUnavailable(
            tr('CUDA_VISIBLE_DEVICES is "{value}", which names no GPU of this machine', value=visible),
            tr("Unset it, or name a GPU"),
        )
    if code == _NO_DEVICE and not _on_bus():
        return GpuUnavailable(tr("no NVIDIA GPU in this machine"))
    if code not in ERRORS:
        return GpuUnavailable(
            tr("the NVIDIA driver does not start: cuInit gives error {code}", code=code),
            tr("Run nvidia-smi: it tests the same driver"),
        )
    name, text, advice = ERRORS[code]
    return GpuUnavailable(f"{tr(text)} (CUDA_ERROR_{name})", tr(advice, driver=tr(MIN_DRIVER)))


def _install() -> str:
    return tr("Install {driver}", driver=tr(MIN_DRIVER))


def _without_library() -> GpuUnavailable:
    if _on_bus():
        return GpuUnavailable(
            tr("this machine has an NVIDIA GPU, but its driver is not installed"),
            tr("Install {driver}; start a container with --gpus all", driver=tr(MIN_DRIVER)),
        )
    return GpuUnavailable(tr("no NVIDIA GPU in this machine"))


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


def _attribute(driver: ctypes.CDLL, number: int) -> int | None:
    value = ctypes.c_int()
    failed = driver.cuDeviceGetAttribute(ctypes.byref(value), number, GPU)
    return None if failed else value.value


def total_bytes() -> int | None:
    """Returns the bytes of that GPU's memory; None if the driver does not report them."""
    total = ctypes.c_size_t()
    failed = library().cuDeviceTotalMem_v2(ctypes.byref(total), GPU)
    return None if failed else total.value
