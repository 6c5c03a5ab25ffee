"""cuBLAS and PyTorch in the attention ladder without a GPU: arguments of their calls, and messages if they are missing."""

from __future__ import annotations

import ctypes
import sys
import types
import warnings
from typing import ClassVar

import numpy as np
import pytest

from kernels.attention import ladder as attention_ladder
from kernels.attention import library as attention_library
from kernels.attention.shape import DTYPES, AttentionShape
from kernels.engines import cpu, cuda, emulator
from kernels.engines.cuda.memory_hook import memory_hook
from kernels.libraries import cublas
from kernels.libraries import torch as torch_library
from kernels.machine.status import Status
from kernels.model.program import RuleError, UnsupportedError
from kernels.records import availability
from kernels.runner import run

GPU, NO_GPU = Status(True, "a GPU"), Status(False, "no NVIDIA GPU in this machine")
SHAPE = AttentionShape(2, 3, 5, 4, causal=1, scale=-0.5)
LIBRARY = attention_library.RUNGS[0]
RUNG_OF = dict(zip(attention_library.IDEAS, attention_library.RUNGS, strict=True))  # key: PyTorch's name of the backend


# -- cuBLAS -----------------------------------------------------------------------------------------
class HostArray:
    """An array in host memory with the pointer attributes of CuPy's arrays."""

    def __init__(self, array: np.ndarray):
        self.array, self.size, self.dtype = array, array.size, array.dtype
        self.data = types.SimpleNamespace(ptr=array.ctypes.data)


class FakeBlas:
    """cublasGemmStridedBatchedEx as in its manual, on host memory: matrices column by column."""

    types: ClassVar = {0: np.dtype("f4"), 2: np.dtype("f2"), 14: np.dtype("bfloat16")}  # cudaDataType

    def cublasSetStream_v2(self, handle, stream) -> int:
        return 0

    def cublasGemmStridedBatchedEx(
        self, handle, ta, tb, m, n, k, alpha, a, a_type, lda, sa, b, b_type, ldb, sb, beta, c, c_type, ldc, sc,
        count, compute, algorithm,
    ):  # fmt: skip
        def matrix(at, type_, rows, cols, ld, step, i) -> np.ndarray:
            assert ld >= rows
            dtype = self.types[type_]
            itemsize, elements = dtype.itemsize, ld * (cols - 1) + rows
            start = (ctypes.c_char * (itemsize * elements)).from_address(at.value + itemsize * step.value * i)
            flat = np.frombuffer(start, dtype)
            return np.lib.stride_tricks.as_strided(flat, (rows, cols), (itemsize, itemsize * ld))

        assert a_type == b_type and c_type in (0, a_type) and compute == 68 and beta._obj.value == 0
        for i in range(count):
            A = matrix(a, a_type, k, m, lda, sa, i).T if ta else matrix(a, a_type, m, k, lda, sa, i)
            B = matrix(b, b_type, n, k, ldb, sb, i).T if tb else matrix(b, b_type, k, n, ldb, sb, i)
            product = alpha._obj.value * (A.astype("f4") @ B.astype("f4"))
            matrix(c, c_type, m, n, ldc, sc, i)[...] = product
        return 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_cublas_call_equals_cpu_result(dtype, monkeypatch):
    stream = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=0))
    monkeypatch.setattr(cublas, "_cublas", lambda: (FakeBlas(), None, types.SimpleNamespace(cuda=stream)))
    rng = np.random.default_rng(0)
    program = attention_ladder.CUBLAS.build(SHAPE.with_(dtype=dtype), {})
    arrays = {b.name: rng.standard_normal(b.shape).astype(b.dtype) for b in program.buffers}
    for step in (program.steps[0], program.steps[2]):
        args = [arrays[a] if isinstance(a, str) else a for a in step.args]
        result = np.full_like(args[2], np.nan)
        device_arrays = [
            HostArray(result if i == 2 else a) if isinstance(a, np.ndarray) else a for i, a in enumerate(args)
        ]
        step.bind(*device_arrays)()
        step.cpu(*args)
        tolerance = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(result.dtype.name, 1e-5)  # one step of the type
        np.testing.assert_allclose(result.astype("f4"), args[2].astype("f4"), rtol=tolerance, atol=1e-6)


