"""CUDA's own headers: passed to both compilers if a source includes one, named if they are missing."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from kernels import sources
from kernels.engines import cuda as gpu
from kernels.engines import cuda_headers
from kernels.engines.emulator.compiler import compile
from kernels.model.program import RuleError

needs_nvrtc = pytest.mark.skipif(compile.version() is None, reason="NVRTC is not installed")
WITH_INCLUDE = "#include <mma.h>\n__global__ void nothing() {}\n"
WMMA = (("BM", 64), ("BN", 64), ("BK", 16), ("WM", 32), ("WN", 32), ("BF16", 0))


def toolkit(root: Path) -> Path:
    """Create a folder that looks like a toolkit's, and return its include folder."""
    (root / "include").mkdir(parents=True)
    (root / "include" / "mma.h").touch()
    return root / "include"


@pytest.fixture
def without_cuda(monkeypatch, tmp_path):
    """Simulate a machine with neither wheels nor a toolkit."""
    cuda_headers.folders.cache_clear()
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cuda_headers, "_wheels", lambda: iter(()))
    monkeypatch.setattr(cuda_headers, "DEFAULT_TOOLKIT", tmp_path / "nowhere")
    monkeypatch.setattr(cuda_headers.shutil, "which", lambda name: None)
    yield
    cuda_headers.folders.cache_clear()


def test_folders_lists_wheels_before_toolkits_and_skips_folders_without_headers(without_cuda, monkeypatch, tmp_path):
    wheel, by_path, by_nvcc = (toolkit(tmp_path / name) for name in ("wheel", "path", "nvcc"))
    monkeypatch.setattr(cuda_headers, "_wheels", lambda: iter((wheel,)))
    monkeypatch.setenv("CUDA_PATH", str(by_path.parent))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "removed"))
    monkeypatch.setattr(cuda_headers.shutil, "which", lambda name: str(by_nvcc.parent / "bin" / name))
    assert cuda_headers.folders() == (wheel, by_path, by_nvcc)
    assert cuda_headers.options(WITH_INCLUDE) == (f"-I{wheel}", f"-I{by_path}", f"-I{by_nvcc}")


def test_options_are_empty_for_a_source_without_includes(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda_headers, "folders", lambda: (tmp_path,))
    kernels = [path for path in sources.paths() if path.endswith(".cu")]
    included = {p for p in kernels if cuda_headers.options(sources.translation_unit(p))}
    assert included == {p for p in kernels if "#include <" in sources.text(p)}
    assert "gemm/10_wmma.cu" in included
    assert "gemm/11_mma_sync.cu" not in included  # the project's own headers are inlined


@needs_nvrtc
def test_missing_header_error_names_the_packages(without_cuda):
    with pytest.raises(RuleError, match=r"^mma\.h was not found\. .* pip install nvidia-cuda-runtime"):
        compile.compile_ptx(WITH_INCLUDE, "including.cu", (*compile.OPTIONS, "-Dnever_compiled_before"))


@needs_nvrtc
def test_other_compile_errors_are_unchanged():
    with pytest.raises(compile.CompileError, match=r"^wrong\.cu") as error:
        compile.compile_ptx("__global__ void wrong() { int }", "wrong.cu")
    assert "not found" not in str(error.value)


class Module:
    """A stand-in for CuPy's RawModule, which needs a GPU. It compiles by the same compiler, NVRTC."""

    received_options: ClassVar[list[tuple[str, ...]]] = []

    def __init__(self, code: str, options: tuple[str, ...], enable_cooperative_groups: bool = False):
        self.code, self.options = code, options
        self.received_options.append(options)

    def get_function(self, entry: str) -> str:
        import cupy

        try:
            return compile._compile(self.code, entry, self.options).ptx
        except compile.CompileError as e:
            raise cupy.cuda.compiler.CompileException(str(e), self.code, entry, self.options) from None


@pytest.fixture
def cupy_module(monkeypatch):
    cupy = pytest.importorskip("cupy")
    monkeypatch.setattr(cupy, "RawModule", Module)
    monkeypatch.setattr(Module, "received_options", [])
    return Module


@needs_nvrtc
def test_gpu_compiler_gets_the_header_folders(cupy_module):
    gpu.compile_kernel.__wrapped__("gemm/10_wmma.cu", "wmma", WMMA)
    gpu.compile_kernel.__wrapped__("gemm/02_naive.cu", "naive", (("BLOCK", 16),))
    wmma, naive = cupy_module.received_options
    assert wmma[-len(cuda_headers.folders()) :] == tuple(f"-I{path}" for path in cuda_headers.folders())
    assert naive == ("--std=c++17", "-DBLOCK=16")


@needs_nvrtc
def test_gpu_compiler_error_names_the_missing_header(cupy_module, without_cuda):
    with pytest.raises(RuleError, match=r"10_wmma.cu does not compile:\nmma\.h was not found"):
        gpu.compile_kernel.__wrapped__("gemm/10_wmma.cu", "wmma", WMMA)
