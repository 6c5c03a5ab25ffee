"""A user's kernels, run by `python -m kernels emulate`: names, arguments, variables, limits, and refusals."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.__main__ import main
from kernels.engines.emulator import arguments, limits, parameters, user_kernel
from kernels.engines.emulator.compiler import source
from kernels.engines.emulator.ptx import names as ptx_names
from kernels.engines.emulator.ptx.kernel import Kernel, Variable
from kernels.model.program import RuleError
from tests.helpers.emulated import needs_nvrtc

SCALE = """extern "C" __global__ void scale(const float* x, float* y, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = by * x[i];
}
"""
NAMES = """template <int N, class T> __global__ void fill(T* x) { x[threadIdx.x] = N; }
template __global__ void fill<3, int>(int*);
namespace a { __global__ void plain(int* x) { x[0] = 1; } }
namespace { __global__ void hidden(int* x) { x[0] = 2; } }
__global__ void over(int* x) { x[0] = 3; }
__global__ void over(float* x) { x[0] = 4; }
__device__ void helper(int* x) { x[0] = 5; }
template <class T> __global__ void __launch_bounds__(64) never(T* x) { x[0] = 6; }
"""


@pytest.fixture
def cu(tmp_path):
    """Returns a function that writes a file and returns its path as text."""

    def write(content: str | bytes, name: str = "own.cu") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def emulate(file: str, entry: str, *options: str, grid: str = "1", block: str = "1") -> int:
    """Returns the exit code of the command. Each option that does not begin with - is an argument."""
    command_options = [word for o in options for word in ([o] if o.startswith("-") else ["--arg", o])]
    return main(["emulate", file, entry, "--grid", grid, "--block", block, *command_options])


def result(file: str, entry: str, *args: str, **settings) -> list[np.ndarray]:
    """Returns each array after a run of one block."""
    block = settings.pop("block", 1)
    return list(user_kernel.emulate(file, entry, (1, 1, 1), (block, 1, 1), args, **settings).arrays.values())


# -- a run -----------------------------------------------------------------------------------------
@needs_nvrtc
def test_bring_your_own_kernel(cu, tmp_path, capsys):
    file = cu(SCALE)
    before, after = ["f32:100:arange"], ["f32:0.5", "i32:100", "--json", f"--out={tmp_path / 'out'}"]
    assert emulate(file, "scale", *before, "f32:100:empty", *after, grid="4", block="32") == 0
    counted = json.loads(capsys.readouterr().out)
    assert counted["total"]["requests_ld"] == 4 and counted["total"]["sectors_ld"] == 13  # 400 bytes
    assert {line["line"] for line in counted["lines"]} <= {1, 2, 3, 4}
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "arg1.npy"), np.arange(100, dtype="f4") / 2)
    # The buffer is too short: the error says where.
    assert emulate(file, "scale", *before, "f32:99:zeros", *after, grid="4", block="32") == 2
    error = capsys.readouterr().err
    assert "scale, own.cu:3: out-of-bounds write" in error and "just past the end of arg1 [99]" in error
    assert "by thread (3, 0, 0) of block (3, 0, 0)\n    3 |   if (i < n) y[i] = by * x[i];" in error


@needs_nvrtc
def test_race_is_a_warning(cu, capsys):
    turn = """extern "C" __global__ void turn(float* x) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = s[63 - threadIdx.x];
}
"""
    assert emulate(cu(turn), "turn", "f32:64:arange", block="64") == 0
    output = capsys.readouterr().out
    assert (
        "warning: turn, own.cu:4: data race on shared memory: thread" in output
        and "4 |   x[threadIdx.x] = s[63" in output
    )
    right = turn.replace("  x[threadIdx.x] = s", "  __syncthreads(); x[threadIdx.x] = s")
    assert emulate(cu(right), "turn", "f32:64:arange", block="64") == 0
    assert "data race" not in capsys.readouterr().out


@needs_nvrtc
def test_barrier_error_shows_its_source_line(cu, capsys):
    file = cu('extern "C" __global__ void part() {\n  asm volatile("bar.sync 1, 32;");\n}\n')
    assert emulate(file, "part", block="64") == 2
    error = capsys.readouterr().err
    assert "part, own.cu:2: barrier 1 is for 32 threads, 64 have come" in error
    assert "2 |   asm volatile" in error


@needs_nvrtc
def test_barrier_after_returned_threads_is_a_warning(cu, capsys):
    file = cu('extern "C" __global__ void early() {\n  if (threadIdx.x < 32) return;\n  __syncthreads();\n}\n')
    assert emulate(file, "early", block="64") == 0
    assert "warning: early, own.cu:3: " in capsys.readouterr().out


@needs_nvrtc
def test_seconds_limits_a_launch(cu, capsys):
    long = "  unsigned v = 1;\n  while (v != n) v = v * 1664525u + 1013904223u | 1u;\n  x[0] = v;\n"
    file = cu('extern "C" __global__ void k(unsigned* x, unsigned n) {\n' + long + "}\n")
    assert emulate(file, "k", "u32:1:zeros", "u32:2", "--seconds=0.1") == 2
    assert "stopped after 0.1 seconds" in capsys.readouterr().err
    for bad in ("-1", "0", "nan", "inf"):
        assert emulate(file, "k", "u32:1:zeros", "u32:2", f"--seconds={bad}") == 2
        assert "seconds must be a number above 0" in capsys.readouterr().err


@needs_nvrtc
def test_header_line_is_not_shown_as_a_line_of_the_file(cu, capsys):
    cu("\n\ntemplate <class T> __global__ void one(T* x) { x[0] = 1; }\n", "one.cuh")
    assert emulate(cu('#include "one.cuh"\n// two\n// three\n'), "one<int>", "i32:1:empty") == 0
    output = capsys.readouterr().out
    assert "(one.cuh)" in output and "// three" not in output


# -- names -----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize(
    ("entry", "type_", "value"),
    [
        ("fill<7, float>", "f32", 7),
        ("fill<7,unsigned char>", "u8", 7),
        ("fill", "i32", 3),  # its only instance
        ("a::plain", "i32", 1),
        ("plain", "i32", 1),
        ("hidden", "i32", 2),
        ("(void (*)(float*))over", "f32", 4),
        ("_Z4overPi", "i32", 3),
    ],
)
def test_kernel_is_found_by_its_cpp_name(entry, type_, value, cu):
    assert result(cu(NAMES), entry, f"{type_}:1:empty")[0] == [value]


@needs_nvrtc
@pytest.mark.parametrize("entry", ["none", "", "helper", "never", "a", "int", "over;", "²", "\udcff", "a\nb"])
def test_unknown_kernel_error_lists_the_kernels(entry, cu):
    with pytest.raises(RuleError) as e:
        result(cu(NAMES), entry, "i32:1:empty")
    message = str(e.value)
    assert message.startswith(f"no kernel {entry!r}; there are: ")
    assert "never<...>, a template: name its arguments" in message
    if ptx_names.demangled("_Z4overPi") != "_Z4overPi":
        assert "_Z4overPi = over(int*)" in message and "_ZN1a5plainEPi = a::plain(int*)" in message


@needs_nvrtc
def test_ambiguous_kernel_error_lists_both(cu):
    with pytest.raises(
        RuleError, match=r"^several kernels are called 'over'; .*_Z4overPi.*, _Z4overPf|_Z4overPf.*, _Z4overPi"
    ):
        result(cu(NAMES), "over", "i32:1:empty")


@needs_nvrtc
def test_compile_error_is_the_compilers_message(cu, capsys):
    assert emulate(cu('extern "C" __global__ void f() { return x; }\n', "bad.cu"), "f") == 2
    error = capsys.readouterr().err
    assert error.startswith('python -m kernels: bad.cu(1): error: identifier "x" is undefined')
    assert "nv_name_map" not in error


# -- options ---------------------------------------------------------------------------------------
@needs_nvrtc
def test_compiler_options_are_named_as_in_nvcc(cu, tmp_path, capsys):
    cu("#define FROM_HEADER 1000\n", "inc/there.h")
    file = cu(
        '#include <there.h>\nextern "C" __global__ void k(int* x) {\n'
        "  x[0] = __CUDA_ARCH__ + MORE + FROM_HEADER + (__cplusplus > 201703L);\n}\n"
    )
    out = tmp_path / "out"
    options = [f"-I{tmp_path / 'inc'}", "-DMORE=7", "-arch=sm_90", "-std=c++20", f"--out={out}"]
    assert emulate(file, "k", "i32:1:empty", *options) == 0
    assert np.load(out / "arg0.npy") == [900 + 7 + 1000 + 1]
    for word, message in {
        "-arch=sm_100": "reads the PTX of sm_75, sm_80",
        "-arch=9": "not of '9'",
        "-std=c++98": "the standard is one of",
        "-DA B": "a define is NAME or NAME=VALUE",
        "-I/nowhere/at/all": "there is none called '/nowhere/at/all'",
    }.items():
        assert emulate(file, "k", "i32:1:empty", word) == 2
        assert message in capsys.readouterr().err


@needs_nvrtc
@pytest.mark.parametrize("arch", source.ARCHITECTURES)
def test_every_architecture_runs(arch, cu):
    file = cu('extern "C" __global__ void k(int* x) { x[0] = __CUDA_ARCH__; }\n')
    assert result(file, "k", "i32:1:empty", arch=arch)[0] == [int(arch[3:5]) * 10]


# -- arguments -------------------------------------------------------------------------------------
SCALARS = st.sampled_from(list(arguments.DTYPES))


@settings(max_examples=50)
@given(type_=SCALARS, data=st.data())
def test_number_is_parsed_or_refused(type_, data):
    dtype = arguments.DTYPES[type_]
    if dtype.kind in "iu":
        limit = np.iinfo(dtype)
        value = data.draw(st.integers(int(limit.min), int(limit.max)))
        assert arguments.parse(f"{type_}:{value}") == value
        assert arguments.parse(f"{type_}:{value:#x}") == value
        for outside_range in (int(limit.max) + 1, int(limit.min) - 1):
            with pytest.raises(RuleError, match="is no value of"):
                arguments.parse(f"{type_}:{outside_range}")
    else:
        value = data.draw(st.floats(-1000, 1000))
        assert arguments.parse(f"{type_}:{value!r}") == dtype.type(value)
        assert math.isinf(arguments.parse(f"{type_}:-inf")) and math.isnan(arguments.parse(f"{type_}:nan"))
        with pytest.raises(RuleError, match="is no value of"):
            arguments.parse(f"{type_}:1e400")


@settings(max_examples=50)
@given(
    type_=SCALARS,
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    ends=st.tuples(st.integers(0, 100), st.integers(0, 100)),
    seed=st.integers(0, 2**64),
)
def test_random_range_includes_its_limits(type_, shape, ends, seed):
    low, high = sorted(ends)
    array = arguments.parse(f"{type_}:{'x'.join(map(str, shape))}:{low}..{high}")
    values = array.values(np.random.default_rng(seed))
    assert values.shape == tuple(shape) and values.dtype == arguments.DTYPES[type_]
    assert (low <= values).all() and (values <= high).all()
    if values.dtype.kind in "iu":
        many = arguments.Array((5000,), array.dtype, (3, 5)).values(np.random.default_rng(seed))
        assert set(many.tolist()) == {3, 4, 5}


@settings(max_examples=50)
@given(
    text=st.text(max_size=40)
    | st.from_regex(r"(struct[0-9]{0,2}\{)?[a-z0-9]{0,4}:[0-9x²]{0,6}:[a-z0-9.]{0,8}\}?", fullmatch=True)
)
def test_any_text_is_an_argument_or_an_error(text):
    try:
        assert parameters.size(arguments.parse(text)) > 0
    except RuleError as e:
        assert str(e)
    except OSError:
        assert text.strip().endswith(".npy")


C_TYPES = {
    "i8": "signed char",
    "u8": "unsigned char",
    "i16": "short",
    "u16": "unsigned short",
    "i32": "int",
    "u32": "unsigned",
    "i64": "long long",
    "u64": "unsigned long long",
    "f32": "float",
    "f64": "double",
}


@needs_nvrtc
@settings(max_examples=6)
@given(members=st.lists(st.sampled_from([*C_TYPES, "*", "{}"]), min_size=1, max_size=6))
def test_struct_layout_equals_c(members, tmp_path_factory):
    """Each member is a different small number. The kernel reads it by the member's name."""
    fields, texts, reads, expected = [], [], [], []
    for n, type_ in enumerate(members):
        if type_ == "*":
            fields.append(f"const int* m{n};")
            texts.append("i32:3:arange")
            reads.append(f"m{n}[2]")
            expected.append(2)
        elif type_ == "{}":
            fields.append(f"struct {{ signed char c; float4 f; short s; }} m{n};")
            texts.append(f"struct{{i8:1,struct16{{f32:1,f32:2,f32:3,f32:{n}}},i16:1}}")
            reads.append(f"m{n}.f.w")
            expected.append(n)
        else:
            fields.append(f"{C_TYPES[type_]} m{n};")
            texts.append(f"{type_}:{n + 1}")
            reads.append(f"m{n}")
            expected.append(n + 1)
    file = tmp_path_factory.mktemp("struct") / "s.cu"
    lines = "\n".join(f"  out[{n}] = (double)p.{read};" for n, read in enumerate(reads))
    file.write_text(f"struct P {{ {' '.join(fields)} }};\n__global__ void k(P p, double* out) {{\n{lines}\n}}\n")
    arrays = user_kernel.emulate(
        file, "k", (1, 1, 1), (1, 1, 1), [f"struct{{{','.join(texts)}}}", f"f64:{len(members)}:empty"]
    ).arrays
    assert arrays["arg1"].tolist() == expected
    assert set(arrays) == {"arg1", *(f"arg0.{n}" for n, type_ in enumerate(members) if type_ == "*")}


