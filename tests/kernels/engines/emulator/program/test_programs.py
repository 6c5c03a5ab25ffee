"""Whole programs: six as students write them, and what is wrong in others is named with its line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.__main__ import main
from kernels.engines.emulator import calls
from kernels.engines.emulator.compiler.compile import CompileError
from kernels.engines.emulator.errors import EmulatorError
from kernels.engines.emulator.program.run import Ended, run, solve
from tests.helpers.emulated import needs_nvrtc

pytestmark = needs_nvrtc
PROGRAMS = Path("tests/fixtures/programs")
HEAD = """#include <stdio.h>
#include <cuda_runtime.h>
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""


@pytest.fixture
def ended(tmp_path):
    """Returns a function that runs a program whose lines follow HEAD's 6."""

    def run_text(text: str, *arguments: str, **options) -> Ended:
        file = tmp_path / "own.cu"
        file.write_text(HEAD + text)
        return run(file, arguments, **options)

    return run_text


def test_host_code_may_call_itself_thousands_of_times(ended, monkeypatch):
    text = """int depth(int n, const volatile int* up) { volatile int own = *up + 1; return n ? depth(n - 1, &own) : own; }
int main() { volatile int none = 0; printf("%d\\n", depth(N, &none)); }"""
    assert ended(text.replace("N", "2000")).printed == b"2001\n"
    monkeypatch.setattr(calls, "HOST_STACK", 1 << 15)
    with pytest.raises(EmulatorError, match=r"recursion too deep: .* need more than the 32,768 bytes of stack, by"):
        ended(text.replace("N", "2000"))


@pytest.mark.parametrize(
    "name, printed, launch",
    [
        ("vector_add", "Test PASSED\n", ("add", (4, 1, 1), (256, 1, 1))),
        ("matrix_mul", "largest error 0\n", ("matmul<8>", (3, 3, 1), (8, 8, 1))),
        ("reduction", "sum 4500, expected 4500\n", ("reduce", (8, 1, 1), (64, 1, 1))),
        ("transpose", "transposed 24x40\n", ("transpose", (3, 2, 1), (16, 4, 1))),
        ("scan", "0 of 64 wrong\n", ("scan", (1, 1, 1), (64, 1, 1))),
        ("histogram", " 7: 56\n", ("histogram", (4, 1, 1), (64, 1, 1))),
    ],
)
def test_a_program_runs_as_it_is_written(name, printed, launch):
    file = PROGRAMS / f"{name}.cu"
    found = run(file)
    assert found.status == 0 and found.printed.decode().endswith(printed) and found.notes == ()
    (only,) = found.launches
    assert (only.kernel, only.grid, only.block) == launch and only.races == only.warnings == only.notes == ()
    line = int(only.line.removeprefix(f"{name}.cu:"))
    assert "<<<" in file.read_text().splitlines()[line - 1]
    assert only.counters.total["warp_instructions"] > 0


def test_arguments_of_a_program():
    assert run(PROGRAMS / "scan.cu", ["-n", "16"]).printed == b"0 of 16 wrong\n"
    assert run(PROGRAMS / "vector_add.cu", ["70"]).launches[0].grid == (1, 1, 1)


MAIN = """int main() {
  float *x, *y, h[64] = {1, 2};
  cudaMalloc(&x, sizeof h); cudaMalloc(&y, sizeof h);
  cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
  BODY
}"""


@pytest.mark.parametrize(
    "body, message",
    [
        ("twice<<<2, 64>>>(x, y, 65);", r"twice, own\.cu:5: out-of-bounds read of 4 bytes just past the end of device memory 1 \(own\.cu:9\)"),
        ("return (int)x[3];", r"main, own\.cu:11: read at device memory 1 \(own\.cu:9\)\[3\].* it is memory of the device, which the host"),
        ("float* big = (float*)malloc(1 << 16); twice<<<1, 64>>>(big, y, 64);", r"twice, own\.cu:5: read at host memory.* of the host, which the device"),
        ("cudaMemcpy(h, x, 4 * sizeof h, cudaMemcpyDeviceToHost);", r"main, own\.cu:11: a copy of 1,024 bytes.* device memory 1"),
        ("float* p = new float[4]; delete[] p; delete[] p;", r"main, own\.cu:11: free of .* freed before"),
        ("int n = 0; while (cudaSuccess == 0) ++n;", r"main, own\.cu:11: .*(never ends|stopped after)"),
    ],
)  # fmt: skip
def test_a_fault_names_its_line_and_the_memory(ended, body, message):
    with pytest.raises(EmulatorError, match=message):
        ended(MAIN.replace("BODY", body), seconds=2)


