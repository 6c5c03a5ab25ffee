"""assert and printf in kernels: the printed lines, their threads, and the message of a failed assertion."""

from __future__ import annotations

import ctypes
import json
import struct
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernels.engines.emulator import user_kernel
from kernels.engines.emulator.compiler.compile import compile_ptx
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.instructions import printf
from kernels.engines.emulator.launch import device_memory, launch
from kernels.engines.emulator.printer import PRINT_BUFFER, Printed, Printer
from kernels.engines.emulator.threads import Threads
from tests.helpers.emulated import NAME, emulate, needs_nvrtc
from tests.helpers.emulated_numbers import i32
from tests.helpers.offenders import every

FLAGS = st.text("-+ #0", max_size=3).map(lambda flags: "".join(dict.fromkeys(flags)))
WIDTH = st.sampled_from(["", "1", "5", "12", "*"])
PRECISION = st.sampled_from(["", ".", ".0", ".1", ".4", ".15", ".*"])
STARS = st.integers(-9, 9)
# Flags that C leaves undefined for a conversion are not generated.
INTEGERS = st.builds(
    lambda length, kind: length + kind, st.sampled_from(["", "hh", "h", "l", "ll", "z"]), st.sampled_from("diuoxX")
)
FLOATS = st.sampled_from("eEfFgGaA")


def formatted(text: str, *arguments) -> bytes:
    """Returns the format applied to `arguments`: int, float or bytes."""
    out, remaining = [], list(arguments)
    for piece in printf.parts(text.encode()):
        if not isinstance(piece, printf.Spec):
            out.append(piece)
            continue
        used, remaining = remaining[: len(piece.sizes)], remaining[len(piece.sizes) :]
        last = used[-1]
        string = last if isinstance(last, bytes) else b""
        bits = [
            struct.unpack("<Q", struct.pack("<d", a))[0]
            if isinstance(a, float)
            else 1
            if isinstance(a, bytes)
            else a & (1 << 8 * size) - 1
            for a, size in zip(used, piece.sizes, strict=True)
        ]
        out.append(piece.text(bits, string))
    return b"".join(out)


def _format_by_c(text: str, *arguments) -> bytes:
    """Returns the output of this machine's C library."""
    buffer = ctypes.create_string_buffer(1 << 10)
    kinds = {float: ctypes.c_double, bytes: ctypes.c_char_p}
    stars = len(arguments) - 1
    c_arguments = [
        kinds.get(type(a), ctypes.c_int if n < stars else ctypes.c_longlong)(a) for n, a in enumerate(arguments)
    ]
    size = ctypes.CDLL(None).snprintf(buffer, ctypes.c_size_t(len(buffer)), text.encode(), *c_arguments)
    return buffer.raw[:size]


needs_c_library = pytest.mark.skipif(sys.platform == "win32", reason="another C library formats in another way")


def _stars(flags: str, width: str, precision: str, drawn_stars: tuple[int, int]) -> list[int]:
    """Returns the arguments for each *. A negative width means the flag -, which overrides 0; glibc then pads with
    zeros."""
    first = abs(drawn_stars[0]) if "0" in flags else drawn_stars[0]
    return [star for text, star in ((width, first), (precision, drawn_stars[1])) if "*" in text]


@needs_c_library
@settings(max_examples=150)
@given(FLAGS, WIDTH, PRECISION, INTEGERS, st.tuples(STARS, STARS), st.integers(-(2**63), 2**63 - 1))
@example("#", "", ".0", "o", (0, 0), 0)
@example("0", "12", ".4", "d", (0, 0), -3)
def test_integers_are_formatted_as_in_c(flags, width, precision, conversion, drawn_stars, value):
    text = f"<%{flags}{width}{precision}{conversion}>"
    arguments = (*_stars(flags, width, precision, drawn_stars), value)
    assert formatted(text, *arguments) == _format_by_c(text, *arguments)


@needs_c_library
@settings(max_examples=150)
@given(FLAGS, WIDTH, PRECISION, FLOATS, st.tuples(STARS, STARS), st.floats())
@example("", "", ".0", "a", (0, 0), 1.99)
@example("#", "", "", "a", (0, 0), 0.0)
@example("0", "12", "", "f", (0, 0), float("-inf"))
@example("", "", "", "a", (0, 0), 5e-324)
@example("", "", ".1", "a", (0, 0), 1.03125)
def test_floats_are_formatted_as_in_c(flags, width, precision, kind, drawn_stars, value):
    text = f"<%{flags}{width}{precision}{kind}>"
    arguments = (*_stars(flags, width, precision, drawn_stars), value)
    assert formatted(text, *arguments) == _format_by_c(text, *arguments)


