"""The memory instructions of the cases' machine code: they help to explain a counter that differs from the hardware's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.compiling import in_processes
from benchmarks.hardware_case import Case
from kernels import sources
from kernels.engines import cuda_headers

Kernel = tuple[str, str, tuple[tuple[str, int], ...]]  # source, entry, defines
_MEMORY = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+((?:@!?U?P\w+\s+)?(?!LDC|LDGDEPBAR)(?:LD|ST|ATOM|RED)[A-Z]*(?:\.\w+)*\s[^;]*)"
)


def compile_all(chosen: Iterable[Case], report: Callable[[Kernel], str] | None = None) -> str:
    """Compile each kernel into CuPy's cache on disk, several at a time. Returns the texts of `report`, by default
    `listing`."""
    kernels = dict.fromkeys((c.launch.source, c.launch.entry, c.launch.defines) for c in chosen)
    return "\n".join(in_processes(report or listing, list(kernels)))


def compile_one(kernel: Kernel) -> str:
    """Compile a kernel into CuPy's cache on disk and return its name."""
    from kernels.engines.cuda import compile_kernel

    compile_kernel(*kernel)
    return kernel_name(kernel)


def kernel_name(kernel: Kernel) -> str:
    source, _, defines = kernel
    return " ".join((f"== {source}", *(f"-D{name}={value}" for name, value in defines)))


def listing(kernel: Kernel) -> str:
    """Compile a kernel for this machine's GPU and return its memory instructions: counts, then a list."""
    try:
        compile_one(kernel)
        instructions = memory_instructions(_disassemble(kernel))
    except Exception as e:  # the counters matter more than the listing
        return f"{kernel_name(kernel)}\nno disassembly: {type(e).__name__}: {e}\n"
    kinds = Counter(re.sub(r"^@\S+\s+", "", text).split()[0] for text in instructions)
    counted = (f"{n:4} {kind}" for kind, n in sorted(kinds.items()))
    return "\n".join((kernel_name(kernel), *counted, *(f"       {text}" for text in instructions))) + "\n"


def memory_instructions(sass: str) -> list[str]:
    """Returns the loads, stores and atomics of a disassembly, in order."""
    return [" ".join(text.split()) for text in _MEMORY.findall(sass)]


def tool(name: str) -> str | None:
    """Returns the path of a program of the CUDA toolkit: from PATH, or from a folder where the toolkit may be."""
    import cupy

    homes = (
        os.environ.get("CUDA_HOME"),
        os.environ.get("CUDA_PATH"),
        cupy.cuda.get_cuda_path(),
        cuda_headers.DEFAULT_TOOLKIT,
    )
    folders = (str(Path(home) / "bin") for home in homes if home)
    return shutil.which(name) or next((f for place in folders if (f := shutil.which(name, path=place))), None)


def _disassemble(kernel: Kernel) -> str:
    from cupy.cuda import compiler

    source, _, defines = kernel
    text = sources.translation_unit(source)
    options = ("--std=c++17", *(f"-D{name}={value}" for name, value in defines), *cuda_headers.options(text))
    cubin, _ = compiler.compile_using_nvrtc(text, options=options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin + b"\0" * (-len(cubin) % 8))  # CuPy drops the last byte like a string's end
        nvdisasm = tool("nvdisasm")
        command = [nvdisasm, "-c", str(path)] if nvdisasm else [tool("cuobjdump") or "cuobjdump", "-sass", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