@needs_nvrtc
@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "u2", ">i4", "?", "c8", ml_dtypes.bfloat16])
def test_npy_file_defines_values_type_and_shape(dtype, cu, tmp_path):
    file = cu(
        "template <class T> __global__ void copy(const T* x, T* y) { y[threadIdx.x] = x[threadIdx.x]; }\n"
        "struct Pair { float x, y; };\nstruct Half { short bits; };\n"
    )
    names = {1: "char", 2: "Half", 4: "int", 8: "Pair"}
    x = np.arange(12).reshape(3, 4).astype(dtype)
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    np.save(tmp_path / "y.npy", np.zeros_like(x))
    entry = f"copy<{names[x.itemsize]}>"
    unchanged, written = result(
        file, entry, str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), block=12, out=tmp_path / "out"
    )
    native = x.dtype.newbyteorder("=")
    assert written.dtype == unchanged.dtype == native and written.shape == (3, 4)
    np.testing.assert_array_equal(written, x.astype(native))
    saved = np.load(tmp_path / "out" / "arg1.npy")  # NumPy writes bfloat16 without its name
    np.testing.assert_array_equal(saved.view(native) if saved.dtype == "V2" else saved, x.astype(native))


def test_invalid_npy_file_is_refused(tmp_path):
    cases = {
        "text.npy": b"not an array",
        "cut.npy": b"\x93NUMPY\x01\x00v\x00{'descr'",
        "empty.npy": b"",
        "zip.npy": b"PK\x03\x04",
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "objects.npy", np.array([{}, []], dtype=object))
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    np.save(tmp_path / "none.npy", np.zeros((0, 3)))
    np.save(tmp_path / "wide.npy", np.zeros(3, np.longdouble))
    names = [*cases, "objects.npy", "words.npy", "none.npy", "wide.npy"]
    for name in names:
        with pytest.raises(RuleError, match=name):
            arguments.parse(str(tmp_path / name))
    np.save(tmp_path / "number.npy", np.float32(2.5))
    assert arguments.parse(str(tmp_path / "number.npy")) == 2.5


