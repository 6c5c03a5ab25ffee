"""conv/cudnn-* without cuDNN: rules and errors. The library objects here only return statuses, never results."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import sys
import types
from collections import Counter

import numpy as np
import pytest

from kernels import sweep
from kernels.conv import common as conv_common
from kernels.conv import ladder as conv_ladder
from kernels.conv import library as conv_library
from kernels.conv.backward.transpose_shape import TransposeShape
from kernels.conv.shape import ConvShape
from kernels.engines import cpu, cuda, emulator
from kernels.ladders import LADDERS
from kernels.libraries import cudnn, workspace
from kernels.machine.status import Status
from kernels.machine.timing import Budget
from kernels.model.program import LibraryCall, Program, RefusedError, RuleError, UnsupportedError
from kernels.model.rung import Rung
from kernels.records import Gpu, availability, rows, unsupported
from kernels.records.jsontext import RowError, canonical, load
from kernels.runner import compare, run, seeded_inputs

SHAPE = ConvShape(1, 1, 8, 8, 2, 3, 3)
WINOGRAD = "conv/cudnn-winograd"
NO_GPU = Status(False, "no NVIDIA GPU in this machine")
GPU = Status(True, "NVIDIA H200")


def set_status(monkeypatch, status: Status) -> None:
    monkeypatch.setattr(cuda, "status", lambda: status)


# -- padding ------------------------------------------------------------------------------------------
UNEQUAL = ConvShape(1, 4, 1, 64, 8, 1, 5, pad=(0, 4), extra=(0, -4))  # causal


@pytest.mark.parametrize("name", ["conv", "conv-dinput", "conv-dweight", "conv-transpose"])
def test_unequal_padding_is_refused_with_the_rule(name):
    """cuDNN's descriptor has one padding for each axis. Ours run."""
    ladder = LADDERS[name]
    shape = TransposeShape.of(UNEQUAL) if name == "conv-transpose" else UNEQUAL
    for rung in ladder.rungs:
        rules = [rule for rule in rung.rules(shape, rung.default_tiles) if "cuDNN" in rule]
        expected = ["cuDNN pads both ends equally: extra_w must leave Q = 68, got Q = 64"]
        assert rules == (expected if rung.library == "cuDNN" else []), rung.name
        if rung.library == "cuDNN":
            with pytest.raises(RuleError, match="cuDNN pads both ends equally"):
                rung.check(shape, {})


def test_a_stride_may_make_unequal_padding_equal():
    """Stride 2 leaves out the last column of zeros: the output is that of equal padding, so cuDNN computes it."""
    same = ConvShape(1, 1, 8, 8, 1, 3, 3, stride=2, pad=1, extra=-1)
    assert same.y_shape == same.with_(extra_h=0, extra_w=0).y_shape
    assert not any(conv_library.rules(same, {}))
    more = same.with_(extra_h=1)
    assert list(conv_library.rules(more, {})) == ["cuDNN pads both ends equally: extra_h must leave P = 4, got P = 5"]


# -- a library that refuses ---------------------------------------------------------------------------
class Library:
    """A fake of a ctypes library: functions by name, each returning a status. `statuses`: those other than 0, success."""

    def __init__(self, number: int = 92800, statuses: dict[str, int] | None = None, missing: str = "", last_error=b""):
        self.calls: Counter[str] = Counter()
        self.cudnnGetVersion = lambda: number
        self.cudnnGetErrorString = lambda status: b"CUDNN_STATUS_%d" % status
        self.cudnnGetLastErrorString = lambda text, size: setattr(text, "value", last_error)
        for name in cudnn._ARGUMENTS:
            if name != missing:
                setattr(self, name, self._function_for(name, (statuses or {}).get(name, 0)))

    def _function_for(self, name: str, status: int):
        def function(*args):
            self.calls[name] += 1
            assert len(args) == len(function.argtypes), name
            return status

        return function


def convolution(library: Library, s: ConvShape = SHAPE) -> cudnn.Convolution:
    return cudnn.Convolution(cudnn.Cudnn(library), conv_common.struct(s), s.maps)


def test_another_version_is_reported():
    with pytest.raises(RuleError, match=r"cuDNN 8\.9\.7 was found on this machine; cuDNN 9 is needed"):
        cudnn.Cudnn(Library(8907))
    with pytest.raises(RuleError, match=r"cuDNN 10\.1\.2 was found"):
        cudnn.Cudnn(Library(100102))
    assert cudnn.Cudnn(Library(91900)).version == "9.19.0"


def test_missing_interface_is_reported():
    with pytest.raises(
        RuleError, match=r"cuDNN 9\.28\.0 has no function cudnnConvolutionForward of the older interface"
    ):
        cudnn.Cudnn(Library(missing="cudnnConvolutionForward"))


