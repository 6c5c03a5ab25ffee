"""The memory instructions of the cases' machine code, to look at where a counter is not the hardware's."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.hardware_case import Case
from kernels import sources
from kernels.engines import cuda_headers

Kernel = tuple[str, str, tuple[tuple[str, int], ...]]  # source, entry, defines
_MEMORY = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+((?:@!?U?P\w+\s+)?(?!LDC|LDGDEPBAR)(?:LD|ST|ATOM|RED)[A-Z]*(?:\.\w+)*\s[^;]*)"
)


def compile_all(chosen: Iterable[Case], of_each: Callable[[Kernel], str] | None = None) -> str:
    """Each kernel into CuPy's cache on disk, several at a time; what `of_each` (listing, if left out) says of them."""
    kernels = dict.fromkeys((c.launch.source, c.launch.entry, c.launch.defines) for c in chosen)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=context) as pool:
        return "\n".join(pool.map(of_each or listing, kernels))


def compile_one(kernel: Kernel) -> str:
    """Into CuPy's cache on disk; the kernel in words."""
    from kernels.engines.cuda import compile_kernel

    compile_kernel(*kernel)
    return head(kernel)


def head(kernel: Kernel) -> str:
    source, _, defines = kernel
    return " ".join((f"== {source}", *(f"-D{name}={value}" for name, value in defines)))


def listing(kernel: Kernel) -> str:
    """Compiles the kernel for the GPU that is here. Its memory instructions, counted and one by one."""
    try:
        compile_one(kernel)
        found = memory_instructions(_disassemble(kernel))
    except Exception as e:  # the counters matter more than the listing
        return f"{head(kernel)}\nno disassembly: {type(e).__name__}: {e}\n"
    kinds = Counter(re.sub(r"^@\S+\s+", "", text).split()[0] for text in found)
    counted = (f"{n:4} {kind}" for kind, n in sorted(kinds.items()))
    return "\n".join((head(kernel), *counted, *(f"       {text}" for text in found))) + "\n"


def memory_instructions(sass: str) -> list[str]:
    """The loads, stores and atomics of a disassembly, in order."""
    return [" ".join(found.split()) for found in _MEMORY.findall(sass)]


def tool(name: str) -> str | None:
    """A program of the CUDA toolkit: from the PATH, or from where the toolkit may lie."""
    import cupy

    homes = (
        os.environ.get("CUDA_HOME"),
        os.environ.get("CUDA_PATH"),
        cupy.cuda.get_cuda_path(),
        cuda_headers.USUAL,
    )
    places = (str(Path(home) / "bin") for home in homes if home)
    return shutil.which(name) or next((f for place in places if (f := shutil.which(name, path=place))), None)


def _disassemble(kernel: Kernel) -> str:
    from cupy.cuda import compiler

    source, _, defines = kernel
    text = sources.translation_unit(source)
    options = ("--std=c++17", *(f"-D{name}={value}" for name, value in defines), *cuda_headers.options(text))
    cubin, _ = compiler.compile_using_nvrtc(text, options=options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin + b"\0" * (-len(cubin) % 8))  # CuPy takes the last byte for a string's end
        nvdisasm = tool("nvdisasm")
        command = (
            [nvdisasm, "-c", str(path)]
            if nvdisasm
            else [tool("cuobjdump") or "cuobjdump", "-sass", str(path)]
        )
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