@needs_nvrtc
def test_variables_are_written_before_and_read_after_the_launch(cu, tmp_path):
    file = cu("""struct Config { const float* table; int n; };
__constant__ float mask[3];
__constant__ Config config;
__device__ int counter = 40;
__device__ double unset;
namespace ns { __constant__ unsigned char unused; }
__global__ void k(float* x) {
  int i = threadIdx.x;
  x[i] = mask[i] * config.table[i] + config.n;
  atomicAdd(&counter, 1);
}
""")
    constants = ["mask=f32:3:arange", "config=struct{f32:3:ones,i32:10}", "counter=i32:5", "ns::unused=u8:9"]
    run = user_kernel.emulate(file, "k", (1, 1, 1), (3, 1, 1), ["f32:3:empty"], constants=constants, out=tmp_path)
    assert run.arrays["arg0"].tolist() == [10, 11, 12]
    assert run.arrays["counter"] == 8 and run.arrays["ns::unused"] == 9
    assert np.load(tmp_path / "counter.npy") == 8 and np.load(tmp_path / "ns.unused.npy") == 9
    for constant, message in {
        "mask=f32:4:ones": "the variable mask holds 12 bytes, its value 16",
        "nothing=i32:1": "no variable 'nothing'; there are: .*mask",
        "mask": "a constant is NAME=ARG",
        "²=i32:1": "a constant is NAME=ARG",
        "mask=f32": "an argument is TYPE:VALUE",
    }.items():
        with pytest.raises(RuleError, match=message):
            user_kernel.emulate(file, "k", (1, 1, 1), (3, 1, 1), ["f32:3:empty"], constants=[constant])


