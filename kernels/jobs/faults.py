"""Explanations of GPU errors: what happened and what to try, by the error's name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernels.machine import driver


@dataclass(frozen=True)
class Meaning:
    """An explanation of GPU errors. `names`: those of the runtime (cudaError...) and of the driver (CUDA_ERROR_...),
    without these prefixes."""

    names: tuple[str, ...]
    what: str
    advice: str


EMULATE = "run it on the emulator, which names the line and the thread"
SMALLER = "take a smaller shape or batch"
TILES = "choose smaller tiles or blocks"
DRIVER = f"install NVIDIA {driver.MIN_DRIVER}"

MEANINGS = (
    Meaning(
        ("IllegalAddress", "InvalidAddressSpace", "InvalidPc"),
        "a kernel read or wrote memory that is not its own",
        EMULATE,
    ),
    Meaning(
        ("MemoryAllocation", "OutOfMemory", "OutOfMemoryError", "AllocFailed"), "the GPU's memory is full", SMALLER
    ),
    Meaning(
        ("LaunchOutOfResources",), "a block asks for more registers or shared memory than the GPU has for one", TILES
    ),
    Meaning(
        ("InvalidConfiguration", "InvalidValue"),
        "the GPU takes no launch of this grid and block",
        TILES + ", or a smaller shape",
    ),
    Meaning(
        ("NoKernelImageForDevice", "NoBinaryForGpu", "UnsupportedPtxVersion", "InvalidPtx"),
        "the kernel was compiled for another GPU than this one",
        DRIVER,
    ),
    Meaning(("LaunchTimeout",), "the kernel ran longer than a GPU that also draws a screen allows", SMALLER),
    Meaning(("LaunchFailure", "LaunchFailed", "HardwareStackError", "Assert"), "a kernel failed on the GPU", EMULATE),
    Meaning(("IllegalInstruction",), "the GPU met an instruction it does not know", EMULATE),
    Meaning(("MisalignedAddress",), "a kernel read or wrote at an address that is not aligned", EMULATE),
    Meaning(("InsufficientDriver",), "the NVIDIA driver is older than this CUDA", DRIVER),
    Meaning(
        ("SystemDriverMismatch",),
        "the driver's library and its kernel module have different versions",
        "restart the computer",
    ),
    Meaning(
        ("EccUncorrectable", "DevicesUnavailable", "NoDevice", "DeviceUnavailable"),
        "the GPU cannot be used now",
        "wait until other programs are done with it (nvidia-smi lists them), set its compute mode back "
        "(nvidia-smi -c DEFAULT), or restart it",
    ),
    Meaning(
        ("CompileException", "Compilation"),
        "the CUDA C++ does not compile",
        "read the compiler's words below; at the default tiles it does compile",
    ),
)
UNKNOWN = Meaning((), "the GPU reported an error", "try once more, or " + SMALLER)

# Prefixes of error names in the runtime, the driver, NVRTC and cuBLAS.
_PREFIX = re.compile(r"^(cudaError|CUDA_ERROR_|NVRTC_ERROR_|CUBLAS_STATUS_)")
_BY_NAME = {name.lower(): meaning for meaning in MEANINGS for name in meaning.names}
MAX_MESSAGE = 600  # characters of the compiler's or the driver's message


def is_gpu_error(error: BaseException) -> bool:
    """Returns whether the error comes from CuPy or a library under it. Then the process must not be used again."""
    return type(error).__module__.partition(".")[0] in ("cupy", "cupy_backends")


def sentence(error: BaseException, activity: str) -> str:
    """Returns one sentence for the page: what happened, in which rung, what to try, and the error's own message."""
    message = str(error)
    (name,) = re.findall(r"\A\w*", message)
    if not _PREFIX.match(name):  # OutOfMemoryError and CompileException begin with prose
        name = type(error).__name__
    meaning = _BY_NAME.get(_PREFIX.sub("", name).replace("_", "").lower(), UNKNOWN)
    message = message.removeprefix(name).strip(": \n") or type(error).__name__
    if len(message) > MAX_MESSAGE:
        message = message[:MAX_MESSAGE] + " ..."
    return f"{meaning.what}, {activity}; {meaning.advice} ({name}: {message})"
