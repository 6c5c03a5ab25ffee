"""conv/cudnn-* where there is no cuDNN: what is said, and to whom. The library objects here only refuse: no result of
cuDNN is pretended."""

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
from kernels.conv.shape import ConvShape
from kernels.engines import cpu, cuda, emulator
from kernels.ladders import LADDERS
from kernels.libraries import cudnn, workspace
from kernels.machine.status import Status
from kernels.machine.timing import Budget
from kernels.model.program import LibraryCall, Program, RefusedError, RuleError, UnsupportedError
from kernels.model.rung import Rung
from kernels.records import rows, unsupported
from kernels.records.jsontext import RowError, canonical, load
from kernels.runner import compare, run, seeded_inputs

SHAPE = ConvShape(1, 1, 8, 8, 2, 3, 3)
WINOGRAD = "conv/cudnn-winograd"
NO_GPU = Status(False, "no NVIDIA GPU in this machine")
GPU = Status(True, "NVIDIA H200")


def there(monkeypatch, status: Status) -> None:
    monkeypatch.setattr(cuda, "status", lambda: status)


# -- a library that refuses ---------------------------------------------------------------------------
class Library:
    """As ctypes gives one: functions by name, each answering a status. `answers`: other than 0, success."""

    def __init__(
        self, number: int = 92800, answers: dict[str, int] | None = None, missing: str = "", words=b""
    ):
        self.calls: Counter[str] = Counter()
        self.cudnnGetVersion = lambda: number
        self.cudnnGetErrorString = lambda status: b"CUDNN_STATUS_%d" % status
        self.cudnnGetLastErrorString = lambda text, size: setattr(text, "value", words)
        for name in cudnn._ARGUMENTS:
            if name != missing:
                setattr(self, name, self._answering(name, (answers or {}).get(name, 0)))

    def _answering(self, name: str, status: int):
        def function(*args):
            self.calls[name] += 1
            assert len(args) == len(function.argtypes), name
            return status

        return function


def convolution(library: Library, s: ConvShape = SHAPE) -> cudnn.Convolution:
    return cudnn.Convolution(cudnn.Cudnn(library), conv_common.struct(s), s.maps)


def test_another_version_is_told():
    with pytest.raises(RuleError, match=r"cuDNN 8\.9\.7 was found on this machine; cuDNN 9 is needed"):
        cudnn.Cudnn(Library(8907))
    with pytest.raises(RuleError, match=r"cuDNN 10\.1\.2 was found"):
        cudnn.Cudnn(Library(100102))
    assert cudnn.Cudnn(Library(91900)).version == "9.19.0"


def test_an_interface_that_is_gone_is_told():
    with pytest.raises(
        RuleError, match=r"cuDNN 9\.28\.0 has no cudnnConvolutionForward: its older interface is gone"
    ):
        cudnn.Cudnn(Library(missing="cudnnConvolutionForward"))


@pytest.mark.parametrize("status", [3000, 3002, 3007, 3999])
def test_not_supported_is_told_in_cudnns_words_when_asked_and_when_run(status):
    words = rf"^cuDNN 9\.28\.0 does not support WINOGRAD for this shape \(CUDNN_STATUS_{status}\)$"
    with pytest.raises(UnsupportedError, match=words):
        convolution(Library(answers={"cudnnGetConvolutionForwardWorkspaceSize": status})).workspace_bytes(
            "WINOGRAD"
        )
    with pytest.raises(UnsupportedError, match=words):
        convolution(Library(answers={"cudnnConvolutionForward": status})).forward(
            "WINOGRAD", 1, 2, 3, 0, 0, 0
        )


@pytest.mark.parametrize("status", [2000, 4000, 5003])
def test_other_failures_are_not_taken_for_that(status):
    """A fault is a fault: nobody shall read that a shape is not supported."""
    name = "cudnnGetConvolutionForwardWorkspaceSize"
    with pytest.raises(
        RuntimeError, match=rf"{name} of cuDNN 9.28.0 answered CUDNN_STATUS_{status} \({status}\) to FFT: why"
    ):
        convolution(Library(answers={name: status}, words=b"why\n it failed")).workspace_bytes("FFT")


def test_a_library_that_does_not_start_refuses_its_rungs_alone():
    """For want of memory, say: CUDNN_STATUS_ALLOC_FAILED."""
    with pytest.raises(
        RefusedError, match=r"^cuDNN does not start on this GPU: cudnnCreate .* CUDNN_STATUS_1003"
    ):
        convolution(Library(answers={"cudnnCreate": 1003})).workspace_bytes("FFT")