@needs_nvrtc
def test_variable_named_like_an_argument_is_refused(cu):
    with pytest.raises(RuleError, match="the variable arg0 has the name of an argument here"):
        result(cu("__device__ int arg0;\n__global__ void k(int* x) { x[0] = arg0; }\n"), "k", "i32:1:ones")


@needs_nvrtc
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "k takes 3 arguments, got 0"),
        (["f32:4:zeros", "i64:1", "f32:1"], "parameter 1 is 4 bytes wide, arg1 is 8 bytes wide"),
        (["f32:4:zeros", "i32:1:zeros", "f32:1"], "parameter 1 is 4 bytes wide, arg1 is an array"),
        (["f32:4:zeros", "f32:1", "f32:1"], "parameter 1 is a whole number, arg1 is a floating-point number"),
        (["f32:4:zeros", "i32:1", "i32:1"], "parameter 2 is a floating-point number, arg2 is a whole number"),
    ],
)
def test_argument_that_does_not_match_the_parameter_is_refused(args, message, cu):
    with pytest.raises(RuleError, match=message):
        result(cu("__global__ void k(float* x, int n, float a) { x[n] = a; }\n"), "k", *args)


@needs_nvrtc
def test_struct_with_too_small_alignment_is_refused(cu):
    file = cu("__global__ void k(float4 a, float* x) { x[0] = a.w; }\n")
    numbers = "{f32:1,f32:2,f32:3,f32:4}"
    with pytest.raises(RuleError, match=r"aligned to 16 bytes, arg0 is aligned to 4: write struct16\{"):
        result(file, "k", f"struct{numbers}", "f32:1:empty")
    assert result(file, "k", f"struct16{numbers}", "f32:1:empty")[0] == [4]


