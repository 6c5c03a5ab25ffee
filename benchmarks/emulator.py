"""Speed of the emulator: python -m benchmarks.emulator [--numba]

Four kernels with machine code and by NumPy alone: with neither counters nor checks, with counters, with counters, data races and the
checks of numbers. Then the toy im2col with its trace, memory and (--numba) Numba's CUDA simulator on a naive product.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kernels.engines.emulator.launch import Options, device_memory, launch
from kernels.machine.processor import device_name

ROOT = Path(__file__).resolve().parents[1]
TIMES = 5

NAIVE = """extern "C" __global__ void naive(const float* a, const float* b, float* c, int n) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= n || col >= n) return;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
  c[row * n + col] = sum;
}
"""
TILE = """extern "C" __global__ void tile(const float* a, const float* b, float* c, int n) {
  __shared__ float as[16][16], bs[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty;
  float sum = 0;
  for (int t = 0; t < n / 16; ++t) {
    as[ty][tx] = a[row * n + t * 16 + tx];
    bs[ty][tx] = b[(t * 16 + ty) * n + col];
    __syncthreads();
    for (int k = 0; k < 16; ++k) sum += as[ty][k] * bs[k][tx];
    __syncthreads();
  }
  c[row * n + col] = sum;
}
"""
REDUCE = """extern "C" __global__ void reduce(const float* x, float* out, int n) {
  __shared__ float part[256];
  float sum = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) sum += x[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
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
MODES = {
    "neither": Options(count=False),
    "counters": Options(),
    "counters and checks": Options(races=True, numbers=True),
}


@dataclass(frozen=True)
class Workload:
    """A kernel with its grid, block and arrays, the last of which is the result."""

    name: str
    source: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arrays: dict[str, np.ndarray]
    n: int
    expected: np.ndarray

    def run(self, options: Options) -> tuple[float, int]:
        """Returns (seconds of processor time, thread instructions or 0 without counters) of one verified launch."""
        from kernels.engines.emulator.compiler.compile import compile_ptx

        *inputs, out = self.arrays
        memory, ptx = device_memory(self.arrays, inputs), compile_ptx(self.source, "benchmark.cu")
        start = time.process_time()
        run = launch(ptx, self.entry, self.grid, self.block, [*self.arrays, np.int32(self.n)], memory, options=options)
        seconds = time.process_time() - start
        np.testing.assert_allclose(memory.array(out), self.expected, atol=1e-2)
        return seconds, run.counted.total["thread_instructions"] if options.count else 0


def product(name: str, source: str, n: int) -> Workload:
    a, b = (np.random.default_rng(seed).standard_normal((n, n), dtype=np.float32) for seed in (0, 1))
    arrays = {"a": a, "b": b, "c": np.zeros((n, n), np.float32)}
    return Workload(f"{name} {n}^3", source, name, (n // 16, n // 16, 1), (16, 16, 1), arrays, n, a @ b)


def reduction(blocks: int, n: int = 1 << 20) -> Workload:
    x = np.random.default_rng(0).standard_normal(n, dtype=np.float32)
    expected = x.reshape(-1, blocks, 256).sum(axis=(0, 2))
    arrays = {"x": x, "out": np.zeros(blocks, np.float32)}
    return Workload(f"reduction, {blocks:,} blocks", REDUCE, "reduce", (blocks, 1, 1), (256, 1, 1), arrays, n, expected)


def least(function: Callable[[], float]) -> float:
    """Returns the least of TIMES runs: the first ones also wait for fresh memory."""
    return min(function() for _ in range(TIMES))


def median(function: Callable[[], float], n: int) -> float:
    function()
    return statistics.median(function() for _ in range(n))


def toy() -> float:
    """Returns the seconds of the toy im2col with counters and a trace."""
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
    """Returns the peak memory in MB of a process that runs naive 128^3 with counters."""
    code = (
        "import resource; from benchmarks import emulator as e; e.product('naive', e.NAIVE, 128).run(e.Options());"
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


def speeds(w: Workload) -> list[str]:
    """Returns the cells of a row: million thread instructions a second with machine code and by NumPy, and milliseconds with it."""
    instructions = w.run(Options())[1]
    cells = [w.name]
    for options in MODES.values():
        fast, slow = (
            least(lambda on=on, options=options: w.run(replace(options, machine_code=on))[0]) for on in (True, False)
        )
        cells.append(f"{instructions / fast / 1e6:,.0f} ({fast * 1e3:,.0f} ms) / {instructions / slow / 1e6:,.0f}")
    return cells


def main() -> None:
    peak = peak_mb()  # before this process is large: the system counts what a new process had before it started
    print(f"{device_name()}, Python {sys.version.split()[0]}, NumPy {np.__version__}, least of {TIMES}\n")
    workloads = [product("naive", NAIVE, 256), product("tile", TILE, 512), reduction(64), reduction(4096)]
    print(f"| | {' | '.join(MODES)} |\n|---|---|---|---|")
    for w in workloads:
        print(f"| {' | '.join(speeds(w))} |", flush=True)
    small = product("naive", NAIVE, 64)
    rows = [
        ("toy im2col, counters and trace", f"{median(toy, 15) * 1e3:.0f} ms"),
        ("naive 64^3, neither", f"{least(lambda: small.run(MODES['neither'])[0]) * 1e3:.1f} ms"),
        ("peak memory of a process, naive 128^3 with counters", f"{peak:.0f} MB"),
    ]
    if "--numba" in sys.argv:
        rows.append(("Numba's CUDA simulator, naive 64^3", f"{simulated_s():.2f} s"))
    print("\n| | |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