@pytest.mark.parametrize("status", [3000, 3002, 3007, 3999])
def test_unsupported_is_reported_with_cudnns_status_for_workspace_and_run(status):
    message = rf"^cuDNN 9\.28\.0 does not support WINOGRAD for this shape \(CUDNN_STATUS_{status}\)$"
    with pytest.raises(UnsupportedError, match=message):
        convolution(Library(statuses={"cudnnGetConvolutionForwardWorkspaceSize": status})).workspace_bytes("WINOGRAD")
    with pytest.raises(UnsupportedError, match=message):
        convolution(Library(statuses={"cudnnConvolutionForward": status})).run("WINOGRAD", 1, 2, 3, 0, 0, 0)


@pytest.mark.parametrize("status", [2000, 4000, 5003])
def test_other_failures_are_runtime_errors(status):
    """A fault must not be reported as an unsupported shape."""
    name = "cudnnGetConvolutionForwardWorkspaceSize"
    with pytest.raises(
        RuntimeError, match=rf"{name} of cuDNN 9.28.0 answered CUDNN_STATUS_{status} \({status}\) to FFT: why"
    ):
        convolution(Library(statuses={name: status}, last_error=b"why\n it failed")).workspace_bytes("FFT")


def test_library_that_does_not_start_is_a_refused_error():
    """If memory is full, say: CUDNN_STATUS_ALLOC_FAILED."""
    with pytest.raises(RefusedError, match=r"^cuDNN does not start on this GPU: cudnnCreate .* CUDNN_STATUS_1003"):
        convolution(Library(statuses={"cudnnCreate": 1003})).workspace_bytes("FFT")


@pytest.mark.parametrize("name", ["cudnnSetConvolutionMathType", "cudnnSetTensor4dDescriptor"])
def test_every_status_is_checked(name):
    with pytest.raises(RuntimeError, match=rf"{name} of cuDNN 9.28.0 answered CUDNN_STATUS_1001 \(1001\)"):
        convolution(Library(statuses={name: 1001})).workspace_bytes("FFT")


def test_descriptors_are_destroyed():
    library = Library()
    descriptors = convolution(library)
    del descriptors
    for kind, count in (("Tensor", 2), ("Filter", 1), ("Convolution", 1)):
        assert library.calls[f"cudnnCreate{kind}Descriptor"] == count
        assert library.calls[f"cudnnDestroy{kind}Descriptor"] == count


def test_descriptors_have_every_field_of_a_shape():
    """Every field at its position: groups, flip, dilation, FMA math."""
    s = ConvShape(2, 8, 13, 11, 4, 3, 2, stride=(2, 3), pad=(1, 2), dilation=(2, 1), groups=2, mode="convolution")
    calls, library = {}, Library()
    for name in [n for n in cudnn._ARGUMENTS if n.startswith("cudnnSet")]:
        setattr(library, name, lambda d, *args, name=name: calls.setdefault(name, []).append(args) or 0)
    convolution(library, s)
    assert calls["cudnnSetTensor4dDescriptor"] == [(0, 0, 2, 8, 13, 11), (0, 0, *s.y_shape)]
    assert calls["cudnnSetFilter4dDescriptor"] == [(0, 0, 4, 4, 3, 2)]
    assert calls["cudnnSetConvolution2dDescriptor"] == [(1, 2, 2, 3, 2, 1, 0, 0)]  # 0: convolution, float32
    assert calls["cudnnSetConvolutionGroupCount"] == [(2,)] and calls["cudnnSetConvolutionMathType"] == [(3,)]


@pytest.mark.parametrize(
    ("direction", "operands"),
    [
        (cudnn.FORWARD, ("_x", "_w", "_y")),
        (cudnn.BACKWARD_DATA, ("_w", "_y", "_x")),
        (cudnn.BACKWARD_FILTER, ("_x", "_y", "_w")),
    ],
    ids=lambda of: getattr(of, "name", ""),
)
def test_each_direction_calls_its_own_functions_with_its_operands(direction, operands):
    """Two inputs with their descriptors, the convolution, the algorithm's number, the workspace, the output."""
    calls, library = {}, Library()
    for name in [n for n in cudnn._ARGUMENTS if direction.name in n]:
        setattr(library, name, lambda *args, name=name: calls.setdefault(name, args) and 0)
    found = cudnn.Convolution(cudnn.Cudnn(library), conv_common.struct(SHAPE), SHAPE.maps, direction)
    first, second, out = (getattr(found, name) for name in operands)
    algorithm, number = list(direction.algorithms.items())[-1]
    found.workspace_bytes(algorithm)
    found.run(algorithm, 1, 2, 3, 4, 5, 6)
    found.ranked()
    found.measured(1, 2, 3, 4, 5)
    name = f"Convolution{direction.name}"
    assert calls[f"cudnnGet{name}WorkspaceSize"][1:6] == (first, second, found._conv, out, number)
    run = calls[f"cudnn{name}"]
    assert run[2:10] == (first, 1, second, 2, found._conv, number, 4, 5) and run[11:] == (out, 3)
    assert calls[f"cudnnGet{name}Algorithm_v7"][1:5] == (first, second, found._conv, out)
    assert calls[f"cudnnFind{name}AlgorithmEx"][1:8] == (first, 1, second, 2, found._conv, out, 3)
    assert calls[f"cudnnFind{name}AlgorithmEx"][-2:] == (4, 5)