@pytest.mark.parametrize("name", ["cudnnSetConvolutionMathType", "cudnnSetTensor4dDescriptor"])
def test_every_status_is_looked_at(name):
    with pytest.raises(RuntimeError, match=rf"{name} of cuDNN 9.28.0 answered CUDNN_STATUS_1001 \(1001\)"):
        convolution(Library(answers={name: 1001})).workspace_bytes("FFT")


def test_descriptors_are_destroyed():
    library = Library()
    made = convolution(library)
    del made
    for kind, count in (("Tensor", 2), ("Filter", 1), ("Convolution", 1)):
        assert library.calls[f"cudnnCreate{kind}Descriptor"] == count
        assert library.calls[f"cudnnDestroy{kind}Descriptor"] == count


def test_what_cudnn_is_told_of_a_shape():
    """Every field at its place: groups, flip, dilation, FMA math."""
    s = ConvShape(
        2, 8, 13, 11, 4, 3, 2, stride=(2, 3), pad=(1, 2), dilation=(2, 1), groups=2, mode="convolution"
    )
    told, library = {}, Library()
    for name in [n for n in cudnn._ARGUMENTS if n.startswith("cudnnSet")]:
        setattr(library, name, lambda d, *args, name=name: told.setdefault(name, []).append(args) or 0)
    convolution(library, s)
    assert told["cudnnSetTensor4dDescriptor"] == [(0, 0, 2, 8, 13, 11), (0, 0, *s.y_shape)]
    assert told["cudnnSetFilter4dDescriptor"] == [(0, 0, 4, 4, 3, 2)]
    assert told["cudnnSetConvolution2dDescriptor"] == [(1, 2, 2, 3, 2, 1, 0, 0)]  # 0: convolution, float32
    assert told["cudnnSetConvolutionGroupCount"] == [(2,)] and told["cudnnSetConvolutionMathType"] == [(3,)]


def test_the_struct_of_an_answer_lies_as_in_c():
    """int, int, float, (4 bytes), size_t, int, int, int[3], (4 bytes)."""
    assert ctypes.sizeof(cudnn.Perf) == 48
    assert (cudnn.Perf.memory.offset, cudnn.Perf.mathType.offset) == (16, 28)


# -- no library ---------------------------------------------------------------------------------------
def test_a_missing_library_is_a_sentence(monkeypatch):
    def nowhere():
        raise OSError("libcudnn.so.9: cannot open shared object file")

    for name in ("_of_pathfinder", "_of_wheels", "_of_system"):
        monkeypatch.setattr(cudnn, name, nowhere)
    for cached in (cudnn._found, cudnn.load):
        cached.cache_clear()
    try:
        there(monkeypatch, GPU)
        assert cudnn.version() is None
        for rung in conv_library.RUNGS:
            (said,) = rung.rules(SHAPE, {})
            assert said.startswith(
                "cuDNN was not asked here: cuDNN was not found on this machine; pip install"
            )
            assert "libcudnn.so.9: cannot open" in said
    finally:
        cudnn._found.cache_clear()


def test_a_wheels_library_is_found_where_it_lies(monkeypatch, tmp_path):
    library = tmp_path / "cudnn" / "lib" / cudnn._name()
    library.parent.mkdir(parents=True)
    library.touch()
    spec = types.SimpleNamespace(submodule_search_locations=[str(tmp_path / "none"), str(tmp_path)])
    monkeypatch.setattr(cudnn.importlib.util, "find_spec", lambda name: spec if name == "nvidia" else None)
    assert cudnn._of_wheels() == str(library)


def test_without_a_gpu_it_was_not_asked_and_nothing_is_searched(monkeypatch):
    there(monkeypatch, NO_GPU)
    monkeypatch.setattr(cudnn, "load", lambda: pytest.fail("searched"))
    monkeypatch.setattr(unsupported, "_recorded", dict)
    for rung in conv_library.RUNGS:
        assert list(rung.rules(SHAPE, {})) == ["cuDNN was not asked here: no NVIDIA GPU in this machine"]


def test_what_a_recording_tells_is_said_first(monkeypatch):
    there(monkeypatch, NO_GPU)
    said = "a library does not support this"
    entry = {
        "rung": WINOGRAD,
        "shape": SHAPE.params(),
        "device": "NVIDIA H200",
        "said": said,
        "date": "2026-11-21",
    }
    monkeypatch.setattr(unsupported, "_recorded", lambda: {(WINOGRAD, canonical(SHAPE.params())): entry})
    rung = next(r for r in conv_library.RUNGS if r.name == WINOGRAD)
    assert next(iter(rung.rules(SHAPE, {}))) == f"{said}, asked on an NVIDIA H200, 2026-11-21"
    assert len(list(rung.rules(SHAPE.with_(K=3), {}))) == 1


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


