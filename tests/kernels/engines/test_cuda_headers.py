"""CUDA's own headers: given to both compilers where a source asks for one, named where they are missing."""

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
INCLUDING = "#include <mma.h>\n__global__ void nothing() {}\n"
WMMA = (("BM", 64), ("BN", 64), ("BK", 16), ("WM", 32), ("WN", 32), ("BF16", 0))


def toolkit(root: Path) -> Path:
    """A folder that looks like a toolkit's."""
    (root / "include").mkdir(parents=True)
    (root / "include" / "mma.h").touch()
    return root / "include"


@pytest.fixture
def without_cuda(monkeypatch, tmp_path):
    """A machine with neither wheels nor a toolkit."""
    cuda_headers.folders.cache_clear()
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cuda_headers, "_wheels", lambda: iter(()))
    monkeypatch.setattr(cuda_headers, "USUAL", tmp_path / "nowhere")
    monkeypatch.setattr(cuda_headers.shutil, "which", lambda name: None)
    yield
    cuda_headers.folders.cache_clear()


def test_wheels_come_before_toolkits_and_what_has_no_headers_is_left_out(without_cuda, monkeypatch, tmp_path):
    wheel, by_path, by_nvcc = (toolkit(tmp_path / name) for name in ("wheel", "path", "nvcc"))
    monkeypatch.setattr(cuda_headers, "_wheels", lambda: iter((wheel,)))
    monkeypatch.setenv("CUDA_PATH", str(by_path.parent))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "removed"))
    monkeypatch.setattr(cuda_headers.shutil, "which", lambda name: str(by_nvcc.parent / "bin" / name))
    assert cuda_headers.folders() == (wheel, by_path, by_nvcc)
    assert cuda_headers.options(INCLUDING) == (f"-I{wheel}", f"-I{by_path}", f"-I{by_nvcc}")


def test_a_source_that_includes_nothing_is_compiled_as_before(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda_headers, "folders", lambda: (tmp_path,))
    kernels = [path for path in sources.paths() if path.endswith(".cu")]
    included = {p for p in kernels if cuda_headers.options(sources.translation_unit(p))}
    assert included == {p for p in kernels if "#include <" in sources.text(p)}
    assert "gemm/10_wmma.cu" in included
    assert "gemm/11_mma_sync.cu" not in included  # the project's own headers are written in


@needs_nvrtc
def test_a_missing_header_says_what_brings_it(without_cuda):
    with pytest.raises(RuleError, match=r"^mma\.h was not found\. .* pip install nvidia-cuda-runtime"):
        compile.compile_ptx(INCLUDING, "including.cu", (*compile.OPTIONS, "-Dnever_compiled_before"))


@needs_nvrtc
def test_other_errors_are_the_compilers_own():
    with pytest.raises(compile.CompileError, match=r"^wrong\.cu") as told:
        compile.compile_ptx("__global__ void wrong() { int }", "wrong.cu")
    assert "not found" not in str(told.value)


class Module:
    """In the place of CuPy's RawModule, which needs a GPU: compiles by the same compiler, NVRTC."""

    asked: ClassVar[list[tuple[str, ...]]] = []

    def __init__(self, code: str, options: tuple[str, ...]):
        self.code, self.options = code, options
        self.asked.append(options)

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
    monkeypatch.setattr(Module, "asked", [])
    return Module


@needs_nvrtc
def test_the_gpus_compiler_is_given_them_too(cupy_module):
    gpu.compile_kernel.__wrapped__("gemm/10_wmma.cu", "wmma", WMMA)
    gpu.compile_kernel.__wrapped__("gemm/02_naive.cu", "naive", (("BLOCK", 16),))
    wmma, naive = cupy_module.asked
    assert wmma[-len(cuda_headers.folders()) :] == tuple(f"-I{path}" for path in cuda_headers.folders())
    assert naive == ("--std=c++17", "-DBLOCK=16")


@needs_nvrtc
def test_the_gpus_compiler_names_the_missing_header(cupy_module, without_cuda):
    with pytest.raises(RuleError, match=r"10_wmma.cu does not compile:\nmma\.h was not found"):
        gpu.compile_kernel.__wrapped__("gemm/10_wmma.cu", "wmma", WMMA)