# -- limits ----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--grid=2147483648"], "a grid has 1 to 2,147,483,647 blocks along x, got 2,147,483,648"),
        (["--grid=2147483647"], "the emulator runs at most"),
        (["--grid=1,70000"], "a grid has 1 to 65,535 blocks along y, got 70,000"),
        (["--grid=1,1,65536"], "a grid has 1 to 65,535 blocks along z"),
        (["--block=1025"], "a block has 1 to 1,024 threads along x"),
        (["--block=1,1,65"], "a block has 1 to 64 threads along z"),
        (["--block=64,32"], "a block has at most 1,024 threads, got 2,048"),
        (["--grid=1,1,1,1"], "one to three positive whole numbers"),
        (["--grid=0"], "one to three positive whole numbers"),
        (["--grid=²"], "one to three positive whole numbers, got '²'"),
        (["--block="], "one to three positive whole numbers"),
        (["--shared=-4"], "dynamic shared memory, in bytes, must be a whole number, 0 or more, got -4"),
        (["--shared=232449"], "at most 232,448 bytes of shared memory, got 0 declared and 232,449 dynamic"),
        (["--seed=-1"], "seed must be a whole number, 0 or more"),
        (["--arg=f32:1000000000x1000000000:zeros"], "f takes 1 arguments, got 2|bytes of the host's memory"),
        (["--arg=f32:²:zeros"], "EXTENTS 1 to 8 positive whole numbers"),
        (["--arg=i32:²"], "'²' is no value of i32"),
        (["--arg=f32:3xq:zeros"], "an array is TYPE:EXTENTS:FILL"),
        (["--arg=f32:3:9..1"], "LOW is at most HIGH"),
        (["--arg=" + "struct{" * 500 + "i32:1" + "}" * 500], "structs are at most 8 deep"),
    ],
)
def test_command_that_breaks_a_rule_is_refused(options, message, cu, capsys):
    assert (
        main(
            [
                "emulate",
                cu('extern "C" __global__ void f(int n) {}\n'),
                "f",
                "--arg=i32:1",
                *{"--grid=1": "", "--block=1": "", **dict.fromkeys(options, "")},
            ]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert any(part in error for part in message.split("|")) and "Traceback" not in error


@needs_nvrtc
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": 4}, "a grid is three whole numbers"),
        ({"block": (32,)}, "a block is three whole numbers"),
        ({"block": ("1", 1, 1)}, "a block is three whole numbers"),
        ({"args": [5]}, r"args is a list of texts, got \[5\]"),
        ({"args": "i32:1"}, "args is a list of texts, got 'i32:1'"),
        ({"args": ["i32"]}, "an argument is TYPE:VALUE"),
        ({"defines": "A"}, "defines is a list of texts"),
        ({"folders": [None]}, "folders is a list of texts"),
        ({"constants": [3]}, "constants is a list of texts"),
        ({"seconds": "1"}, "seconds must be a number above 0"),
        ({"shared": True}, "must be a whole number"),
        ({"entry": None}, "an entry is a kernel's name, got None"),
        ({"shared": "4"}, "must be a whole number"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"arch": "sm_20"}, "not of 'sm_20'"),
    ],
)
def test_python_call_that_breaks_a_rule_is_refused(options, message, cu):
    defaults = {"entry": "f", "grid": (1, 1, 1), "block": (1, 1, 1), "args": ["i32:1"]}
    with pytest.raises(RuleError, match=message):
        user_kernel.emulate(cu("__global__ void f(int n) {}\n"), **(defaults | options))