# -- PyTorch missing -----------------------------------------------------------------------------------
def test_missing_gpu_is_explained(monkeypatch):
    monkeypatch.setattr(cuda, "status", lambda: NO_GPU)
    assert list(availability.reasons(LIBRARY, SHAPE, {})) == [
        "PyTorch was not called here: no NVIDIA GPU in this machine"
    ]


def test_missing_pytorch_is_explained(monkeypatch):
    monkeypatch.setattr(cuda, "status", lambda: GPU)
    monkeypatch.setattr(torch_library.importlib.util, "find_spec", lambda name: None)
    (message,) = availability.reasons(LIBRARY, SHAPE, {})
    assert message.endswith("PyTorch was not found on this machine; pip install torch installs it")
    with pytest.raises(RuleError, match=r"attention/library cannot run .*pip install torch"):
        run(LIBRARY.name, SHAPE, engine="cuda")


def test_old_pytorch_is_named(monkeypatch):
    monkeypatch.setattr(torch_library.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch_library, "version", lambda: "2.4.1+cu121")
    with pytest.raises(RuleError, match=r"PyTorch 2.4.1\+cu121 was found on this machine; 2.5 is needed"):
        torch_library.find()
    monkeypatch.setattr(torch_library, "version", lambda: "2.10.0")
    torch_library.find()


@pytest.mark.parametrize("rung", attention_library.RUNGS, ids=lambda r: r.name)
def test_only_the_cuda_engine_runs_it(rung, monkeypatch):
    program = rung.build(SHAPE, {})
    for engine, name in ((cpu, "cpu"), (emulator, "emulator")):
        with pytest.raises(RuleError, match=f"is a library of the GPU: the cuda engine runs it, not {name}"):
            engine.open(program, {})
    assert rung.engines == ("cuda",) and rung.cost(SHAPE, program).workspace_bytes is None


# -- PyTorch present -----------------------------------------------------------------------------------
class Tensor:
    def __init__(self, array: np.ndarray):
        self.array = array

    def copy_(self, other: Tensor) -> None:
        self.array[...] = other.array

    def view(self, dtype) -> Tensor:
        return Tensor(self.array.view(dtype))


class Allocated:
    """PyTorch's allocator: bytes allocated now and at the peak."""

    now = peak = 1000

    def allocate(self, nbytes: int) -> None:
        self.now += nbytes
        self.peak = max(self.peak, self.now)


def pytorch(refuses: bool = False):
    """Returns (a fake PyTorch with the functions used, its calls). `allocated` counts its bytes."""
    allocated, calls = Allocated(), []

    def sdpa(q, k, v, is_causal, scale) -> Tensor:
        calls.append((torch.backend, torch.stream, torch.inference, is_causal, scale))
        if refuses:
            location = "(Triggered internally at sdp_utils.cpp:1.)"
            for message in (
                "Flash kernel not used because:",
                "Expected a 16-bit type.",
                "cuDNN has been runtime disabled.",
            ):
                warnings.warn(f"{message} {location}", stacklevel=1)
            raise RuntimeError("No available kernel. Aborting execution.")
        allocated.allocate(700)
        allocated.allocate(-700 + 96)  # a workspace that is released; the result stays
        out = np.empty_like(q.array)
        attention_ladder.cpu.fused(q.array, k.array, v.array, out, SHAPE.N, SHAPE.d, np.float32(scale), is_causal)
        return Tensor(out)

    class SetAttribute:
        """A context that sets an attribute of the module while it lasts."""

        def __init__(self, name, value):
            self.name, self.value = name, value

        def __enter__(self):
            setattr(torch, self.name, self.value)

        def __exit__(self, *_):
            setattr(torch, self.name, None)

    def peak_from_here():
        allocated.peak = allocated.now

    flags = types.SimpleNamespace
    torch = types.SimpleNamespace(
        __version__="2.9.0",
        backend=None,
        stream=None,
        inference=None,
        bfloat16="bfloat16",
        from_dlpack=Tensor,
        inference_mode=lambda: SetAttribute("inference", True),
        cuda=flags(
            is_available=lambda: True,
            ExternalStream=lambda pointer: pointer,
            stream=lambda stream: SetAttribute("stream", stream),
            reset_peak_memory_stats=peak_from_here,
            max_memory_allocated=lambda: allocated.peak,
            memory_allocated=lambda: allocated.now,
        ),
        backends=flags(cuda=flags(matmul=flags(allow_tf32=True)), cudnn=flags(allow_tf32=True)),
        nn=flags(
            functional=flags(scaled_dot_product_attention=sdpa),
            attention=flags(
                sdpa_kernel=lambda backend: SetAttribute("backend", backend),
                SDPBackend=flags(**{name: name for name in attention_library.IDEAS}),
            ),
        ),
    )
    return torch, calls


