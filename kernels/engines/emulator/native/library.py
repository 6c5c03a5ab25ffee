"""Machine code of handlers, compiled by LLVM for this processor, each when a kernel first needs it, and kept in a cache of files.

LLVM comes with llvmlite. Without it (in a browser) NumPy executes everything.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from kernels.engines.emulator.cache import cache_folder, keep

Build = Callable[[], str]  # LLVM's intermediate code of a handler, whose function has the handler's name
BASE = "base"  # the module with `run` and what handlers call


def is_available() -> bool:
    return find_spec("llvmlite") is not None


class Library:
    """Compiled handlers: `addresses` by name. `run` is the function of `warps`."""

    def __init__(self):
        from llvmlite import binding

        from kernels.engines.emulator.native import counting, racing

        self._binding = binding
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        cpu, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
        self._machine = binding.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=2)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), self._machine)
        self._folder = cache_folder("native") / _digest(cpu, features, str(binding.llvm_version_info))
        self.addresses: dict[str, int] = {}
        self.add({BASE: lambda: _base()})
        for name in (*counting.NAMES, *racing.NAMES):
            binding.add_symbol(name, self._engine.get_function_address(name))
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        self.run, self.run_blocks = (signature(self._engine.get_function_address(n)) for n in ("run", "run_blocks"))

    def add(self, handlers: Mapping[str, Build]) -> None:
        """Compile handlers, or load them from the cache."""
        new = [name for name in handlers if name not in self.addresses]
        for name in new:
            path = self._folder / f"{name}.o"
            try:
                code = path.read_bytes()
            except OSError:
                code = self._compiled(handlers[name]())
                keep(path, code)
            self._engine.add_object_file(self._binding.ObjectFileRef.from_data(code))
        if new:
            self._engine.finalize_object()
        for name in new:
            self.addresses[name] = self._engine.get_function_address("run" if name == BASE else name)

    def _compiled(self, text: str) -> bytes:
        module = self._binding.parse_assembly(text)
        options = self._binding.create_pipeline_tuning_options(speed_level=1)
        passes = self._binding.create_pass_builder(self._machine, options)
        passes.getModulePassManager().run(module, passes)
        return self._machine.emit_object(module)


def _base() -> str:
    """Returns the code of what all kernels share."""
    from llvmlite import ir

    from kernels.engines.emulator.native import blocks, counting, racing, warps

    module = ir.Module()
    counting.add_to(module)
    racing.add_to(module)
    blocks.add_to(module, warps.add_to(module))
    return str(module)


@cache
def library() -> Library:
    return Library()


def _digest(*parts: str) -> str:
    """Returns a name for what the code depends on: the processor, LLVM, and the files of this package and of the constants."""
    h = hashlib.sha256("\n".join(parts).encode())
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), here.parent / "memory.py", here.parent / "counters.py"]):
        h.update(path.read_bytes())
    return h.hexdigest()[:16]