@pytest.mark.parametrize(
    "body, code, note",
    [
        ("cudaMemcpy(h, x, sizeof h, cudaMemcpyHostToDevice); return cudaGetLastError();", 1, None),
        ("return cudaMemcpy(x, h, sizeof h, cudaMemcpyDeviceToHost);", 1, None),
        ("twice<<<1, 2048>>>(x, y, 64); return cudaGetLastError();", 9, "a block has"),
        ("twice<<<0, 64>>>(x, y, 64); return cudaGetLastError();", 9, "a grid has"),
        ("twice<<<1, 64, 60000>>>(x, y, 64); return cudaGetLastError();", 9, "cudaFuncSetAttribute"),
        ("cudaFuncSetAttribute(twice, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);"
         " twice<<<1, 64, 60000>>>(x, y, 64); return cudaGetLastError();", 0, None),
        ("twice<<<1, 2048>>>(x, y, 64); cudaGetLastError(); return cudaGetLastError();", 0, "a block has"),
        ("return cudaFree(h);", 1, None),
        ("cudaFree(x); return cudaFree(x);", 1, None),
        ("return cudaSetDevice(3);", 101, None),
        ("return cudaMalloc(&x, 1ull << 40);", 2, None),
        ("cudaMemcpy(h, y, sizeof h, cudaMemcpyDeviceToHost); return 0;", 0, "256 of 256 bytes of this copy were never written"),
        ("exit(7);", 7, None),
        ("return cudaMemcpy(x, h, sizeof h, (cudaMemcpyKind)7);", 21, None),
        ("cudaMemcpy(x, h, sizeof h, (cudaMemcpyKind)5); return cudaGetLastError();", 21, None),
        ("return cudaMemcpy(x, y, sizeof h, cudaMemcpyHostToHost);", 1, None),
        ("return cudaMemcpy(x, h, sizeof h, cudaMemcpyDeviceToDevice);", 1, None),
        ("return cudaMemcpy(h, h + 32, 8, cudaMemcpyDefault) + cudaMemcpy(x, h, 8, cudaMemcpyDefault);", 0, None),
        ("return cudaMemcpy(nullptr, h, 8, cudaMemcpyHostToDevice);", 1, "refused: its destination is a null pointer"),
        ("float* p = 0; cudaMemcpy(x, p, 8, cudaMemcpyHostToDevice); return cudaGetLastError();", 1, "its source is a null pointer"),
        ("return cudaMemcpy(0, 0, 8, cudaMemcpyDefault);", 1, "its destination is a null pointer"),
        ("return cudaMemcpyAsync(0, h, 8, cudaMemcpyHostToDevice);", 1, "its destination is"),
        ("return cudaMemset(0, 0, 8);", 1, "its destination is a null pointer"),
        ("return cudaMemcpy(0, 0, 0, cudaMemcpyHostToDevice) + cudaMemset(0, 0, 0);", 0, None),
        ("return cudaMemcpy2D(x, 16, h, 32, 32, 2, cudaMemcpyHostToDevice);", 12, None),
        ("return cudaMemcpy2D(x, 32, h, 16, 32, 2, cudaMemcpyHostToDevice);", 12, None),
        ("cudaMemcpy2D(x, 32, h, 16, 32, 2, cudaMemcpyHostToDevice); return cudaGetLastError();", 12, None),
        ("return cudaMemcpy2D(x, 32, h, 16, 16, 2, cudaMemcpyHostToDevice);", 0, None),
        ("return cudaMemcpy2D(x, 32, h, 16, 16, 2, (cudaMemcpyKind)6);", 21, None),
    ],
)  # fmt: skip
def test_errors_of_the_runtime_come_back_as_codes(ended, body, code, note):
    found = ended(MAIN.replace("BODY", body))
    assert found.status == code
    assert (found.notes == ()) if note is None else (len(found.notes) == 1 and note in found.notes[0])
    assert note is None or found.notes[0].startswith("own.cu:11: ")


