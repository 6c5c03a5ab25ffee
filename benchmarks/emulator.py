"""Speed of the emulator: python -m benchmarks.emulator [--numba]

Naive SGEMM without and with counters, memory, the toy im2col with counters and trace, and (--numba, if Numba is
installed) Numba's CUDA simulator on the same naive SGEMM.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from kernels.machine.processor import device_name

ROOT = Path(__file__).resolve().parents[1]

NAIVE = """extern "C" __global__ void sgemm(const float* A, const float* B, float* C, int n) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= n || col >= n) return;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += A[row * n + k] * B[k * n + col];
  C[row * n + col] = sum;
}
"""
SIMULATED = """
import time, numpy as np
from numba import cuda
@cuda.jit
def sgemm(A, B, C):
    col, row = cuda.grid(2)
    if row < A.shape[0] and col < A.shape[0]:
        sum = np.float32(0)
        for k in range(A.shape[0]):
            sum += A[row, k] * B[k, col]
        C[row, col] = sum
n = 64
A, B = (np.random.default_rng(s).standard_normal((n, n), dtype=np.float32) for s in (0, 1))
C = np.zeros((n, n), np.float32)
start = time.perf_counter()
sgemm[(n // 16, n // 16), (16, 16)](A, B, C)
took = time.perf_counter() - start
assert np.allclose(C, A @ B, atol=1e-3)
print(took)
"""


def sgemm(n: int, count: bool) -> tuple[float, int]:
    """Returns (seconds, thread instructions, 0 if not counted) of one naive n^3 product, verified."""
    from kernels.engines.emulator.compiler.compile import compile_ptx
    from kernels.engines.emulator.launch import Options, device_memory, launch

    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    ptx = compile_ptx(NAIVE, "naive.cu")
    memory = device_memory({"A": A, "B": B, "C": np.zeros((n, n), np.float32)}, ["A", "B"])
    blocks = -(-n // 16)
    start = time.perf_counter()
    args = ("A", "B", "C", np.int32(n))
    run = launch(ptx, "sgemm", (blocks, blocks, 1), (16, 16, 1), args, memory, options=Options(count=count))
    duration = time.perf_counter() - start
    assert np.allclose(memory.array("C"), A @ B, atol=1e-3)
    return duration, run.counters.total["thread_instructions"] if count else 0


def median(function, n: int = 7) -> float:
    function()
    return statistics.median(function() for _ in range(n))


def toy() -> float:
    from kernels.conv.shape import ConvShape
    from kernels.engines import emulator
    from kernels.ladders import find
    from kernels.runner import seeded_inputs

    rung = find("conv/im2col-gemm")
    program = rung.build(ConvShape(1, 1, 8, 8, 2, 3, 3), rung.default_tiles)
    inputs = seeded_inputs(program.of_role("input"))
    start = time.perf_counter()
    emulator.trace_launch(program, 0, inputs)
    return time.perf_counter() - start


def peak_mb() -> float:
    """Returns the peak memory in MB of a process that runs 128^3 with counters."""
    code = (
        "import resource; from benchmarks import emulator; emulator.sgemm(128, True);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return printed_number(code)


def simulated_s() -> float:
    """Returns the seconds of 64^3 in Numba's CUDA simulator."""
    return printed_number(SIMULATED, NUMBA_ENABLE_CUDASIM="1")


def printed_number(code: str, **environment: str) -> float:
    """Returns the number that a program in another process prints."""
    command = [sys.executable, "-c", code]
    env = os.environ | environment
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=ROOT).stdout)


def main() -> None:
    instructions = sgemm(128, True)[1]
    uncounted, counted = median(lambda: sgemm(128, False)[0]), median(lambda: sgemm(128, True)[0])
    small = median(lambda: sgemm(64, False)[0])
    rows = [
        (
            "naive SGEMM 128^3, no counters",
            f"{uncounted * 1e3:.0f} ms, {instructions / uncounted / 1e6:.0f} M thread-instructions/s",
        ),
        ("the same with counters", f"{counted * 1e3:.0f} ms"),
        ("memory of that process", f"{peak_mb():.0f} MB"),
        ("toy im2col, counters and trace", f"{median(toy, 15) * 1e3:.0f} ms"),
        ("naive SGEMM 64^3, no counters", f"{small * 1e3:.1f} ms"),
    ]
    if "--numba" in sys.argv:
        simulated = simulated_s()
        rows.append(("Numba's CUDA simulator, 64^3", f"{simulated:.2f} s: {simulated / small:.0f} times as long"))
    print(f"{device_name()}, Python {sys.version.split()[0]}, NumPy {np.__version__}, medians of 7\n")
    print("| | |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