def test_perf_struct_has_the_layout_of_c():
    """int, int, float, (4 bytes), size_t, int, int, int[3], (4 bytes)."""
    assert ctypes.sizeof(cudnn.Perf) == 48
    assert (cudnn.Perf.memory.offset, cudnn.Perf.mathType.offset) == (16, 28)


# -- no library ---------------------------------------------------------------------------------------
def test_missing_library_is_reported(monkeypatch):
    def not_found():
        raise OSError("libcudnn.so.9: cannot open shared object file")

    for name in ("_of_pathfinder", "_of_wheels", "_of_system"):
        monkeypatch.setattr(cudnn, name, not_found)
    for cached in (cudnn._search, cudnn.load):
        cached.cache_clear()
    try:
        set_status(monkeypatch, GPU)
        assert cudnn.version() is None
        for rung in conv_library.RUNGS:
            (message,) = availability.reasons(rung, SHAPE, {})
            assert message.startswith("cuDNN was not called here: cuDNN was not found on this machine; pip install")
            assert "libcudnn.so.9: cannot open" in message
    finally:
        cudnn._search.cache_clear()


def test_library_of_a_wheel_is_found(monkeypatch, tmp_path):
    library = tmp_path / "cudnn" / "lib" / cudnn._name()
    library.parent.mkdir(parents=True)
    library.touch()
    spec = types.SimpleNamespace(submodule_search_locations=[str(tmp_path / "none"), str(tmp_path)])
    monkeypatch.setattr(cudnn.importlib.util, "find_spec", lambda name: spec if name == "nvidia" else None)
    assert cudnn._of_wheels() == str(library)


def test_without_a_gpu_nothing_is_searched(monkeypatch):
    set_status(monkeypatch, NO_GPU)
    monkeypatch.setattr(cudnn, "load", lambda: pytest.fail("searched"))
    monkeypatch.setattr(unsupported, "_recorded", dict)
    for rung in conv_library.RUNGS:
        assert list(availability.reasons(rung, SHAPE, {})) == [
            "cuDNN was not called here: no NVIDIA GPU in this machine"
        ]


def test_rule_quotes_the_recording_first(monkeypatch):
    set_status(monkeypatch, NO_GPU)
    message = "a library does not support this"
    entry = {"rung": WINOGRAD, "shape": SHAPE.params(), "device": "NVIDIA H200", "said": message, "date": "2026-11-21"}
    of_gpu = {(WINOGRAD, canonical(SHAPE.params())): entry}
    monkeypatch.setattr(unsupported, "_recorded", lambda: {Gpu("NVIDIA H200"): of_gpu})
    rung = next(r for r in conv_library.RUNGS if r.name == WINOGRAD)
    assert next(iter(availability.reasons(rung, SHAPE, {}))) == f"{message} (tried on NVIDIA H200, 2026-11-21)"
    assert len(list(availability.reasons(rung, SHAPE.with_(K=3), {}))) == 1


@pytest.mark.parametrize("engine", ["cpu", "emulator"])
def test_other_engines_refuse_by_name(engine):
    for rung in conv_library.RUNGS:
        with pytest.raises(RuleError, match=f"{rung.name} runs on the cuda engine only, not on {engine}"):
            run(rung.name, SHAPE, engine=engine)
        program = rung.build(SHAPE, {})
        (call,) = program.steps
        with pytest.raises(RuleError, match=f"{call.name} is a library of the GPU: the cuda engine runs it"):
            {"cpu": cpu, "emulator": emulator}[engine].open(program, seeded_inputs(program.of_role("input")))
        assert call.routine.startswith("cudnn_") and rung.engines == ("cuda",)


def test_bias_and_relu_are_a_kernel_of_this_project():
    program = conv_library.RUNGS[0].build(SHAPE.with_(bias=1, relu=1), {})
    assert [step.name for step in program.steps] == ["cudnn_implicit_gemm", "bias_relu"]