@needs_c_library
@every("text", ["%s", "%9s|", "%-9s|", "%.3s", "%*.*s|", "%%%s%%", "a%sb\n"])
def test_strings_are_formatted_as_in_c(text):
    stars = (-8, 2) if "*" in text else ()
    assert formatted(text, *stars, b"hello") == _format_by_c(text, *stars, b"hello")


def test_undefined_conversions_stay_text():
    assert formatted("100 %y % d%", 5) == b"100 %y  5%" and formatted("%5%|%n") == b"%5%|%n"


# -- printf in a kernel --------------------------------------------------------------------------------------
def printed(source: str, *, grid=(1, 1, 1), block=(1, 1, 1), out=1):
    memory = device_memory({"out": np.zeros(out, i32)}, ["out"])
    return launch(compile_ptx(source, NAME), "k", grid, block, ["out"], memory), memory.array("out")


@needs_nvrtc
def test_every_kind_of_argument_and_the_return_value():
    source = r"""
    __device__ char word[] = "global";
    extern "C" __global__ void k(int* out) {
      char own[4] = {'o', 'w', 'n', 0};
      __shared__ char all[4]; all[0] = 's'; all[1] = 0;
      char c = 'c'; short s = -3; float f = 1.5f; unsigned char b = 200;
      int n = printf("%c %hd %f %d|%s %s %s|%5.*f|%lld %u %x %hhd|%ld|%e %g %%\n", c, s, f, -7, word, own, all, 2, 3.14159,
                     1ll << 40, 4000000000u, 255, b, -5l, 1e10, 0.0001);
      n = n * 100 + printf("none\n");
      out[0] = n * 100 + printf("%p %p\n", nullptr, (void*)0x1f);
    }"""
    run, out = printed(source)
    first = "c -3 1.500000 -7|global own s| 3.14|1099511627776 4000000000 ff -56|-5|1.000000e+10 0.0001 %"
    assert [line.text for line in run.printed] == [first, "none", "(nil) 0x1f"]
    assert out[0] == 160002


@needs_nvrtc
def test_lines_name_their_thread_and_are_joined_from_calls():
    source = r"""
    extern "C" __global__ void k(int* out) {
      if (threadIdx.y == 1 && threadIdx.x % 2 == blockIdx.x) {
        for (int j = 0; j < 3; ++j) printf("%d ", 10 * threadIdx.x + j);
        printf("\nfirst\nsecond");
      }
    }"""
    run, _ = printed(source, grid=(2, 1, 1), block=(4, 2, 1))
    rows = [((0, 0, 0), 0), ((0, 0, 0), 2), ((1, 0, 0), 1), ((1, 0, 0), 3)]
    expected = {(b, (x, 1, 0)): [f"{10 * x} {10 * x + 1} {10 * x + 2} ", "first", "second"] for b, x in rows}
    got: dict = {}
    for line in run.printed:
        got.setdefault((line.block, line.thread), []).append(line.text)
    assert got == expected and run.unprinted == 0


@needs_nvrtc
def test_format_chosen_by_each_thread_and_null_string():
    source = r"""
    extern "C" __global__ void k(int* out) {
      const char* format = threadIdx.x % 2 ? "odd %s\n" : threadIdx.x ? "even %d\n" : nullptr;
      out[threadIdx.x] = printf(format, (long long)0);
    }"""
    run, out = printed(source, block=(4, 1, 1), out=4)
    assert {(line.thread[0], line.text) for line in run.printed} == {
        (1, "odd (null)"),
        (2, "even 0"),
        (3, "odd (null)"),
    }
    assert out.tolist() == [-1, 1, 1, 1]


@needs_nvrtc
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (r'printf("%d %d\n", 5)', "printf, argument 2: read .*never written"),
        (r'printf("%s\n", (const char*)out + 4096)', "out-of-bounds read of 1 bytes"),
    ],
)
def test_invalid_argument_is_an_error_with_its_line(call, message):
    source = (
        f'extern "C" __global__ void k(int* out) {{\n  int x[2]; x[out[0]] = 1;\n  {call};\n  out[1] = x[out[2]];\n}}'
    )
    with pytest.raises(EmulatorError, match=rf"k, kernel\.cu:3: {message}"):
        printed(source, out=4)


