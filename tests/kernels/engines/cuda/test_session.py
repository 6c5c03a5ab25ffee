"""The cuda engine on machines that lack something: libraries, memory, nvidia-smi, a newer GPU.

The tests use CuPy itself if it needs no GPU, else a stand-in that raises CuPy's errors.
"""

from __future__ import annotations

import os
import subprocess
import sys
import types
from dataclasses import replace

import numpy as np
import pytest

from kernels import engines, sweep
from kernels.conv.shape import ConvShape
from kernels.engines import cuda
from kernels.engines.cuda import device as cuda_device
from kernels.engines.cuda import probes as cuda_probes
from kernels.engines.cuda import session
from kernels.engines.cuda import timing as cuda_timing
from kernels.jobs.job import JobError, Request
from kernels.jobs.worker import Worker
from kernels.ladders import LADDERS, find
from kernels.libraries import cublas, wheels
from kernels.libraries import torch as torch_library
from kernels.machine.timing import Budget
from kernels.model.program import RefusedError, RuleError, UnsupportedError
from kernels.records import availability
from kernels.runner import compare
from kernels.softmax.shape import SoftmaxShape
from tests.children.acts import stand_in
from tests.children.driver import H200, Driver

TOY = ConvShape(1, 1, 8, 8, 2, 3, 3)
RTX_2080 = Driver(name=b"NVIDIA GeForce RTX 2080", attributes=H200 | {75: 7, 76: 5, 97: 65_536})
GEMM = LADDERS["gemm"]
OutOfMemoryError = stand_in("cupy.cuda.memory", "OutOfMemoryError", MemoryError)
CUDARuntimeError = stand_in("cupy_backends.cuda.api.runtime", "CUDARuntimeError", RuntimeError)


# -- rungs that this GPU, or the installed libraries, cannot run --------------------------------------------
def refusal(rung: str, shape) -> str:
    found = find(rung)
    return cuda.refusal(found, shape, found.default_tiles)


def test_older_gpu_refuses_rungs_that_need_a_newer_one(machine, monkeypatch):
    machine(RTX_2080)
    monkeypatch.setattr(wheels, "refusal", lambda program: "")
    shape = GEMM.presets["square-64"].shape
    supported = availability.supported_rungs(GEMM, "cuda", shape)
    messages = {rung.name: refusal(rung.name, shape) for rung in supported}
    refused = {name for name, why in messages.items() if why}
    newer = "double-buffer", "warp-tile", "register-pipeline", "grouped-order", "cublas-tf32"
    hopper = {"gemm/transposed-ring", "gemm/tf32x3"}
    assert refused == {f"gemm/{name}" for name in newer} | hopper
    assert {messages[name] for name in hopper} == {
        "compute capability 9.0 or newer is needed, NVIDIA GeForce RTX 2080 has 7.5"
    }
    refused -= hopper
    assert {messages[name] for name in refused} == {
        "compute capability 8.0 or newer is needed, NVIDIA GeForce RTX 2080 has 7.5"
    }
    halves = GEMM.presets["square-4096-fp16"].shape
    assert refusal("gemm/mma-sync", halves).startswith("compute capability 8.0")


def test_too_much_shared_memory_is_refused(machine):
    machine(Driver(name=b"NVIDIA L4", attributes=H200 | {75: 8, 76: 9, 97: 101_376}))
    rung, shape = find("gemm/warp-tile"), GEMM.presets["square-64"].shape
    big = rung.default_tiles | {"STAGES": 4, "BK": 32}
    shared = rung.build(shape, big).steps[0].shared
    assert shared > 101_376
    expected = f"a block needs {shared:,} bytes of shared memory, NVIDIA L4 has 101,376"
    assert cuda.refusal(rung, shape, big) == expected
    assert cuda.refusal(rung, shape, rung.default_tiles) == ""


def test_newest_gpu_refuses_no_rung(machine, monkeypatch):
    machine(Driver())
    monkeypatch.setattr(wheels, "missing", lambda library: "")
    for ladder in LADDERS.values():
        for preset in ladder.presets.values():
            for rung in availability.supported_rungs(ladder, "cuda", preset.shape):
                assert refusal(rung.name, preset.shape) == ""


def test_missing_library_refuses_only_its_rungs(machine, monkeypatch):
    machine(Driver())
    monkeypatch.setattr(wheels, "missing", lambda library: f"{library} is missing")
    names = [
        rung.name for rung in availability.supported_rungs(LADDERS["conv"], "cuda", TOY) if refusal(rung.name, TOY)
    ]
    assert names == ["conv/im2col-cublas", "conv/fft"]
    assert refusal("conv/im2col-cublas", TOY) == "cublas is missing"
    assert refusal("conv/fft", TOY) == "cufft is missing"