def test_no_workspace_is_predicted():
    rung = conv_library.RUNGS[0]
    assert rung.cost(SHAPE, rung.build(SHAPE, {})).workspace_bytes is None


def test_error_for_a_workspace_that_is_not_free_names_its_bytes(monkeypatch):
    memory = types.SimpleNamespace(OutOfMemoryError=MemoryError)
    device = types.SimpleNamespace(mem_info=(1_000_000, 2_000_000))
    fake = types.SimpleNamespace(cuda=types.SimpleNamespace(Device=lambda: device, memory=memory))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    with pytest.raises(RuleError, match="cuDNN FFT asks for a workspace of 1,000,001 bytes, 1,000,000 bytes are free"):
        workspace.lazy_workspace(1_000_001, "cuDNN FFT")()
    assert workspace.lazy_workspace(0, "cuDNN FFT")() == 0


# -- a rung that its library does not support, with others that run ------------------------------------
REASON = "a library does not support this"


def unsupported_rung(attempts: list) -> Rung:
    """Returns a rung on the processor whose library call raises UnsupportedError."""

    def cpu_call(x, w, y):
        attempts.append(1)
        raise UnsupportedError(REASON)

    def build(s, tiles):
        return Program(conv_common.buffers(s), (LibraryCall("cublas_sgemm", ("x", "w", "y"), cpu_call, None),))

    return Rung("conv/refused", "refused", "none", build, conv_common.cost, lambda s, t: (), 1e-5)


@pytest.fixture
def attempts(monkeypatch) -> list:
    """A ladder of conv/direct, an unsupported rung and conv/im2col-cublas. Returns the list of attempted calls."""
    attempts: list = []
    direct, cublas = (conv_ladder.LADDER.rung(f"conv/{name}") for name in ("direct", "im2col-cublas"))
    ladder = dataclasses.replace(conv_ladder.LADDER, rungs=(direct, unsupported_rung(attempts), cublas))
    monkeypatch.setitem(LADDERS, "conv", ladder)
    return attempts


def test_other_rungs_run_and_the_refused_one_is_reported(attempts):
    refused_calls = []
    names = ["conv/direct", "conv/refused", "conv/im2col-cublas"]
    results = compare(
        names, SHAPE, engine="cpu", measure=False, refused=lambda *arguments: refused_calls.append(arguments)
    )
    assert [r.rung for r in results] == ["conv/direct", "conv/im2col-cublas"] and refused_calls == [
        ("conv/refused", REASON)
    ]
    assert [set(r.tiles) for r in results] == [{"BLOCK"}, {"BLOCK"}] and np.allclose(
        results[0].output, results[1].output, atol=1e-5
    )
    assert compare(names[1:2], SHAPE, engine="cpu", refused=lambda *_: None) == []
    with pytest.raises(UnsupportedError, match=f"conv/refused: {REASON}"):
        compare(names, SHAPE, engine="cpu", measure=False)


def test_sweep_stores_refused_rungs_beside_its_rows(attempts, monkeypatch, tmp_path):
    out = tmp_path / "machine.jsonl"
    settings = sweep.Sweep("cpu", ["toy"], budget=Budget(3, 0.1, 2, 0.0))

    def record_again() -> list:
        return list(sweep.record(out, settings, "unknown"))

    first = record_again()
    assert [p.note for p in first if "refused" in p.note] == [f"conv/refused {SHAPE}: {REASON}"]
    assert first[-1].done == first[-1].total and len(attempts) == 1
    lines = [load(line) for line in out.read_text().splitlines()]
    assert lines and all(row["rung"] != "conv/refused" and rows.check(row) is None for row in lines)
    (entry,) = json.loads((tmp_path / "machine.unsupported.json").read_text())
    assert set(entry) == set(unsupported.FIELDS)
    assert (entry["rung"], entry["shape"], entry["said"]) == ("conv/refused", SHAPE.params(), REASON)
    record_again()
    assert len(attempts) == 1  # the first answer was stored
    monkeypatch.setattr(cpu, "conditions", lambda: {"cudnn": "9.99.0"})
    record_again()
    assert len(attempts) == 2  # another version of the library is tried again
    (entry,) = unsupported.read(unsupported.path_beside(out))
    assert entry["library"] == "cudnn 9.99.0"


def test_sweep_leaves_out_rungs_of_other_engines():
    names = {name for group in sweep.Sweep("cpu", ["toy"]).groups() for name in group.rungs}
    assert "conv/direct" in names and not any("cudnn" in name for name in names)


def test_malformed_sidecar_is_reported(tmp_path):
    file = tmp_path / "a.unsupported.json"
    file.write_text('[{"rung": "conv/x"}]')
    with pytest.raises(RowError, match=r"a.unsupported.json must be a list of entries with rung, shape"):
        unsupported.read(file)
