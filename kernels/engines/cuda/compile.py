"""CUDA C++ compiled for this GPU, by NVRTC through CuPy."""

from __future__ import annotations

from functools import lru_cache

from kernels import sources
from kernels.engines import cuda_headers
from kernels.libraries import wheels
from kernels.model.program import RuleError


@lru_cache(maxsize=sources.MAX_CACHED)
def compile_kernel(source: str, entry: str, defines: tuple[tuple[str, int], ...]):
    """Returns the compiled entry point. RuleError with the compiler's message if it does not compile, or if NVRTC is
    missing."""
    import cupy

    if why := wheels.missing("nvrtc"):
        raise RuleError(why)
    text = sources.translation_unit(source)
    defined = (f"-D{name}={value}" for name, value in defines)
    target = ("-arch=sm_90a",) if sources.needs_hopper(source) else ()
    options = ("--std=c++17", *target, *defined, *cuda_headers.options(text))
    module = cupy.RawModule(code=text, options=options, enable_cooperative_groups=sources.needs_whole_grid(source))
    try:
        return module.get_function(entry)
    except cupy.cuda.compiler.CompileException as e:
        raise RuleError(f"{source} does not compile:\n{cuda_headers.with_advice(str(e))}") from None