def test_printer_stops_at_the_buffer_size():
    printer = Printer(Threads((1, 1, 1), (32, 1, 1)))
    written = 0
    while not printer.full:
        printer.write(3, b"x" * 999 + b"\n")
        written += 1
    assert written == -(-PRINT_BUFFER // 1000) == len(printer.lines())


@needs_nvrtc
def test_calls_beyond_the_buffer_are_counted():
    line = "x" * 4000
    source = f'extern "C" __global__ void k(int* out) {{ printf("{line}\\n"); out[0] = printf("%d\\n", 1); }}'
    run, out = printed(source, grid=(10, 1, 1), block=(32, 1, 1))
    stored = -(-PRINT_BUFFER // 4001)
    assert len(run.printed) == stored and run.unprinted == 2 * 320 - stored
    assert out[0] == 1  # whether or not its text is stored


@needs_nvrtc
def test_run_of_a_file_shows_printed_lines(tmp_path):
    file = tmp_path / "hello.cu"
    file.write_text(
        'extern "C" __global__ void k(int* out) { printf("I am %d\\n", threadIdx.x); out[threadIdx.x] = 1; }',
        encoding="utf-8",
    )
    run = user_kernel.emulate(file, "k", (1, 1, 1), (2, 1, 1), ["i32:2:empty"])
    assert run.printed == tuple(Printed((0, 0, 0), (n, 0, 0), f"I am {n}") for n in range(2))
    text = run.text()
    assert text.index("PTX-level counts") < text.index("block (0, 0, 0) thread (1, 0, 0): I am 1")
    data = json.loads(json.dumps(run.to_json()))
    assert data["printed"][1] == {"block": [0, 0, 0], "thread": [1, 0, 0], "text": "I am 1"}
    assert data["unprinted"] == 0


@needs_nvrtc
def test_error_shows_the_lines_printed_before_it(tmp_path):
    file = tmp_path / "hello.cu"
    source = 'extern "C" __global__ void k(int* out) {\n  for (int n = 0; n < 30; ++n) printf("n %d\\n", n);\n  assert(!out);\n}'
    file.write_text(source, encoding="utf-8")
    with pytest.raises(EmulatorError) as error:
        user_kernel.emulate(file, "k", (1, 1, 1), (1, 1, 1), ["i32:2:empty"])
    lines = str(error.value).splitlines()
    assert "hello.cu:3: the assertion !out failed" in lines[0] and lines[1].endswith("assert(!out);")
    assert lines[3:] == [f"block (0, 0, 0) thread (0, 0, 0): n {n}" for n in range(10, 30)]


# -- assert ----------------------------------------------------------------------------------------------------
ASSERTS = """extern "C" __global__ void k(int* out, int limit) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(i < limit && "too many");
  out[i] = i;
}"""


@needs_nvrtc
def test_true_assertion_has_no_effect():
    run = emulate(ASSERTS, {}, {"out": ((96,), i32)}, args=["out", i32(96)], grid=3)
    assert run["out"].tolist() == list(range(96)) and run.at(3)["divergent_branches"] == 0


@needs_nvrtc
def test_failed_assertion_names_expression_line_thread_and_block():
    match = (
        r'^k, kernel\.cu:3: the assertion i < limit && "too many" failed, by thread \(6, 0, 0\) of block \(2, 0, 0\)$'
    )
    with pytest.raises(EmulatorError, match=match):
        emulate(ASSERTS, {}, {"out": ((96,), i32)}, args=["out", i32(70)], grid=3)


@needs_nvrtc
def test_failed_assertion_in_a_called_function():
    source = """
__device__ int half(int n) {
  assert(n % 2 == 0);
  return n / 2;
}
extern "C" __global__ void k(int* out) {
  out[threadIdx.x] = half(2 * threadIdx.x + (threadIdx.x == 5));
}"""
    match = r"k, kernel\.cu:7 .*: the assertion n % 2 == 0 failed at kernel\.cu:3, by thread \(5, 0, 0\)"
    with pytest.raises(EmulatorError, match=match):
        emulate(source, {}, {"out": ((32,), i32)})