def test_each_launch_is_counted_and_checked(ended):
    text = """__global__ void sum(const float* x, float* total) { *total += x[threadIdx.x]; }
int main() {
  float *x, *y, h[64] = {1, 2}, total = 0;
  cudaMalloc(&x, sizeof h); cudaMalloc(&y, sizeof h);
  cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
  for (int r = 0; r < 3; ++r) twice<<<2, 32>>>(x, y, 64);
  cudaMemcpy(y, &total, sizeof total, cudaMemcpyHostToDevice);
  sum<<<1, 64>>>(x, y);
  cudaDeviceSynchronize();
}"""
    found = ended(text)
    assert [launch.kernel for launch in found.launches] == ["twice"] * 3 + ["sum"]
    *first, last = found.launches
    assert {launch.counters.total["sectors_ld"] for launch in first} == {8} and not any(
        launch.races for launch in first
    )
    assert any("data race on global memory" in race and "device memory 2" in race for race in last.races)


def test_a_kernel_that_launches_kernels_is_refused_with_its_line(ended):
    text = """__global__ void parent(float* x) { twice<<<1, 32>>>(x, x, 32); }
int main() { float* x; cudaMalloc(&x, 256); cudaMemset(x, 0, 256); parent<<<1, 1>>>(x); return 0; }"""
    with pytest.raises(EmulatorError, match=r"parent, own\.cu:7: .*dynamic parallelism"):
        ended(text)


def test_output_of_kernels_and_of_the_host_is_in_order(ended):
    text = """__global__ void hello() { printf("thread %d\\n", threadIdx.x); }
int main() { printf("before\\n"); hello<<<1, 2>>>(); cudaDeviceSynchronize(); printf("after %s\\n", cudaGetErrorName(cudaGetLastError())); }"""
    assert ended(text).printed.decode() == "before\nthread 0\nthread 1\nafter cudaSuccess\n"


def test_what_the_compiler_does_not_know_is_refused_with_its_line(ended):
    with pytest.raises(CompileError, match=r"own\.cu\(7\): error"):
        ended("int main() { std::thread t; return 0; }")
    with pytest.raises(CompileError, match=r"host_main"):
        ended("int other() { return 0; }")


SOLVE = """extern "C" void solve(const float* x, float* y, int n) {
  int threads = 32, blocks = (n + threads - 1) / threads;
  twice<<<blocks, threads>>>(x, y, n);
  cudaDeviceSynchronize();
}"""


@pytest.mark.parametrize("factor, right", [(2, True), (3, False)])
def test_solve_is_called_with_arrays_of_the_device(tmp_path, factor, right):
    (tmp_path / "own.cu").write_text(HEAD + SOLVE)
    found = solve(tmp_path / "own.cu", ["f32:70:random", "f32:70:empty", "i32:70"], check=f"{factor} * arg0")
    assert found.compared and found.compared.right == right and found.launches[0].grid == (3, 1, 1)


def test_solve_with_a_fault(tmp_path, capsys):
    (tmp_path / "own.cu").write_text(
        HEAD + SOLVE.replace("blocks = (n + threads - 1) / threads", "blocks = n / threads")
    )
    arguments = [word for arg in ("f32:70:random", "f32:70:empty", "i32:70") for word in ("--arg", arg)]
    assert main(["program", str(tmp_path / "own.cu"), *arguments, "--check", "2 * arg0"]) == 1
    assert "wrong: 6 of 70 elements of arg1 differ" in capsys.readouterr().err
    (tmp_path / "own.cu").write_text(HEAD + SOLVE.replace("cudaDeviceSynchronize();", "y[0] = 1;"))
    with pytest.raises(EmulatorError, match=r"solve, own\.cu:10: write at arg1\[0\]: it is memory of the device"):
        solve(tmp_path / "own.cu", ["f32:70:random", "f32:70:empty", "i32:70"])


