"""CUDA's own headers (mma.h, cuda_fp16.h, cuda/atomic): their folders here, and advice if a header is missing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

DEFAULT_TOOLKIT = "/usr/local/cuda"  # where toolkits are installed on Linux
_INCLUDE = re.compile(r"(#|%:)\s*include")
_NOT_FOUND = re.compile(r'open source file "([^"]+)"')  # part of the compiler's message
# How the names of headers in NVIDIA's wheels begin. cooperative_groups.h includes headers of CCCL.
_CUDA_HEADER = re.compile(
    r"(cu(da|Complex)|cooperative_groups|mma\.h|crt/|nv/|cub/|thrust/|vector_|device_|sm_\d|math_)"
)
_CURAND_HEADER = re.compile(r"curand")
HOST_CODE_ERROR = "not allowed in JIT mode"  # part of the compiler's message
_DYNAMIC = "device-side kernel launch"
_CLUSTERS = re.compile(r'__cluster_dims__ is not supported|has no member "(this_cluster|cluster_group)"')
_GUARD = "between #ifndef __CUDACC_RTC__ and #endif"


@cache
def folders() -> tuple[Path, ...]:
    """Returns the folders of CUDA's headers: those of NVIDIA's wheels, then those of an installed toolkit.

    Each is followed by its folder of CCCL (libcu++, CUB, Thrust), which is separate in CUDA 13.
    """
    found = dict.fromkeys(path for path in (*_wheels(), *_toolkits()) if (path / "mma.h").is_file())
    return tuple(path for root in found for path in (root, root / "cccl") if path.is_dir())


def _wheels() -> Iterator[Path]:
    try:
        import nvidia
    except ImportError:
        return
    for folder in nvidia.__path__:
        yield from sorted(Path(folder).glob("cu*/include"))


def _toolkits() -> Iterator[Path]:
    nvcc = shutil.which("nvcc")
    roots = (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).parents[1])
    for root in (*roots, DEFAULT_TOOLKIT):
        if root:
            yield Path(root) / "include"


def options(text: str) -> tuple[str, ...]:
    """Return -I for each folder if a translation unit includes a file, else nothing."""
    return tuple(f"-I{path}" for path in folders()) if _INCLUDE.search(text) else ()


def with_advice(log: str) -> str:
    """Returns the compiler's log. Advice precedes it if a header was not found, or if the log rejects host code."""
    if missing := _NOT_FOUND.search(log):
        return f"{_advice(missing[1])}\n{log}"
    if HOST_CODE_ERROR in log:
        return f"Only device code is compiled: put the host's functions {_GUARD}.\n{log}"
    if _DYNAMIC in log:
        return (
            f"A launch from device code (dynamic parallelism) is not emulated: launch each kernel from the host.\n{log}"
        )
    if _CLUSTERS.search(log):
        return f"Clusters exist from sm_90 on: --arch sm_90.\n{log}"
    return log


def _advice(header: str) -> str:
    """Returns what to do about a header that was not found."""
    if _CURAND_HEADER.match(header):
        return f"{header} was not found. It comes by pip install nvidia-curand."
    if _CUDA_HEADER.match(header):
        return (
            f"{header} was not found. CUDA's headers come with its toolkit (set CUDA_PATH to its folder) or by "
            "pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl."
        )
    guard = f"put the #include and the code that uses it {_GUARD}"
    if "." not in header and "/" not in header:
        return f"{header} was not found. It is a C++ header of the host, which NVRTC does not have: {guard}."
    return f"{header} was not found in a folder given by -I. If it is a header of the host, {guard}."