def test_no_rung_is_refused_without_a_gpu(machine):
    machine(None, on_bus=False)
    assert refusal("gemm/warp-tile", GEMM.presets["square-64"].shape) == ""


def test_compare_skips_rungs_the_gpu_cannot_run(machine):
    machine(RTX_2080)
    shape = GEMM.presets["square-64"].shape
    refused_calls = []
    names = ["gemm/double-buffer", "gemm/warp-tile"]
    assert compare(names, shape, engine="cuda", refused=lambda *call: refused_calls.append(call)) == []
    why = "compute capability 8.0 or newer is needed, NVIDIA GeForce RTX 2080 has 7.5"
    assert refused_calls == [(name, why) for name in names]
    with pytest.raises(RefusedError, match=f"^gemm/double-buffer: {why}$"):
        compare(names, shape, engine="cuda")


def test_sweep_skips_rungs_this_machine_cannot_run(monkeypatch, tmp_path):
    """A skipped rung is no row, and no refusal of a library: another machine may run it."""
    old = "compute capability 8.0 or newer is needed"
    monkeypatch.setattr(engines, "refusal", lambda name, rung, *_: "" if rung.name == "conv/direct" else old)
    out = tmp_path / "machine.jsonl"
    what = sweep.Sweep("cpu", ["toy"], ["cold"], budget=Budget(3, 0.1, 2, 0.0))
    steps = list(sweep.record(out, what, "unknown"))
    assert {step.row["rung"] for step in steps if step.row} == {"conv/direct"}
    left_out = [step.note for step in steps if old in step.note]
    assert any(text.startswith(f"left out conv/im2col-gemm {TOY}: ") for text in left_out)
    assert steps[-1].done == steps[-1].total and list(tmp_path.iterdir()) == [out]


# -- kernels whose blocks wait for each other --------------------------------------------------------------
def one_launch(blocks: int):
    """Returns (compiled kernel, launch) of a rung whose blocks wait for each other, with so many blocks."""
    rung = find("softmax/one-launch")
    (step,) = rung.build(SoftmaxShape(1, 8), rung.default_tiles).steps
    kernel = types.SimpleNamespace(kernel=types.SimpleNamespace(ptr=7))
    return kernel, replace(step, grid=(blocks, 1, 1))


def test_a_grid_whose_blocks_cannot_all_run_at_once_is_refused(monkeypatch):
    queries = []
    driver = types.SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=lambda *query: queries.append(query) or 4)
    device = types.SimpleNamespace(attributes={"MultiProcessorCount": 10})
    cuda_module = types.SimpleNamespace(driver=driver, Device=lambda: device)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda_module))
    session.refuse_partial_grid(*one_launch(40))
    with pytest.raises(RefusedError, match="this GPU runs 40 of them at the same time, the grid has 41"):
        session.refuse_partial_grid(*one_launch(41))
    assert queries == [(7, 256, 0)] * 2


def test_only_kernels_whose_blocks_wait_for_others_are_cooperative(monkeypatch):
    made = []

    def module(**options):
        made.append(options["enable_cooperative_groups"])
        return types.SimpleNamespace(get_function=lambda entry: entry)

    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(RawModule=module))
    monkeypatch.setattr(wheels, "missing", lambda library: "")
    for source in ("gemm/02_naive.cu", "softmax/09_one_launch.cu", "softmax/06_cluster.cu"):
        cuda.compile_kernel.__wrapped__(source, "kernel", ())
    assert made == [False, True, False]


# -- a child whose CuPy does not work ------------------------------------------------------------------
@pytest.fixture
def worker():
    worker = Worker(deadline_s=30, module="tests.children.gpu_machine")
    yield worker
    worker.close()


def error_text(worker) -> str:
    """Returns the error of a run on the GPU, and check that the next run, on the CPU, works."""
    with pytest.raises(JobError) as raised:
        worker.submit(Request(("conv/direct",), TOY, engine="cuda")).result(60)
    (row,) = worker.submit(Request(("conv/direct",), TOY, engine="cpu", seconds=0.05)).result(60)
    assert row["engine"] == "cpu" and row["median_ms"] > 0
    return str(raised.value)


@pytest.mark.skipif(cuda.status().ready, reason="CuPy finds a driver here")
def test_error_of_cupy_without_a_driver(worker):
    pytest.importorskip("cupy")
    text = error_text(worker)
    assert text.startswith("the NVIDIA driver is older than this CUDA, while starting (conv/direct); install NVIDIA")
    assert "driver 580 or newer (cudaErrorInsufficientDriver: " in text