@needs_nvrtc
def test_memory_is_checked_before_it_is_allocated(cu, monkeypatch):
    file = cu('extern "C" __global__ void f(float* x) { extern __shared__ float s[]; s[0] = x[0]; x[1] = s[0]; }\n')

    def fail_on_values(*args):
        raise AssertionError("an array was made")

    monkeypatch.setattr(arguments.Array, "values", fail_on_values)
    with pytest.raises(RuleError, match=r"this launch needs 4,800,000,\d{3},\d{3} bytes of the host's memory"):
        result(file, "f", "f32:100000000000x2:zeros")
    monkeypatch.setattr(limits, "free_bytes", lambda: 10**9)
    together = cu(
        'extern "C" __global__ void f(volatile int* x) { extern __shared__ int s[]; while (!*x) ; s[0] = x[0]; x[1] = s[0]; }\n'
    )
    with pytest.raises(RuleError, match="bytes of the host's memory, 1,000,000,000 bytes are free"):
        user_kernel.emulate(together, "f", (60_000, 1, 1), (32, 1, 1), ["i32:2:zeros"], shared=200_000)


@needs_nvrtc
def test_a_grid_that_runs_in_batches_takes_the_memory_of_one(cu):
    file = cu(
        'extern "C" __global__ void f(int* x, int n) {\n  __shared__ int s[4096];\n  s[threadIdx.x] = 1;\n  __syncthreads();\n'
        "  if (n) atomicAdd(x, s[255 - threadIdx.x]);\n}\n"
    )
    run = user_kernel.emulate(file, "f", (20_000, 1, 1), (256, 1, 1), ["i32:1:zeros", "i32:0"], seconds=60)
    assert run.counters.total["barriers"] == 20_000 * 8 and not run.races


def test_static_shared_memory_has_a_separate_limit():
    def kernel(size: int) -> Kernel:
        return Kernel("k", [], {}, [Variable("s", "shared", 4, size)], [])

    limits.check_shared(kernel(48 * 1024), 179 * 1024)
    with pytest.raises(RuleError, match="declares at most 49,152 bytes"):
        limits.check_shared(kernel(48 * 1024 + 4), 0)
    with pytest.raises(RuleError, match="49,152 declared and 183,297 dynamic"):
        limits.check_shared(kernel(48 * 1024), 179 * 1024 + 1)


# -- files -----------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize(
    "content",
    [
        SCALE.encode(),
        b"\xef\xbb\xbf" + SCALE.encode(),
        SCALE.replace("\n", "\r\n").encode(),
        ("// facteur d'\xe9chelle\n" + SCALE).encode("latin-1"),
        ("// Maßstab ×\f\x0b\u2028\x85\n" + SCALE).encode(),
    ],
)
def test_source_encodings_and_line_numbers(content, cu, capsys):
    file = cu(content, "Größe.cu")
    assert emulate(file, "scale", "f32:4:ones", "f32:4:empty", "f32:2", "i32:4", block="4") == 0
    output = capsys.readouterr().out
    line = next(n for n, text in enumerate(content.split(b"\n"), 1) if b"if (i < n)" in text)
    assert any(
        row.startswith(f"{line:4} ") and row.endswith("if (i < n) y[i] = by * x[i];") for row in output.split("\n")
    )


@pytest.mark.parametrize("content", [SCALE.encode("utf-16"), b"\x7fELF\x02\x00\x00", b"a\0b"])
def test_binary_file_is_refused(content, cu, capsys):
    assert emulate(cu(content), "scale") == 2
    assert "own.cu is no CUDA C++ in UTF-8 or Latin-1" in capsys.readouterr().err


def test_too_large_file_is_refused(cu, monkeypatch, capsys):
    monkeypatch.setattr(source, "MAX_SOURCE", 100)
    assert emulate(cu("/" * 101), "scale") == 2
    assert "own.cu has more than 100 bytes" in capsys.readouterr().err


@needs_nvrtc
def test_missing_kernel_folder_and_missing_file_are_one_line_errors(cu, tmp_path, capsys):
    for file, message in {
        cu(""): "no kernel 'k'; there are: none",
        str(tmp_path): "Is a directory|Permission denied",  # as Linux or Windows says it
        str(tmp_path / "none.cu"): "No such file",
    }.items():
        assert emulate(file, "k") == 2
        error = capsys.readouterr().err
        assert any(part in error for part in message.split("|")) and error.count("\n") == 1