def test_the_command(capsys):
    assert main(["program", str(PROGRAMS / "vector_add.cu"), "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == 0 and found["printed"] == "Test PASSED\n" and found["launches"][0]["kernel"] == "add"


def test_the_command_ends_with_the_programs_status(tmp_path):
    (tmp_path / "own.cu").write_text(HEAD + 'int main() { printf("out\\n"); return 3; }')
    command = [sys.executable, "-m", "kernels", "program", str(tmp_path / "own.cu")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "out\n")


@pytest.mark.parametrize(
    "lines, message",
    [
        ("float* h = (float*)malloc(200); cudaMemcpy(h, d, 400, cudaMemcpyDeviceToHost);", "byte 200 of an allocation of 200"),
        ("float* h = new float[50]; cudaMemcpy(d, h, 400, cudaMemcpyHostToDevice);", "byte 200 of an allocation of 200 bytes"),
        ("float* h = (float*)malloc(400); free(h); cudaMemcpy(d, h, 400, cudaMemcpyHostToDevice);", "400 bytes, which was freed"),
        ("float* h = (float*)malloc(400); cudaFree(d); cudaMemcpy(h, d, 400, cudaMemcpyDeviceToHost);", "[0], which was freed"),
        ("cudaFree(d); twice<<<1, 100>>>(d, d, 100);", "which was freed"),
        ("float* h = (float*)malloc(400); free(h); printf(\"%g\", h[0]);", "which was freed$|which was freed, by"),
    ],
)  # fmt: skip
def test_memory_that_is_not_there_is_not_copied(ended, lines, message):
    text = f"int main() {{\n  float* d; cudaMalloc(&d, 400);\n  cudaMemset(d, 0, 400);\n  {lines}\n  return 0;\n}}"
    with pytest.raises(EmulatorError) as raised:
        ended(text)
    assert re.search(message.replace("[0]", r"\[0\]"), str(raised.value)), str(raised.value)
    assert "which the device cannot access" not in str(raised.value)


def test_only_memory_of_the_device_is_freed_by_cuda(ended):
    text = """int main() {
  float *first = (float*)malloc(40), *second = (float*)malloc(40);
  second[0] = 2;
  cudaError_t a = cudaFree(first), b = cudaFree(second);
  printf("%d %d %g\\n", a, b, second[0]);
}"""
    assert ended(text).printed == b"1 1 2\n"


@pytest.mark.parametrize(
    "value, compared", [("x[threadIdx.x]", False), ("__float_as_int(-2.0f * threadIdx.x - 1)", True)]
)
def test_whole_numbers_in_memory_of_a_program_are_no_floats(ended, value, compared):
    text = f"""__global__ void least(int* m, const int* x) {{ atomicMin(m, {value}); }}
int main() {{
  int h[32], *m, *x; cudaMalloc(&m, 4); cudaMalloc(&x, sizeof h);
  for (int i = 0; i < 32; ++i) h[i] = -100000000 * (i % 20) - 5;
  cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice); cudaMemset(m, 0x80, 4);
  least<<<1, 32>>>(m, x);
}}"""
    (only,) = ended(text).launches
    assert [("as whole numbers of their bits" in message) for message in only.warnings] == [True] * compared


@pytest.mark.parametrize(
    "lines, code",
    [
        ("cudaEventCreate(&a); cudaEventCreate(&b); cudaEventRecord(a); cudaEventRecord(b);", 0),
        ("cudaEventCreate(&a); cudaEventCreate(&b); cudaEventRecord(a);", 400),
        ("cudaEventCreate(&a); cudaEventCreate(&b); cudaEventRecord(b, 0);", 400),
        ("cudaEventCreateWithFlags(&a, cudaEventDisableTiming); cudaEventCreate(&b); cudaEventRecord(a); cudaEventRecord(b);", 400),
        ("cudaEventCreateWithFlags(&a, cudaEventBlockingSync); cudaEventCreate(&b); cudaEventRecord(a); cudaEventRecord(b);", 0),
        ("cudaEventCreate(&a); b = 0; cudaEventRecord(a);", 400),
    ],
)  # fmt: skip
def test_the_time_between_events_that_were_not_recorded(ended, lines, code):
    text = f"""int main() {{
  cudaEvent_t a, b; float ms = -1;
  {lines}
  cudaError_t e = cudaEventElapsedTime(&ms, a, b);
  printf("%d %g %s", e == cudaGetLastError(), ms, cudaGetErrorName(e));
  return e ? 1 : 0;
}}"""
    found = ended(text)
    name = "cudaErrorInvalidResourceHandle" if code else "cudaSuccess"
    assert found.printed.decode() == f"1 {-1 if code else 0} {name}"
    with pytest.raises(EmulatorError, match="which was freed"):
        ended("int main() { cudaEvent_t a; cudaEventCreate(&a); cudaEventDestroy(a); return cudaEventRecord(a); }")