def test_error_of_cupy_that_does_not_import(worker, monkeypatch):
    folder = os.path.join(os.path.dirname(__file__), "..", "..", "..", "children", "broken_cupy")
    monkeypatch.setenv("PYTHONPATH", os.path.abspath(folder))
    assert error_text(worker) == (
        "CuPy does not load; pip install --force-reinstall cupy-cuda13x repairs it "
        "(ImportError: libstdc++.so.6: cannot open shared object file: No such file or directory)"
    )


# -- memory ------------------------------------------------------------------------------------------
def fake_cupy(monkeypatch, free: int = 1_000_000, **more) -> None:
    """Replace CuPy by a stand-in; `more` are names of cupy.cuda."""
    device = types.SimpleNamespace(mem_info=(free, 2_000_000), attributes={"L2CacheSize": 50 << 20})
    names = {
        "Device": lambda: device,
        "memory": types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        "runtime": types.SimpleNamespace(CUDARuntimeError=CUDARuntimeError),
    } | more
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(**names)))
    cuda.load.cache_clear()


@pytest.fixture(autouse=True)
def reload_cupy():
    yield
    cuda.load.cache_clear()


def raising(error: Exception):
    def call(*args, **named):
        raise error

    return call


def smi(monkeypatch, answer) -> list[list[str]]:
    """Replace nvidia-smi: it prints `answer`, or raises it. Return the list of the commands it gets."""
    commands: list[list[str]] = []

    def run(command, **how):
        commands.append(command)
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(command, 0 if answer else 9, stdout=answer, stderr="")

    monkeypatch.setattr(cuda_device.subprocess, "run", run)
    return commands


BUSY = "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable"


@pytest.mark.parametrize(("answer", "used"), [("142000, 143771, 1200\n", "142,000 of 143,771 MiB"), ("", "all of it")])
def test_full_gpu_error_names_the_used_memory(machine, monkeypatch, answer, used):
    machine(Driver())
    full = raising(CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"))
    fake_cupy(monkeypatch, Device=full)
    smi(monkeypatch, answer)
    with pytest.raises(RuleError) as raised:
        cuda.free_bytes()
    assert str(raised.value) == (f"the GPU's memory is full: other programs hold {used}; nvidia-smi lists them")


@pytest.mark.parametrize("answer", ["10, 143771, 143000\n", ""])
def test_busy_gpu_raises_cupys_error(machine, monkeypatch, answer):
    machine(Driver())
    fake_cupy(monkeypatch, Device=raising(CUDARuntimeError(BUSY)))
    smi(monkeypatch, answer)
    with pytest.raises(CUDARuntimeError, match="busy"):
        cuda.free_bytes()


def test_full_gpu_that_reports_busy_is_full(machine, monkeypatch):
    machine(Driver())
    fake_cupy(monkeypatch, Device=raising(CUDARuntimeError(BUSY)))
    smi(monkeypatch, "143100, 143771, 32\n")
    with pytest.raises(RuleError, match="memory is full: other programs hold 143,100 of 143,771 MiB"):
        cuda.free_bytes()


@pytest.mark.parametrize("module", ["cupy.cuda.memory", "torch"])
def test_out_of_memory_becomes_refused_error_with_free_bytes(monkeypatch, module):
    fake_cupy(monkeypatch, free=1_234_567)
    error = stand_in(module, "OutOfMemoryError", RuntimeError if module == "torch" else MemoryError)
    with pytest.raises(RefusedError) as raised, cuda.refused_when_full():
        raise error("Out of memory allocating 4,096 bytes (allocated so far: 0 bytes).\nmore")
    assert str(raised.value) == (
        "the GPU's memory is full, 1,234,567 bytes are free (Out of memory allocating 4,096 bytes (allocated so far: 0 bytes))"
    )
    with pytest.raises(RuntimeError, match="another"), cuda.refused_when_full():
        raise RuntimeError("another")


def test_ceilings_are_none_when_memory_is_full(monkeypatch):
    from kernels import runner

    fake_cupy(monkeypatch)
    monkeypatch.setattr(cuda_probes, "ceilings", raising(OutOfMemoryError("Out of memory allocating 8 bytes")))
    assert runner._ceilings(cuda) is None


def test_flusher_error_names_the_bytes(monkeypatch):
    fake_cupy(monkeypatch, alloc=raising(OutOfMemoryError("Out of memory")))
    with pytest.raises(RuleError) as raised:
        cuda_timing.flusher(None)
    assert str(raised.value) == (
        "overwriting the caches before each sample needs 268,435,456 bytes on the GPU, 1,000,000 bytes are free; "
        "take a smaller shape or batch"
    )


class Array:
    """A stand-in for a CuPy array. Its copies do nothing."""

    def __init__(self):
        self.shape, self.dtype, self.nbytes = (4,), np.dtype("f4"), 16
        self.data = types.SimpleNamespace(copy_from_host_async=lambda *_: None, copy_to_host_async=lambda *_: None)

    def get(self, stream) -> np.ndarray:
        return np.zeros(4, "f4")


def test_copies_are_none_if_no_memory_can_be_pinned(monkeypatch):
    failed = CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
    pinned = {"PinnedMemory": raising(failed), "PinnedMemoryPointer": lambda *_: pytest.fail("pinned")}
    fake_cupy(monkeypatch, **pinned)
    monkeypatch.setattr(cuda_probes, "own_stream", lambda: None)
    program = find("conv/direct").build(TOY, {"BLOCK": 256})
    session = types.SimpleNamespace(
        program=program,
        arrays={buffer.name: Array() for buffer in program.buffers},
        stream=types.SimpleNamespace(synchronize=lambda: None),
    )
    assert cuda.copies(session) is None


# -- nvidia-smi ----------------------------------------------------------------------------------------
def test_smi_queries_the_gpu_in_use(machine, monkeypatch):
    machine(Driver(count=2, bus=b"0000:B3:00.0"))
    commands = smi(monkeypatch, "580.95.05, 1980, 2619\n")
    assert cuda_device.smi("driver_version", "clocks.sm", "clocks.mem") == ["580.95.05", 1980, 2619]
    assert commands[0][:2] == ["nvidia-smi", "--id=0000:B3:00.0"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("580.95.05, [N/A], [Not Supported]\n", ["580.95.05", None, None]),  # a part of a GPU (MIG)
        ("", [None] * 3),
        ("No devices were found\n", [None] * 3),
        (FileNotFoundError("nvidia-smi"), [None] * 3),
        (PermissionError("nvidia-smi"), [None] * 3),
        (subprocess.TimeoutExpired("nvidia-smi", 10), [None] * 3),
    ],
)
def test_smi_returns_none_for_unknown_fields(machine, monkeypatch, answer, expected):
    machine(Driver())
    smi(monkeypatch, answer)
    assert cuda_device.smi("driver_version", "clocks.sm", "clocks.mem") == expected


