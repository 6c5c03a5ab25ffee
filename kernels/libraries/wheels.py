"""CUDA's libraries: where they are on this machine, and which wheel installs a missing one."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from functools import cache
from pathlib import Path

from kernels.i18n import cached, mark, tr
from kernels.machine import elsewhere
from kernels.machine.driver import CUDA, LANGUAGES
from kernels.model.program import LibraryCall, Program, RefusedError

# Name and wheel of each library, by cuda.pathfinder's key. CuPy finds NVRTC by it too.
WHEELS = {
    "nvrtc": (mark("NVRTC, CUDA's compiler,"), "nvidia-cuda-nvrtc"),
    "cublas": ("cuBLAS", "nvidia-cublas"),
    "cufft": ("cuFFT", "nvidia-cufft"),
}


@cached(8 * LANGUAGES)
def missing(library: str) -> str:
    """Returns why a library cannot be used here, and what installs it; "" if it can. The library of a wheel is not
    loaded, so a server may call this."""
    if _in_wheel(library):
        return ""
    try:
        load(library)
    except RefusedError as e:
        return str(e)
    return ""


def refusal(program: Program) -> str:
    """Returns why a library that a program calls cannot be used on the machine that the reader's runs go to, and what
    installs it; "" if each can. The rules of their own rungs look for cuDNN and PyTorch."""
    libraries = {step.routine.partition("_")[0] for step in program.steps if isinstance(step, LibraryCall)}
    there = elsewhere.chosen()
    why = (lambda name: there.libraries.get(name, "")) if there else missing
    return "; ".join(filter(None, map(why, sorted(libraries & WHEELS.keys()))))


@cache
def load(library: str) -> ctypes.CDLL:
    """Returns the library. RefusedError names its wheel if it is missing, or the reason if it does not load."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib(library).abs_path)
    except Exception as e:  # a file that exists but does not load raises various errors
        name, wheel = WHEELS[library]
        if isinstance(e, ImportError) or type(e).__name__ == "DynamicLibNotFoundError":
            message = tr(
                "{library} was not found on this machine; pip install {wheel} installs it",
                library=tr(name),
                wheel=wheel,
            )
        else:
            error = (str(e) or type(e).__name__).splitlines()[0]
            message = tr("{library} does not load on this machine: {error}", library=tr(name), error=error)
        raise RefusedError(message) from None


def _in_wheel(library: str) -> bool:
    found = importlib.util.find_spec("nvidia")
    file = f"bin/**/{library}64_*.dll" if sys.platform == "win32" else f"lib/lib{library}.so.*"
    folders = (found.submodule_search_locations if found else None) or ()
    return any(True for folder in folders for _ in Path(folder).glob(f"cu{CUDA}/{file}"))