@needs_nvrtc
@pytest.mark.skipif(sys.platform != "linux", reason="NVRTC has 128-bit integers on Linux alone")
def test_integers_of_128_bits(cu):
    kernel = """extern "C" __global__ void k(unsigned long long* x) {
  unsigned __int128 a = (unsigned __int128)x[0] << 64 | x[1];
  a = a / x[2] + a % x[3]; x[0] = a >> 64; x[1] = a;
}
"""
    numbers = np.array([0x0123456789ABCDEF, 0xFEDCBA9876543210, 1_000_003, 0xFFFFFFFF00000001], np.uint64)
    high, low, by, modulo = numbers.tolist()
    path = Path(cu("")).parent / "numbers.npy"
    np.save(path, numbers)
    expected = (high << 64 | low) // by + (high << 64 | low) % modulo
    assert result(cu(kernel), "k", str(path))[0].tolist()[:2] == [expected >> 64, expected & (1 << 64) - 1]


@needs_nvrtc
def test_textures_and_managed_variables(cu):
    texture = """extern "C" __global__ void k(float* x, cudaTextureObject_t t) { x[0] = tex2D<float>(t, 0, 0); }\n"""
    with pytest.raises(RuleError, match=r"textures and surfaces are not emulated: tex\.2d"):
        result(cu(texture), "k", "f32:1:zeros", "u64:1")
    managed = "__device__ __managed__ int m = 5;\n"
    managed += 'extern "C" __global__ void k(int* x) { m += 2; x[0] = m; }\n'
    assert result(cu(managed), "k", "i32:1:zeros")[0].tolist() == [7]
    ten = user_kernel.emulate(cu(managed), "k", (1, 1, 1), (1, 1, 1), ["i32:1:zeros"], constants=["m=i32:10"])
    assert ten.arrays["arg0"].tolist() == [12]


@needs_nvrtc
def test_names_that_nvcc_predefines(cu):
    kernel = """typedef unsigned int uint32_t;
#define M_PI 3.5
extern "C" __global__ void k(double* x) {
  x[0] = -INFINITY; x[1] = INT_MAX; x[2] = (uint32_t)-1; x[3] = (int64_t)1 << 40; x[4] = M_PI; x[5] = M_SQRT2;
}
"""
    got = result(cu(kernel), "k", "f64:6:empty")[0]
    assert got.tolist() == [-math.inf, 2**31 - 1, 2**32 - 1, 2.0**40, 3.5, math.sqrt(2)]


@needs_nvrtc
def test_functions_without_device_attribute_compile_for_the_device(cu):
    kernel = """#include <cuda.h>
constexpr int twice(int n) { return 2 * n; }
int rounded(uint n, uint by) { return (n + by - 1) / by; }
extern "C" __global__ void k(int* x) { x[0] = twice(5); x[1] = rounded(9, 4); }
"""
    assert result(cu(kernel), "k", "i32:2:empty")[0].tolist() == [10, 3]
    host = kernel + "int main() { k<<<1, 1>>>(nullptr); return cudaDeviceSynchronize(); }\n"
    with pytest.raises(RuleError, match="Only device code is compiled: put the host's functions between"):
        result(cu(host), "k", "i32:2:empty")


POINTERS = """typedef float (*F)(float);
extern "C" __global__ void always(float* y, const float* x) {
  F f = nullptr;
  y[threadIdx.x] = f(x[threadIdx.x]);
}
extern "C" __global__ void sometimes(float* y, const float* x) {
  F f = nullptr;
  y[threadIdx.x] = 1; __syncthreads();
  if (x[threadIdx.x] > 4) y[threadIdx.x] = f(x[threadIdx.x]);
  y[threadIdx.x] += 1;
}
extern "C" __global__ void given(float* y, const float* x, F f) { y[threadIdx.x] = f(x[threadIdx.x]); }
extern "C" __global__ void made(float* y, const float* x) {
  F f = (F)(0x1234567ull + threadIdx.x);
  y[threadIdx.x] = f(x[threadIdx.x]);
}
extern "C" __global__ void unreachable(float* y, const float* x) {
  y[threadIdx.x] = 1;
  if (x[threadIdx.x] > 4) __builtin_unreachable();
  __syncthreads();
  if (x[threadIdx.x] < 9) return;
  __builtin_unreachable();
}
"""
NULL = "call of a null function pointer: it holds the address of no function"
NO_FUNCTION = "call of a pointer to no function: "


@needs_nvrtc
@pytest.mark.parametrize(
    ("entry", "message", "line", "thread", "args"),
    [
        ("always", NULL, 4, 0, ()),  # the compiler removes the call and all that follows
        ("sometimes", NULL, 9, 5, ()),
        ("given", NULL, 12, 0, ("u64:0",)),
        ("given", NO_FUNCTION + "0x1000", 12, 0, ("u64:4096",)),
        ("made", NO_FUNCTION + "0x1234567", 15, 0, ()),
    ],
)
def test_call_of_no_function_names_line_thread_and_block(cu, capsys, entry, message, line, thread, args):
    assert emulate(cu(POINTERS), entry, "f32:32:zeros", "f32:32:arange", *args, block="32") == 2
    said = capsys.readouterr().err
    assert f"{entry}, own.cu:{line}: {message}, by thread ({thread}, 0, 0) of block (0, 0, 0)" in said