# -- libraries -----------------------------------------------------------------------------------------
def test_missing_nvrtc_is_a_rule_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(RawModule=raising(AssertionError())))
    monkeypatch.setattr(wheels, "missing", lambda library: f"{library} was not found")
    with pytest.raises(RuleError, match=r"^nvrtc was not found$"):
        cuda.compile_kernel.__wrapped__("gemm/02_naive.cu", "naive", (("BLOCK", 16),))


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (15, UnsupportedError, "does not support this shape on this GPU: CUBLAS_STATUS_NOT_SUPPORTED"),
        (8, UnsupportedError, "CUBLAS_STATUS_ARCH_MISMATCH"),
        (13, RuntimeError, "cuBLAS failed: CUBLAS_STATUS_EXECUTION_FAILED"),
        (99, RuntimeError, "cuBLAS failed: status 99"),
    ],
)
def test_cublas_error_names_the_status(status, error, message):
    with pytest.raises(error, match=message) as raised:
        cublas._check(status)
    assert type(raised.value) is error


def test_cublas_start_failure_is_refused(monkeypatch):
    library = types.SimpleNamespace(cublasCreate_v2=lambda handle: 3)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace())
    monkeypatch.setattr(wheels, "load", lambda name: library)
    with pytest.raises(RefusedError, match="cuBLAS does not start on this GPU: CUBLAS_STATUS_ALLOC_FAILED, the GPU's"):
        cublas._cublas.__wrapped__()


@pytest.mark.parametrize(("cuda_line", "has_cuda"), [("cuda: Optional[str] = None", False), ("cuda = '13.0'", True)])
def test_pytorch_without_cuda_is_found_without_import(monkeypatch, tmp_path, cuda_line, has_cuda):
    (tmp_path / "version.py").write_text(f"__version__ = '2.9.0+cpu'\n{cuda_line}\nhip: Optional[str] = None\n")
    spec = types.SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(torch_library.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(torch_library, "version", lambda: "2.9.0")
    if has_cuda:
        torch_library.find()
        return
    with pytest.raises(RuleError, match=r"^PyTorch 2\.9\.0 was found .* built without CUDA; pip install --force-re"):
        torch_library.find()