def test_bias_and_relu_are_a_step_of_ours():
    program = conv_library.RUNGS[0].build(SHAPE.with_(bias=1, relu=1), {})
    assert [step.name for step in program.steps] == ["cudnn_implicit_gemm", "bias_relu"]


def test_no_workspace_is_predicted():
    rung = conv_library.RUNGS[0]
    assert rung.cost(SHAPE, rung.build(SHAPE, {})).workspace_bytes is None


def test_a_workspace_that_is_not_free_names_its_bytes(monkeypatch):
    memory = types.SimpleNamespace(OutOfMemoryError=MemoryError)
    device = types.SimpleNamespace(mem_info=(1_000_000, 2_000_000))
    fake = types.SimpleNamespace(cuda=types.SimpleNamespace(Device=lambda: device, memory=memory))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    with pytest.raises(
        RuleError, match="cuDNN FFT asks for a workspace of 1,000,001 bytes, 1,000,000 bytes are free"
    ):
        workspace.taker(1_000_001, "cuDNN FFT")()
    assert workspace.taker(0, "cuDNN FFT")() == 0


# -- a rung that its library refuses, beside those that run ---------------------------------------------
SAID = "a library does not support this"


def refusing(asked: list) -> Rung:
    """A rung that runs on the processor until its library refuses."""

    def twin(x, w, y):
        asked.append(1)
        raise UnsupportedError(SAID)

    def build(s, tiles):
        return Program(conv_common.buffers(s), (LibraryCall("cublas_sgemm", ("x", "w", "y"), twin, None),))

    return Rung("conv/refused", "refused", "none", build, conv_common.cost, lambda s, t: (), 1e-5)


@pytest.fixture
def asked(monkeypatch) -> list:
    """The ladder of conv/direct, a rung that is refused, and conv/im2col-cublas; each asking is noted."""
    found: list = []
    direct, cublas = (conv_ladder.LADDER.rung(f"conv/{name}") for name in ("direct", "im2col-cublas"))
    ladder = dataclasses.replace(conv_ladder.LADDER, rungs=(direct, refusing(found), cublas))
    monkeypatch.setitem(LADDERS, "conv", ladder)
    return found


def test_the_others_run_and_the_refused_one_is_told(asked):
    told = []
    names = ["conv/direct", "conv/refused", "conv/im2col-cublas"]
    got = compare(names, SHAPE, engine="cpu", measure=False, refused=lambda *words: told.append(words))
    assert [r.rung for r in got] == ["conv/direct", "conv/im2col-cublas"] and told == [("conv/refused", SAID)]
    assert [set(r.tiles) for r in got] == [{"BLOCK"}, {"BLOCK"}] and np.allclose(
        got[0].output, got[1].output, atol=1e-5
    )
    assert compare(names[1:2], SHAPE, engine="cpu", refused=lambda *_: None) == []
    with pytest.raises(UnsupportedError, match=f"conv/refused: {SAID}"):
        compare(names, SHAPE, engine="cpu", measure=False)


def test_a_sweep_keeps_what_was_refused_beside_its_rows(asked, monkeypatch, tmp_path):
    out = tmp_path / "machine.jsonl"
    what = sweep.Sweep("cpu", ["toy"], budget=Budget(3, 0.1, 2, 0.0))

    def again() -> list:
        return list(sweep.record(out, what, "unknown"))

    first = again()
    assert [p.said for p in first if "refused" in p.said] == [f"conv/refused {SHAPE}: {SAID}"]
    assert first[-1].done == first[-1].total and len(asked) == 1
    lines = [load(line) for line in out.read_text().splitlines()]
    assert lines and all(row["rung"] != "conv/refused" and rows.check(row) is None for row in lines)
    (entry,) = json.loads((tmp_path / "machine.unsupported.json").read_text())
    assert set(entry) == set(unsupported.FIELDS)
    assert (entry["rung"], entry["shape"], entry["said"]) == ("conv/refused", SHAPE.params(), SAID)
    again()
    assert len(asked) == 1  # it was told already
    monkeypatch.setattr(cpu, "conditions", lambda: {"cudnn": "9.99.0"})
    again()
    assert len(asked) == 2  # another library is asked anew
    (entry,) = unsupported.read(unsupported.path_beside(out))
    assert entry["library"] == "cudnn 9.99.0"


def test_a_sweep_leaves_out_rungs_of_other_engines():
    names = {name for group in sweep.Sweep("cpu", ["toy"]).groups() for name in group.rungs}
    assert "conv/direct" in names and not any("cudnn" in name for name in names)


def test_a_broken_sidecar_is_told(tmp_path):
    file = tmp_path / "a.unsupported.json"
    file.write_text('[{"rung": "conv/x"}]')
    with pytest.raises(RowError, match=r"a.unsupported.json must be a list of entries with rung, shape"):
        unsupported.read(file)