@pytest.fixture
def fake_pytorch(monkeypatch):
    """Yields a function that installs a fake PyTorch and returns it with its calls."""

    def make(**how):
        torch, calls = pytorch(**how)
        torch_library.load.cache_clear()
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "torch.nn.attention", torch.nn.attention)
        stream = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=77))
        monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=stream))
        monkeypatch.setattr(torch_library, "find", lambda: None)
        return torch, calls

    yield make
    torch_library.load.cache_clear()


def bind_backend(backend: str):
    rng = np.random.default_rng(0)
    rung = RUNG_OF[backend]
    (step,) = rung.build(SHAPE, {}).steps
    arrays = {name: rng.standard_normal(SHAPE.qkv_shape).astype("f4") for name in "QKVO"}
    args = tuple(arrays[a] if isinstance(a, str) else a for a in step.args)
    return step.bind(*args), arrays


@pytest.mark.parametrize("backend", attention_library.IDEAS)
def test_named_backend_runs_on_our_stream_without_tf32(fake_pytorch, backend, monkeypatch):
    torch, calls = fake_pytorch()
    call, arrays = bind_backend(backend)
    before = arrays["O"].copy()
    call()
    call()
    assert calls == [(backend, 77, True, True, -0.5)] * 2
    assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
    np.testing.assert_array_equal(arrays["O"], before)  # O is written only by deliver()
    call.copy_result()
    monkeypatch.delitem(sys.modules, "cupy")  # the stand-in computes no reference
    ref, _ = attention_ladder.reference(SHAPE, arrays["Q"], arrays["K"], arrays["V"])
    np.testing.assert_allclose(arrays["O"], ref, rtol=1e-4, atol=1e-5)


def test_memory_besides_the_result_is_reported(fake_pytorch):
    fake_pytorch()
    call, _ = bind_backend("EFFICIENT_ATTENTION")
    call()
    assert call.workspace_bytes == 700 - 96
    call()
    assert call.workspace_bytes == 700 - 96


def test_pytorch_refusal_is_quoted(fake_pytorch):
    fake_pytorch(refuses=True)
    call, _ = bind_backend("FLASH_ATTENTION")
    with pytest.raises(
        UnsupportedError,
        match=r"PyTorch 2.9.0 does not support FLASH_ATTENTION for this shape \(Expected a 16-bit type.\)",
    ):
        call()


def test_pytorch_without_gpu_is_explained(fake_pytorch):
    torch, _ = fake_pytorch()
    torch.cuda.is_available = lambda: False
    with pytest.raises(RuleError, match=r"PyTorch 2.9.0 was found, but it does not see the GPU"):
        bind_backend("EFFICIENT_ATTENTION")


# -- memory in the session -------------------------------------------------------------------------------
def test_session_adds_library_memory_to_the_workspace(monkeypatch):
    """The memory hook derives from CuPy's MemoryHook: here from a base class without a GPU."""
    hook = types.SimpleNamespace(MemoryHook=type("MemoryHook", (), {"__init__": lambda self: None}))
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=hook))
    memory_hook.cache_clear()
    memory_log = memory_hook()()
    memory_hook.cache_clear()
    memory_log.stage("inputs", "input")
    memory_log.malloc_postprocess(0, 300, 512, 1, 1)
    memory_log.stage("torch", "workspace")
    memory_log.add_external(4096)
    memory_log.add_external(0)
    memory = memory_log.memory()
    assert (memory.input, memory.output, memory.workspace, memory.peak) == (512, 0, 4096, 4608)
    memory_log.stage("next", "workspace")
    assert memory_log.timeline[-1]["workspace"] == 0  # it is released when the step ends
    assert [stage["at"] for stage in memory_log.timeline] == ["inputs", "torch", "next"]