@needs_nvrtc
def test_threads_that_reach_removed_code_are_an_error(cu, capsys):
    assert emulate(cu(POINTERS), "unreachable", "f32:32:zeros", "f32:32:ones", block="32") == 0
    assert emulate(cu(POINTERS), "unreachable", "f32:32:zeros", "f32:32:arange", block="32") == 2
    said = capsys.readouterr().err
    assert "the compiler removed what follows" in said and "of block (0, 0, 0)" in said


LIMITED = """__constant__ float table[4];
extern "C" __global__ void __launch_bounds__(64) bounded(float* y) { y[threadIdx.x] = 1; }
extern "C" __global__ void from_table(float* y) { y[threadIdx.x] = table[threadIdx.x]; }
extern "C" __global__ void setmaxnreg(float* y) { asm volatile("setmaxnreg.dec.sync.aligned.u32 64;"); y[threadIdx.x] = 1; }
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(float* y) { y[threadIdx.x] = 1; }
"""


@needs_nvrtc
@pytest.mark.parametrize(
    "entry, block, options, message",
    [
        ("bounded", 65, [], "at most 64 threads a block (__launch_bounds__), got 65"),
        ("from_table", 4, ["--constant=table=f32:4:empty"], "own.cu:3: read at table[0], which was never written"),
        ("from_table", 4, ["--constant=table=f32:4:ones", "--constant=table=f32:4:zeros"], "table has two values"),
        ("setmaxnreg", 128, ["--arch=sm_90"], "own.cu:4: setmaxnreg.dec.sync.aligned.u32 exists from sm_90a on"),
        ("clustered", 4, ["--arch=sm_80"], "Clusters exist from sm_90 on: --arch sm_90."),
    ],
)
def test_what_a_gpu_refuses_is_refused(entry, block, options, message, cu, capsys):
    text = LIMITED if entry == "clustered" else LIMITED.replace("__cluster_dims__(2, 1, 1)", "")
    assert emulate(cu(text), entry, "f32:128:empty", *options, block=str(block)) == 2
    assert message in capsys.readouterr().err


@needs_nvrtc
def test_blocks_within_the_bounds_run(cu):
    text = LIMITED.replace("__cluster_dims__(2, 1, 1)", "")
    assert emulate(cu(text), "bounded", "f32:64:empty", block="64") == 0
    assert emulate(cu(text), "setmaxnreg", "f32:128:empty", "--arch=sm_90a", block="128") == 0


@needs_nvrtc
def test_many_messages_of_the_compiler_are_shortened(cu, capsys):
    wrong = "".join(f"  wrong_{n}(1);\n" for n in range(400))
    assert emulate(cu('extern "C" __global__ void k(int* x) {\n' + wrong + "}"), "k", "i32:1:zeros") == 2
    printed = capsys.readouterr().err
    assert "wrong_0" in printed and "more lines" in printed and len(printed) < 2500


@needs_nvrtc
@pytest.mark.parametrize("first", [0, 1, 3])
def test_pointer_into_an_array(first, cu):
    text = """extern "C" __global__ void pairs(const float2* x, float* y, int n) {
  y[threadIdx.x] = x[threadIdx.x].x + x[threadIdx.x].y;
}"""
    args = [f"f32:32:arange+{first}", "f32:8:empty", "i32:8"]
    if first % 2:
        with pytest.raises(RuleError, match="misaligned read of 8 bytes at arg0"):
            result(cu(text), "pairs", *args, block=8)
    else:
        _, y = result(cu(text), "pairs", *args, block=8)
        np.testing.assert_array_equal(y, np.arange(16).reshape(8, 2).sum(1) + 2 * first)


@pytest.mark.parametrize("text, first", [("f32:8:0..1e+5", 0), ("f32:8:zeros+7", 7), ("f32:8:-1..1+2", 2)])
def test_plus_of_a_number_is_no_pointer(text, first):
    assert arguments.parse(text).first == first


def test_infinite_masks_and_pointers_past_the_end():
    mask = arguments.parse("f32:2x3:-inf..-inf").values(np.random.default_rng(0))
    assert np.isneginf(mask).all() and mask.shape == (2, 3)
    with pytest.raises(RuleError, match="element N of an array of 8"):
        arguments.parse("f32:8:zeros+8")
