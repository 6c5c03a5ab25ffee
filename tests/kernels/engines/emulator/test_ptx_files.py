"""Files of PTX, run by `python -m kernels emulate`: by hand, from NVRTC, Numba and Triton; the lines shown, and refusals."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from kernels.engines.emulator import user_kernel
from kernels.engines.emulator.compiler.compile import compile_ptx
from kernels.engines.emulator.compiler.source import ARCHITECTURES
from kernels.engines.emulator.ptx import names
from kernels.model.program import RuleError
from tests.helpers.emulated import needs_nvrtc

# Two files as Triton 3.9.0 writes them for sm_80: the asm["ptx"] of a compiled vector sum and of a softmax by rows.
TRITON = Path(__file__).parents[3] / "fixtures" / "triton.zip"
HEAD = ".version 7.8\n.target sm_80\n.address_size 64\n.const .align 4 .f32 scale;\n"
# In order: a parameter as Triton writes it, several statements on a line, a comment and a vector over two lines, registers
# without %, a negated predicate, a vector of one element, a register type that is declared and not used.
BY_HAND = f"""{HEAD}.visible .entry k(.param .u64 .ptr .global .align 1 p, .param .u32 n)
.reqntid 32
{{ .reg .pred more; .reg .b32 r<4>, %lo, %hi; .reg .b32 %r<3>; .reg .b64 %rd<4>; .reg .f32 %f1, %f2; .reg .b128 %wide;
  /* a comment
     of two lines */
  mov.u32 %r1, %tid.x; ld.param.u32 %r2, [n];
  setp.lt.u32 more, %r1, %r2;
  ld.param.u64 %rd1, [p];
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd1, %rd1, %rd2;
  mov.b64 {{%lo, %hi}}, %rd1;
  mov.b64 %rd3, {{%lo,
    %hi}};
  @!more bra DONE;
  ld.global.b32 {{ %f1 }}, [ %rd3 + 0 ]; ld.const.f32 %f2, [scale];
  mul.f32 %f1, %f1, %f2;
  @more st.global.f32 [%rd3], %f1;
DONE: ret;
}}
"""
LINES = [line.strip() for line in BY_HAND.split("\n")]
CUDA = """namespace ns {
template <class T> __global__ void twice(T* x) {
  x[threadIdx.x] *= 2;
}
}
template __global__ void ns::twice<float>(float*);
__constant__ int used;
__global__ void plain(int* x) { x[0] = used; }
"""


@pytest.fixture
def ptx(tmp_path):
    """Returns a function that writes a file of PTX and returns its path."""

    def write(text: str, name: str = "own.ptx") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def run(path: Path, entry: str = "k", args=("f32:32:arange", "u32:30"), block: int = 32, **settings):
    return user_kernel.emulate(path, entry, (settings.pop("grid", 1), 1, 1), (block, 1, 1), args, **settings)


def compiled(arch: str, *options: str) -> str:
    return compile_ptx(CUDA, "own.cu", ("--std=c++17", f"--gpu-architecture={arch}", *options))


# -- what runs ---------------------------------------------------------------------------------------
def test_by_hand(ptx):
    result = run(ptx(BY_HAND), constants=("scale=f32:3",))
    expected = np.arange(32, dtype="f4") * np.where(np.arange(32) < 30, 3, 1)
    np.testing.assert_array_equal(result.arrays["arg0"], expected.astype("f4"))
    assert result.arrays["scale"] == 3
    total = result.counters.total
    assert (total["requests_ld"], total["requests_st"], total["flops_fp"]) == (1, 1, 30)


def test_lines_are_the_ptx_own(ptx):
    result = run(ptx(BY_HAND), constants=("scale=f32:3",))
    stored = [line for line, counts in result.counters.lines.items() if counts["requests_st"]]
    assert [(line.file, line.number) for line in stored] == [
        ("own.ptx", LINES.index("@more st.global.f32 [%rd3], %f1;") + 1)
    ]
    assert LINES[stored[0].number - 1] in result.text()


@needs_nvrtc
@pytest.mark.parametrize("arch", ["compute_75", "compute_90"])
@pytest.mark.parametrize("options", [(), ("-lineinfo",), ("-G",)])
def test_from_nvrtc(arch, options, ptx):
    path = ptx(compiled(arch, *options))
    result = run(path, "ns::twice", ("f32:32:arange",))
    np.testing.assert_array_equal(result.arrays["arg0"], np.arange(32, dtype="f4") * 2)
    assert {line.file for line in result.counters.lines} == {"own.ptx"}  # own.cu is not beside it
    assert run(path, "plain", ("i32:1:empty",), 1, constants=("used=i32:7",)).arrays["arg0"] == [7]


@needs_nvrtc
def test_lines_are_the_sources_if_it_is_beside(ptx, tmp_path):
    (tmp_path / "own.cu").write_text(CUDA, encoding="utf-8")
    result = run(ptx(compiled("compute_80", "-lineinfo")), "twice", ("f32:32:arange",))
    assert {line.file for line in result.counters.lines} == {"own.cu"}
    stored = [line.number for line, counts in result.counters.lines.items() if counts["requests_st"]]
    assert stored == [3] and "x[threadIdx.x] *= 2;" in result.text()
    with pytest.raises(RuleError, match=r"own\.cu:3: out-of-bounds"):
        run(tmp_path / "own.ptx", "twice", ("f32:31:arange",))


def test_from_triton(tmp_path):
    with ZipFile(TRITON) as archive:
        archive.extractall(tmp_path)
    x, y = (np.random.default_rng(n).standard_normal(2000).astype("f4") for n in (1, 2))
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "y.npy", y)
    args = (str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), "f32:2000:empty", "i32:2000", "u64:0", "u64:0")
    result = run(tmp_path / "triton_add.ptx", "add_kernel", args, 128, grid=2)
    np.testing.assert_array_equal(result.arrays["arg2"], x + y)
    assert result.counters.total["sectors_ld"] == 2 * 2000 * 4 // 32
    args = ("f32:4x1000:empty", "f32:4x1000:random", "i32:1000", "i32:1000", "u64:0", "u64:0")
    check = "np.exp(arg1) / np.exp(arg1).sum(1, keepdims=True)"
    result = run(tmp_path / "triton_softmax.ptx", "softmax_kernel", args, 128, grid=4, shared=1024, check=check)
    assert result.compared is not None and result.compared.right


def test_from_numba(ptx):
    cuda = pytest.importorskip("numba.cuda", reason="Numba is not installed here")
    numba = pytest.importorskip("numba")

    def saxpy(x, y, a):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = a * x[i] + y[i]

    try:
        text, _ = cuda.compile_ptx(saxpy, (numba.float32[:], numba.float32[:], numba.float32), cc=(8, 0))
    except Exception as e:  # Numba raises many types
        pytest.skip(f"Numba finds no NVVM or no libdevice here: {type(e).__name__}")
    array = ("u64:0", "u64:0", "i64:100", "i64:4", "f32:100:random", "i64:100", "i64:4")
    args = (*array, *array, "f32:2")
    known = names.demangled("_Z1fi") != "_Z1fi"
    result = run(ptx(text), "saxpy" if known else "cudapy", args, grid=4, check="arg11 = 2 * arg4 + arg11")
    assert result.compared is not None and result.compared.right


def test_numba_names_lose_their_tags():
    name = "_ZN6cudapy8__main__5saxpyB2v1B4cw51E5ArrayIfLi1E1A7mutable7alignedE"
    if names.demangled(name) == name:
        pytest.skip("no C++ runtime here that demangles")
    assert names.plain(name) == "cudapy::__main__::saxpy"


# -- refusals ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("arch", ["sm_100a", "sm_60", "sm_90b"])
def test_other_architectures_are_refused_by_name(arch, ptx):
    with pytest.raises(RuleError) as e:
        run(ptx(BY_HAND.replace("sm_80", arch)))
    assert f"not of {arch}," in str(e.value) and ", ".join(ARCHITECTURES) in str(e.value)


@pytest.mark.parametrize("text", ["", "hello", BY_HAND.replace(".target sm_80", "")])
def test_a_file_without_a_target_is_no_ptx(text, ptx):
    with pytest.raises(RuleError, match=r"own\.ptx is no PTX"):
        run(ptx(text))


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        ("-D", {"defines": ["N=1"]}),
        ("-I", {"folders": ["/tmp"]}),
        ("--arch", {"arch": "sm_80"}),
        ("--std", {"standard": "c++17"}),
    ],
)
def test_options_of_the_compiler_are_refused(option, settings, ptx):
    with pytest.raises(RuleError, match=rf"own\.ptx is PTX.*{option}$"):
        run(ptx(BY_HAND), **settings)


def test_unknown_names_list_the_known_ones(ptx):
    with pytest.raises(RuleError, match=r"no kernel 'other'; there are: k$"):
        run(ptx(BY_HAND), "other")
    with pytest.raises(RuleError, match=r"no variable 'ns::scale'; there are: scale$"):
        run(ptx(BY_HAND), constants=("ns::scale=f32:3",))


def test_a_block_must_be_the_required_one(ptx):
    for block in (16, 64):
        with pytest.raises(RuleError, match="reqntid"):
            run(ptx(BY_HAND), block=block, constants=("scale=f32:3",))


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("add.s64 %rd1, %rd1,", "add.s64 %rd1, %rd9,", "%rd9"),
        ("@more st", "@%none st", "%none"),
        ("bra DONE", "bra NOWHERE", "NOWHERE"),
        ("mul.f32 %f1", "mulx.f32 %f1", "mulx.f32"),
        ("mul.f32 %f1, %f1, %f2;", "mul.f32 %f1;", "mul.f32"),
        ("[n]", "[m]", "m is no parameter"),
        ("mul.f32 %f1,", "mov.b128 %wide, {%rd1, %rd2}; mul.f32 %f1,", "128 bits"),
        ("[%rd3], %f1", "[%rd3*4], %f1", "%rd3*4"),
        (".reg .f32 %f1", ".reg .f99 %f1", ".f99"),
        ("f32 scale;", "f32 scale = 1.x;", "1.x"),
        ("mul.f32 %f1,", "tex.1d.v4.f32.f32 {%f1,%f1,%f1,%f1}, [scale, {%f2}]; mul.f32 %f1,", "tex.1d"),
        ("mul.f32 %f1,", "elect.sync _|more, -1; mul.f32 %f1,", "sm_90"),
    ],
)
def test_what_is_not_read_is_refused_by_name_and_line(right, wrong, named, ptx):
    number = next(n for n, line in enumerate(LINES, 1) if right in line)
    with pytest.raises(RuleError) as e:
        run(ptx(BY_HAND.replace(right, wrong)), constants=("scale=f32:3",))
    message = str(e.value)
    assert named in message and (f"own.ptx:{number}" in message or f"PTX line {number} " in message)


def test_unfinished_text_is_an_error(ptx):
    for text in (BY_HAND.rstrip()[:-1], BY_HAND.partition(")")[0], BY_HAND.replace("[p];", "[p]")):
        with pytest.raises(RuleError, match="PTX line"):
            run(ptx(text), constants=("scale=f32:3",))
