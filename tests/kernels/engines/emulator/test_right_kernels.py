"""Right kernels as people write them: the emulator computes what NumPy does and reports no race, no number that went wrong and
nothing left unwritten or unread."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from kernels.engines.emulator import ledger
from kernels.engines.emulator.compiler.compile import OPTIONS, compile_ptx
from kernels.engines.emulator.launch import Options, device_memory, launch
from tests.helpers.emulated import NAME, needs_nvrtc

pytestmark = [needs_nvrtc, pytest.mark.usefixtures("both_ways")]
Arrays = Mapping[str, np.ndarray]
f16, f32, f64, i8, i32, i64, u8, u32, u64 = (
    np.float16,
    np.float32,
    np.float64,
    np.int8,
    np.int32,
    np.int64,
    np.uint8,
    np.uint32,
    np.uint64,
)
INF, NAN = f32("inf"), f32("nan")
PRELUDE = """#define KERNEL extern "C" __global__ void k
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define INF __int_as_float(0x7f800000)
typedef unsigned u32; typedef unsigned long long u64;
"""
HEADERS = {
    "cg::": "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n",
    "cuda::": "#include <cuda/atomic>\n",
    "half": "#include <cuda_fp16.h>\n",
    "bfloat16": "#include <cuda_bf16.h>\n",
}


@dataclass(frozen=True)
class Kernel:
    """`inputs` are arrays, and numbers that are passed by value; `outputs` are (shape, dtype) and come before them among the
    parameters. `expected`: the first array, or a function of all arrays that returns what was found and what is right.
    `error`: the largest relative or absolute one."""

    source: str
    expected: np.ndarray | Callable[[Arrays], tuple]
    inputs: Mapping[str, np.ndarray | np.generic] = field(default_factory=dict)
    outputs: Mapping[str, tuple] = field(default_factory=dict)
    grid: int = 1
    block: int = 32
    error: float = 1e-5


def _check(kernel: Kernel, order: str) -> None:
    values = {name: (np.ndarray, np.zeros(*of)) for name, of in kernel.outputs.items()}
    values |= {name: (type(value), value) for name, value in kernel.inputs.items()}
    arrays = {f"arg {name}": value for name, (kind, value) in values.items() if kind is np.ndarray}
    memory = device_memory(arrays, [f"arg {name}" for name in kernel.inputs])
    args = [f"arg {name}" if kind is np.ndarray else value for name, (kind, value) in values.items()]
    headers = "".join(text for word, text in HEADERS.items() if word in kernel.source)
    ptx = compile_ptx(headers + PRELUDE + kernel.source, NAME, OPTIONS)
    options = Options(races=True, numbers=True, order=order)
    run = launch(ptx, "k", (kernel.grid, 1, 1), (kernel.block, 1, 1), args, memory, 0, options)
    after = {name.removeprefix("arg "): memory.array(name) for name in arrays}
    found, right = (
        kernel.expected(after) if callable(kernel.expected) else (next(iter(after.values())), kernel.expected)
    )
    np.testing.assert_allclose(np.asarray(found, f64), np.asarray(right, f64), kernel.error, kernel.error)
    assert run.races == ()
    assert run.warnings == ()
    assert list(run.ended.first_nan.messages()) == []
    assert ledger.notes(run.ended) == ()


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _ints(n: int, top: int = 100, seed: int = 0) -> np.ndarray:
    return _random(seed).integers(0, top, n).astype(i32)


def _floats(n: int | tuple[int, ...], seed: int = 0) -> np.ndarray:
    return _random(seed).standard_normal(n).astype(f32)


def _words(n: int, seed: int = 0) -> np.ndarray:
    return _random(seed).integers(0, 1 << 32, n).astype(u32)


def _out(n: int | tuple[int, ...], dtype: type = f32) -> dict[str, tuple]:
    return {"out": (n, dtype)}


def _followed(arrays: Arrays) -> tuple:
    """Returns the nodes of each bucket's list, in order of their numbers."""
    heads, following = arrays["head"], arrays["next"]
    found = []
    for bucket, node in enumerate(heads):
        while node >= 0:
            found.append((node, bucket))
            node = following[node]
    return sorted(found), [(n, n % 4) for n in range(128)]


def _hops(offsets: np.ndarray, targets: np.ndarray) -> list[int]:
    hops, frontier = {0: 0}, [0]
    while frontier:
        reached = []
        for node in frontier:
            for to in targets[offsets[node] : offsets[node + 1]].tolist():
                if to not in hops:
                    hops[to] = hops[node] + 1
                    reached.append(to)
        frontier = reached
    return [hops.get(n, -1) for n in range(len(offsets) - 1)]


def _components(n: int, edges: np.ndarray) -> list[int]:
    smallest = list(range(n))
    for _ in range(n):
        for a, b in edges.tolist():
            smallest[a] = smallest[b] = min(smallest[a], smallest[b])
    return smallest


def _shortest(d: np.ndarray) -> np.ndarray:
    d = d.copy()
    for k in range(len(d)):
        d = np.minimum(d, d[:, k : k + 1] + d[k])
    return d


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """Returns the length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        old = row
        row = [0]
        for j, y in enumerate(b):
            row.append(old[j] + 1 if x == y else max(row[-1], old[j + 1]))
    return row[-1]


def _ring(token: int, x: np.ndarray, rounds: int) -> int:
    for v in x.tolist() * rounds:
        token = token * 3 % 1009 + v
    return token


def _jacobi(x: np.ndarray, steps: int) -> np.ndarray:
    x = x.astype(f64)
    for _ in range(steps):
        x[1:-1] = (x[:-2] + x[2:]) / 2
    return x


INTS, FLOATS, WORDS = _ints(256), _floats(256), _words(256)
EDGES = _random(3).integers(0, 48, (40, 2)).astype(i32)
TARGETS = np.stack([_ints(64, 64, 4), (np.arange(64) * 5 + 3) % 64], 1).astype(i32).ravel()
OFFSETS = np.arange(0, 129, 2, dtype=i32)
A, B = _floats((32, 32), 1), _floats((32, 32), 2)
DISTANCES = np.where(np.eye(16) > 0, 0, _ints(256, 90, 5).reshape(16, 16) + 1).astype(i32)
TEXTS = _ints(32, 4, 6), _ints(32, 4, 7)

ORDERED = {
    "a block's sum by shuffles and shared memory": Kernel(
        """KERNEL(float* out, const float* x, int n) {
  __shared__ float part[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = 0;
  for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = lane < blockDim.x / 32 ? part[lane] : 0;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (lane == 0) out[blockIdx.x] = sum;
  }
}""",
        lambda a: (a["out"].sum(), FLOATS.sum(dtype=f64)),
        {"x": FLOATS, "n": i32(256)}, _out(2), 2, 64,
    ),
    "a sum that the last block ends": Kernel(
        """__device__ unsigned arrived;
KERNEL(float* out, float* part, const float* x) {
  __shared__ float s[64];
  __shared__ bool last;
  int t = threadIdx.x;
  s[t] = x[INDEX];
  for (int d = 32; d > 0; d >>= 1) {
    __syncthreads();
    if (t < d) s[t] += s[t + d];
  }
  if (t == 0) {
    part[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t == 0) {
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += ((volatile float*)part)[b];
    *out = sum;
  }
}""",
        FLOATS.sum(dtype=f64, keepdims=True), {"x": FLOATS}, {**_out(1), "part": (4, f32)}, 4, 64,
    ),
    "a look-back scan by relaxed words": Kernel(
        """KERNEL(int* out, const int* x, u64* state, unsigned* next) {
  __shared__ int s[64], before;
  __shared__ unsigned ticket;
  int t = threadIdx.x;
  if (t == 0) ticket = atomicAdd(next, 1);
  __syncthreads();
  unsigned tile = ticket;
  s[t] = x[tile * 64 + t];
  __syncthreads();
  for (int d = 1; d < 64; d *= 2) {
    int y = t >= d ? s[t - d] : 0;
    __syncthreads();
    s[t] += y;
    __syncthreads();
  }
  if (t == 63) {
    auto word = [&](int i) { return cuda::atomic_ref<u64, cuda::thread_scope_device>(state[i]); };
    unsigned sum = s[t], found = 0;
    word(tile).store((tile ? 1ull : 2ull) << 32 | sum, cuda::memory_order_relaxed);
    for (int i = (int)tile - 1; i >= 0; --i) {
      u64 w;
      do w = word(i).load(cuda::memory_order_relaxed); while (w >> 32 == 0);
      found += (unsigned)w;
      if (w >> 32 == 2) break;
    }
    if (tile) word(tile).store(2ull << 32 | (found + sum), cuda::memory_order_relaxed);
    before = found;
  }
  __syncthreads();
  out[tile * 64 + t] = before + s[t];
}""",
        INTS.cumsum(), {"x": INTS, "state": np.zeros(4, u64), "next": np.zeros(1, u32)}, _out(256, i32), 4, 64,
    ),
    "a look-back scan by volatile flags and fences": Kernel(
        """KERNEL(int* out, int* sums, int* prefixes, const int* x, volatile int* flag, int* next) {
  __shared__ int tile, before, warps[2];
  int t = threadIdx.x;
  if (t == 0) tile = atomicAdd(next, 1);
  __syncthreads();
  int b = tile, v = x[b * 64 + t];
  for (int d = 1; d < 32; d *= 2) {
    int y = __shfl_up_sync(~0u, v, d);
    if (t % 32 >= d) v += y;
  }
  if (t % 32 == 31) warps[t / 32] = v;
  __syncthreads();
  if (t >= 32) v += warps[0];
  if (t == 0) {
    int own = warps[0] + warps[1], found = 0;
    sums[b] = own;
    __threadfence();
    flag[b] = 1;
    for (int i = b - 1; i >= 0; --i) {
      int f;
      while ((f = flag[i]) == 0);
      __threadfence();
      if (f == 2) { found += prefixes[i]; break; }
      found += sums[i];
    }
    prefixes[b] = found + own;
    __threadfence();
    flag[b] = 2;
    before = found;
  }
  __syncthreads();
  out[b * 64 + t] = before + v;
}""",
        INTS.cumsum(), {"x": INTS, "flag": np.zeros(4, i32), "next": np.zeros(1, i32)},
        {**_out(256, i32), "sums": (4, i32), "prefixes": (4, i32)}, 4, 64,
    ),
    "a chained scan by acquire and release": Kernel(
        """__device__ int acquired(int* p) {
  int v; asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v;
}
__device__ void release(int* p, int v) { asm volatile("st.release.gpu.global.s32 [%0], %1;" :: "l"(p), "r"(v) : "memory"); }
KERNEL(int* out, int* totals, const int* x, int* ready) {
  __shared__ int s[32], before;
  int t = threadIdx.x, b = blockIdx.x;
  s[t] = x[INDEX];
  __syncwarp();
  int sum = 0;
  for (int j = 0; j <= t; ++j) sum += s[j];
  if (t == 31) {
    if (b > 0) while (!acquired(ready + b - 1));
    before = b > 0 ? totals[b - 1] : 0;
    totals[b] = before + sum;
    release(ready + b, 1);
  }
  __syncwarp();
  out[INDEX] = before + sum;
}""",
        INTS.cumsum(), {"x": INTS, "ready": np.zeros(8, i32)}, {**_out(256, i32), "totals": (8, i32)}, 8,
    ),
    "a normalisation with barriers of the grid": Kernel(
        """KERNEL(float* out, float* part, const float* x) {
  __shared__ float s[64];
  cg::grid_group grid = cg::this_grid();
  int t = threadIdx.x;
  s[t] = x[INDEX];
  __syncthreads();
  if (t == 0) {
    float sum = 0;
    for (int j = 0; j < 64; ++j) sum += s[j];
    part[blockIdx.x] = sum;
  }
  grid.sync();
  if (INDEX == 0) for (int b = 1; b < gridDim.x; ++b) part[0] += part[b];
  grid.sync();
  out[INDEX] = s[t] / part[0];
}""",
        (FLOATS**2 + 1) / (FLOATS**2 + 1).sum(dtype=f64), {"x": FLOATS**2 + 1}, {**_out(256), "part": (4, f32)}, 4, 64,
    ),
    "a histogram with bins of each block": Kernel(
        """KERNEL(int* out, const int* x, int n) {
  __shared__ int bins[20];
  for (int j = threadIdx.x; j < 20; j += blockDim.x) bins[j] = 0;
  __syncthreads();
  for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i] / 5], 1);
  __syncthreads();
  for (int j = threadIdx.x; j < 20; j += blockDim.x) if (bins[j]) atomicAdd(&out[j], bins[j]);
}""",
        np.bincount(INTS // 5, minlength=20), {"out": np.zeros(20, i32), "x": INTS, "n": i32(256)}, {}, 3, 32,
    ),
    "a radix sort of a tile": Kernel(
        """KERNEL(unsigned* out, const unsigned* x) {
  __shared__ unsigned keys[64], zeros[2];
  int t = threadIdx.x, lane = t % 32, warp = t / 32;
  unsigned key = x[t];
  for (int bit = 0; bit < 32; ++bit) {
    bool zero = !(key >> bit & 1);
    unsigned votes = __ballot_sync(0xffffffff, zero);
    if (lane == 0) zeros[warp] = __popc(votes);
    __syncthreads();
    int below = __popc(votes & ((1u << lane) - 1)) + (warp ? zeros[0] : 0);
    keys[zero ? below : zeros[0] + zeros[1] + t - below] = key;
    __syncthreads();
    key = keys[t];
  }
  out[t] = key;
}""",
        np.sort(WORDS[:64]), {"x": WORDS[:64]}, _out(64, u32), 1, 64,
    ),
    "a bitonic sort": Kernel(
        """KERNEL(int* x) {
  __shared__ int s[128];
  int t = threadIdx.x;
  s[t] = x[t]; s[t + 64] = x[t + 64];
  for (int size = 2; size <= 128; size *= 2)
    for (int d = size / 2; d > 0; d /= 2) {
      __syncthreads();
      int i = 2 * t - (t & (d - 1)), j = i + d;
      bool up = (i & size) == 0;
      int a = s[i], b = s[j];
      if ((a > b) == up) { s[i] = b; s[j] = a; }
    }
  __syncthreads();
  x[t] = s[t]; x[t + 64] = s[t + 64];
}""",
        np.sort(INTS[:128]), {"x": INTS[:128]}, {}, 1, 64,
    ),
    "an odd-even merge sort in global memory": Kernel(
        """KERNEL(float* x, int n) {
  int t = threadIdx.x;
  for (int p = 1; p < n; p *= 2)
    for (int d = p; d > 0; d /= 2) {
      for (int i = t; i + d < n; i += blockDim.x) {
        bool first = d == p ? (i / d) % 2 == 0 : i % (2 * p) >= d && ((i % (2 * p)) - d) / d % 2 == 0;
        if (first && i / (2 * p) == (i + d) / (2 * p) && x[i] > x[i + d]) { float y = x[i]; x[i] = x[i + d]; x[i + d] = y; }
      }
      __syncthreads();
    }
}""",
        np.sort(FLOATS[:128]), {"x": FLOATS[:128], "n": i32(128)}, {}, 1, 64,
    ),
    "an odd-even transposition sort": Kernel(
        """KERNEL(int* x) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int step = 0; step < 64; ++step) {
    if ((t + step) % 2 == 0 && t < 63) {
      int a = s[t], b = s[t + 1];
      s[t] = min(a, b); s[t + 1] = max(a, b);
    }
    __syncthreads();
  }
  x[t] = s[t];
}""",
        np.sort(INTS[:64]), {"x": INTS[:64]}, {}, 1, 64,
    ),
    "a queue of work": Kernel(
        """KERNEL(int* out, const int* work, int* next, int jobs) {
  __shared__ int job;
  while (true) {
    if (threadIdx.x == 0) job = atomicAdd(next, 1);
    __syncthreads();
    int j = job;
    __syncthreads();
    if (j >= jobs) break;
    for (int r = 0, v = threadIdx.x; r <= work[j]; ++r, v += j) if (r == work[j]) out[j * blockDim.x + threadIdx.x] = v;
  }
}""",
        (np.arange(64) + (np.arange(9) * _ints(9, 6))[:, None]).ravel(),
        {"work": _ints(9, 6), "next": np.zeros(1, i32), "jobs": i32(9)}, _out(576, i32), 3, 64,
    ),
    "a lock with fences": Kernel(
        """KERNEL(float* sum, int* count, const float* x, int* lock) {
  __shared__ float s[64];
  s[threadIdx.x] = x[INDEX];
  __syncthreads();
  if (threadIdx.x != 0) return;
  float own = 0;
  for (int j = 0; j < 64; ++j) own += s[j];
  while (atomicCAS(lock, 0, 1) != 0);
  __threadfence();
  *sum = *sum + own;
  *count = *count + 1;
  __threadfence();
  atomicExch(lock, 0);
}""",
        lambda a: ([*a["sum"], *a["count"]], [FLOATS.sum(dtype=f64), 4]),
        {"sum": np.zeros(1, f32), "count": np.zeros(1, i32), "x": FLOATS, "lock": np.zeros(1, i32)}, {}, 4, 64,
    ),
    "a ticket lock": Kernel(
        """__device__ unsigned next, turn;
KERNEL(int* log, int* used) {
  if (threadIdx.x == 0) {
    unsigned mine = atomicAdd(&next, 1);
    while (*(volatile unsigned*)&turn != mine);
    __threadfence();
    log[*used] = blockIdx.x;
    *used += 1;
    __threadfence();
    *(volatile unsigned*)&turn = mine + 1;
  }
}""",
        lambda a: (np.sort(a["log"]), np.arange(6)), {"used": np.zeros(1, i32)}, {"log": (6, i32)}, 6, 32,
    ),
    "producers and consumers": Kernel(
        """KERNEL(int* out, int* buffer, const int* x, int* full, int* empty) {
  int t = threadIdx.x, pair = blockIdx.x / 2;
  volatile int* filled = full + pair;
  volatile int* emptied = empty + pair;
  for (int round = 0; round < 4; ++round) {
    int* slot = buffer + pair * 64 + t;
    if (blockIdx.x % 2 == 0) {
      if (t == 0) while (*emptied < round);
      __syncthreads();
      *slot = x[(pair * 4 + round) * 64 + t];
      __threadfence();
      __syncthreads();
      if (t == 0) *filled = round + 1;
    } else {
      if (t == 0) { while (*filled <= round); __threadfence(); }
      __syncthreads();
      out[(pair * 4 + round) * 64 + t] = *slot + 1;
      __threadfence();
      __syncthreads();
      if (t == 0) *emptied = round + 1;
    }
  }
}""",
        _ints(512) + 1, {"x": _ints(512), "full": np.zeros(2, i32), "empty": np.zeros(2, i32)},
        {**_out(512, i32), "buffer": (128, i32)}, 4, 64,
    ),
    "a warp's sum with __syncwarp": Kernel(
        """KERNEL(float* out, const float* x) {
  __shared__ float all[64];
  int lane = threadIdx.x % 32;
  float* s = all + threadIdx.x - lane;
  float v = s[lane] = x[INDEX];
  __syncwarp();
  for (int d = 16; d > 0; d /= 2) {
    if (lane < d) v += s[lane + d];
    __syncwarp();
    if (lane < d) s[lane] = v;
    __syncwarp();
  }
  if (lane == 0) out[INDEX / 32] = s[0];
}""",
        FLOATS.reshape(8, 32).sum(1, dtype=f64), {"x": FLOATS}, _out(8), 4, 64,
    ),
    "sums of tiles of 8, 16 and 32": Kernel(
        """template <int N> __device__ float sum(cg::thread_block block, float v, float* s) {
  auto tile = cg::tiled_partition<N>(block);
  float* own = s + tile.meta_group_rank() * N;
  own[tile.thread_rank()] = v;
  tile.sync();
  v = own[(tile.thread_rank() + 1) % N];
  for (int d = N / 2; d > 0; d /= 2) v += tile.shfl_xor(v, d);
  tile.sync();
  return v;
}
KERNEL(float* out, const float* x) {
  __shared__ float a[64], b[64], c[64];
  auto block = cg::this_thread_block();
  float v = x[INDEX];
  out[3 * INDEX] = sum<8>(block, v, a);
  out[3 * INDEX + 1] = sum<16>(block, v, b);
  out[3 * INDEX + 2] = sum<32>(block, v, c);
}""",
        np.stack([FLOATS.reshape(-1, n).sum(1, dtype=f64).repeat(n) for n in (8, 16, 32)], 1).ravel(),
        {"x": FLOATS}, _out(768), 4, 64,
    ),
    "a compaction by votes": Kernel(
        """KERNEL(int* out, int* count, const int* x) {
  int lane = threadIdx.x % 32, v = x[INDEX], first = 0;
  bool keep = v % 3 == 0;
  unsigned votes = __ballot_sync(0xffffffff, keep);
  if (lane == 0) first = atomicAdd(count, __popc(votes));
  first = __shfl_sync(0xffffffff, first, 0);
  if (keep) out[first + __popc(votes & ~(~0u << lane))] = v;
}""",
        lambda a: (np.sort(a["out"]), np.sort(INTS[INTS % 3 == 0])),
        {"out": np.full((INTS % 3 == 0).sum(), -1, i32), "count": np.zeros(1, i32), "x": INTS}, {}, 4, 64,
    ),
    "counts of equal keys by one lane of each": Kernel(
        """KERNEL(int* out, const int* x) {
  int key = x[INDEX] % 10;
  unsigned same = __match_any_sync(0xffffffff, key);
  if (threadIdx.x % 32 == __ffs(same) - 1) atomicAdd(&out[key], __popc(same));
}""",
        np.bincount(INTS % 10, minlength=10), {"out": np.zeros(10, i32), "x": INTS}, {}, 4, 64,
    ),
    "a transposition through padded shared memory": Kernel(
        """KERNEL(float* out, const float* x) {
  __shared__ float s[32][33];
  int column = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < 32; row += 4) s[row][column] = x[row * 32 + column];
  __syncthreads();
  for (int row = threadIdx.x / 32; row < 32; row += 4) out[row * 32 + column] = s[column][row];
}""",
        A.T, {"x": A}, _out((32, 32)), 1, 128,
    ),
    "a stencil with a double buffer": Kernel(
        """KERNEL(float* out, const float* x, int steps) {
  __shared__ float s[2][66];
  int t = threadIdx.x + 1;
  s[0][t] = x[t - 1];
  if (t == 1 || t == 64) { int halo = t == 1 ? 0 : 65; s[0][halo] = s[1][halo] = 0; }
  __syncthreads();
  int from = 0;
  for (int step = 0; step < steps; ++step, from ^= 1) {
    s[from ^ 1][t] = 0.5f * s[from][t - 1] + 0.5f * s[from][t + 1];
    __syncthreads();
  }
  out[t - 1] = s[from][t];
}""",
        _jacobi(np.pad(FLOATS[:64], 1), 6)[1:-1], {"x": FLOATS[:64], "steps": i32(6)}, _out(64), 1, 64,
    ),
    "Jacobi steps between two buffers": Kernel(
        """__device__ unsigned arrived;
__device__ void barrier(unsigned round) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(&arrived, 1);
    while (*(volatile unsigned*)&arrived < round * gridDim.x);
    __threadfence();
  }
  __syncthreads();
}
KERNEL(float* a, float* b, int n, int steps) {
  int i = INDEX;
  float *from = a, *to = b;
  for (int step = 1; step <= steps; ++step) {
    to[i] = i == 0 || i == n - 1 ? from[i] : (from[i - 1] + from[i + 1]) / 2;
    barrier(step);
    float* swapped = from; from = to; to = swapped;
  }
}""",
        _jacobi(FLOATS, 4), {"a": FLOATS, "b": np.zeros(256, f32), "n": i32(256), "steps": i32(4)}, {}, 4, 64,
    ),
    "breadth-first search by frontiers": Kernel(
        """KERNEL(int* depth, const int* offsets, const int* targets) {
  __shared__ int frontier[2][64], size[2];
  if (threadIdx.x == 0) { frontier[0][0] = 0; size[0] = 1; depth[0] = 0; }
  __syncthreads();
  for (int level = 0; size[level % 2] > 0; ++level) {
    int now = level % 2, then = now ^ 1;
    if (threadIdx.x == 0) size[then] = 0;
    __syncthreads();
    for (int f = threadIdx.x; f < size[now]; f += blockDim.x) {
      int node = frontier[now][f];
      for (int e = offsets[node]; e < offsets[node + 1]; ++e)
        if (atomicCAS(&depth[targets[e]], -1, level + 1) == -1) frontier[then][atomicAdd(&size[then], 1)] = targets[e];
    }
    __syncthreads();
  }
}""",
        lambda a: (a["depth"], _hops(OFFSETS, TARGETS)),
        {"depth": np.full(64, -1, i32), "offsets": OFFSETS, "targets": TARGETS}, {}, 1, 64,
    ),
    "connected parts by union and find": Kernel(
        """__device__ int root(volatile int* parent, int v) {
  while (parent[v] != v) v = parent[v];
  return v;
}
KERNEL(int* parent, const int* edges, int n, int m) {
  for (int e = threadIdx.x; e < m; e += blockDim.x) {
    int a = edges[2 * e], b = edges[2 * e + 1];
    while ((a = root(parent, a)) != (b = root(parent, b))) {
      int low = min(a, b), high = max(a, b), old = atomicMin(&parent[high], low);
      if (old == high) break;
      a = old; b = low;
    }
  }
  __syncthreads();
  for (int v = threadIdx.x; v < n; v += blockDim.x) {
    int r = root(parent, v);
    *(volatile int*)&parent[v] = r;
  }
}""",
        np.array(_components(48, EDGES)),
        {"parent": np.arange(48, dtype=i32), "edges": EDGES, "n": i32(48), "m": i32(40)}, {}, 1, 64,
    ),
    "a maximum of floats by compare and swap": Kernel(
        """__device__ void atomic_max(float* to, float v) {
  int* bits = (int*)to;
  int old = *bits;
  while (__int_as_float(old) < v) {
    int before = old;
    old = atomicCAS(bits, before, __float_as_int(v));
    if (old == before) break;
  }
}
KERNEL(float* out, const float* x) { atomic_max(out, x[INDEX]); }""",
        FLOATS.max(keepdims=True), {"out": np.full(1, -INF, f32), "x": FLOATS}, {}, 4, 64,
    ),
    "a sum of doubles by compare and swap": Kernel(
        """__device__ double add(double* to, double v) {
  u64* bits = (u64*)to;
  u64 old = *bits, assumed;
  do {
    assumed = old;
    old = atomicCAS(bits, assumed, __double_as_longlong(v + __longlong_as_double(assumed)));
  } while (assumed != old);
  return __longlong_as_double(old);
}
KERNEL(double* out, const float* x) { add(out + threadIdx.x % 2, x[INDEX]); }""",
        FLOATS.reshape(-1, 2).sum(0, dtype=f64), {"out": np.zeros(2), "x": FLOATS}, {}, 2, 128,
    ),
    "lists by exchange": Kernel(
        """KERNEL(int* next, int* head) {
  int node = INDEX;
  next[node] = atomicExch(&head[node % 4], node);
}""",
        _followed, {"head": np.full(4, -1, i32)}, {"next": (128, i32)}, 2, 64,
    ),
    "a hash table by compare and swap": Kernel(
        """__device__ unsigned hash(unsigned x) { x ^= x >> 16; x *= 0x45d9f3bu; return x ^ x >> 16; }
KERNEL(int* out, int* keys, int* values, const int* x) {
  int key = x[threadIdx.x];
  unsigned slot = hash(key) % 128;
  while (true) {
    int old = atomicCAS(&keys[slot], -1, key);
    if (old == -1 || old == key) break;
    slot = (slot + 1) % 128;
  }
  atomicAdd(&values[slot], 1);
  __syncthreads();
  for (slot = hash(key) % 128; keys[slot] != key; slot = (slot + 1) % 128);
  out[threadIdx.x] = values[slot];
}""",
        np.array([(INTS[:64] == x).sum() for x in INTS[:64]]),
        {"keys": np.full(128, -1, i32), "values": np.zeros(128, i32), "x": INTS[:64]}, _out(64, i32), 1, 64,
    ),
    "a scan of a block with two buffers": Kernel(
        """KERNEL(int* out, const int* x) {
  __shared__ int s[2][128];
  int t = threadIdx.x, now = 0;
  s[0][t] = x[t];
  __syncthreads();
  for (int d = 1; d < blockDim.x; d *= 2) {
    s[1 - now][t] = s[now][t] + (t >= d ? s[now][t - d] : 0);
    now = 1 - now;
    __syncthreads();
  }
  out[t] = s[now][t];
}""",
        INTS[:128].cumsum(), {"x": INTS[:128]}, _out(128, i32), 1, 128,
    ),
    "a scan of a block up and down a tree": Kernel(
        """KERNEL(int* x) {
  __shared__ int s[128];
  int t = threadIdx.x, d = 1;
  s[2 * t] = x[2 * t]; s[2 * t + 1] = x[2 * t + 1];
  for (int n = 64; n > 0; n /= 2, d *= 2) {
    __syncthreads();
    if (t < n) s[d * (2 * t + 2) - 1] += s[d * (2 * t + 1) - 1];
  }
  if (t == 0) s[127] = 0;
  for (int n = 1; n < 128; n *= 2) {
    d /= 2;
    __syncthreads();
    if (t < n) {
      int a = d * (2 * t + 1) - 1, b = d * (2 * t + 2) - 1, y = s[a];
      s[a] = s[b]; s[b] += y;
    }
  }
  __syncthreads();
  x[2 * t] = s[2 * t]; x[2 * t + 1] = s[2 * t + 1];
}""",
        INTS[:128].cumsum() - INTS[:128], {"x": INTS[:128]}, {}, 1, 64,
    ),
    "a product of matrices with named barriers": Kernel(
        """KERNEL(float* c, const float* a, const float* b) {
  __shared__ float as[2][32][8], bs[2][8][32];
  int t = threadIdx.x % 128;
  if (threadIdx.x < 128) {
    for (int k = 0; k < 4; ++k) {
      int slot = k % 2;
      if (k >= 2) asm volatile("bar.sync %0, 256;" :: "r"(3 + slot) : "memory");
      for (int i = t; i < 256; i += 128) {
        as[slot][i / 8][i % 8] = a[i / 8 * 32 + k * 8 + i % 8];
        bs[slot][i / 32][i % 32] = b[(k * 8 + i / 32) * 32 + i % 32];
      }
      asm volatile("bar.arrive %0, 256;" :: "r"(1 + slot) : "memory");
    }
  } else {
    float sum[8] = {};
    for (int k = 0; k < 4; ++k) {
      int slot = k % 2;
      asm volatile("bar.sync %0, 256;" :: "r"(1 + slot) : "memory");
      for (int r = 0; r < 8; ++r)
        for (int j = 0; j < 8; ++j) sum[r] += as[slot][t / 32 + 4 * r][j] * bs[slot][j][t % 32];
      if (k < 2) asm volatile("bar.arrive %0, 256;" :: "r"(3 + slot) : "memory");
    }
    for (int r = 0; r < 8; ++r) c[(t / 32 + 4 * r) * 32 + t % 32] = sum[r];
  }
}""",
        A.astype(f64) @ B, {"a": A, "b": B}, _out((32, 32)), 1, 256,
    ),
    "a product of matrices by tiles": Kernel(
        """KERNEL(float* c, const float* a, const float* b) {
  __shared__ float as[16][16], bs[16][16];
  int x = threadIdx.x % 16, y = threadIdx.x / 16, row = blockIdx.x / 2 * 16 + y, column = blockIdx.x % 2 * 16 + x;
  float sum = 0;
  for (int k = 0; k < 32; k += 16) {
    as[y][x] = a[row * 32 + k + x];
    bs[y][x] = b[(k + y) * 32 + column];
    __syncthreads();
    for (int j = 0; j < 16; ++j) sum += as[y][j] * bs[j][x];
    __syncthreads();
  }
  c[row * 32 + column] = sum;
}""",
        A.astype(f64) @ B, {"a": A, "b": B}, _out((32, 32)), 4, 256,
    ),
    "a reversal in place by pairs": Kernel(
        """KERNEL(int* x, int n) {
  for (int i = INDEX; i < n / 2; i += gridDim.x * blockDim.x) {
    int y = x[i];
    x[i] = x[n - 1 - i];
    x[n - 1 - i] = y;
  }
}""",
        INTS[:251][::-1], {"x": INTS[:251], "n": i32(251)}, {}, 2, 32,
    ),
    "a sieve where several write the same value": Kernel(
        """KERNEL(int* out) {
  __shared__ bool crossed[256];
  int t = threadIdx.x;
  for (int i = t; i < 256; i += 64) crossed[i] = i < 2;
  __syncthreads();
  if (t >= 2) for (int j = 2 * t; j < 256; j += t) crossed[j] = true;
  __syncthreads();
  for (int i = t; i < 256; i += 64) out[i] = !crossed[i];
}""",
        np.array([n > 1 and all(n % d for d in range(2, n)) for n in range(256)]), {}, _out(256, i32), 1, 64,
    ),
    "a ring of blocks": Kernel(
        """KERNEL(int* token, const int* x, volatile int* turn) {
  int b = blockIdx.x;
  if (threadIdx.x != 0) return;
  for (int round = 0; round < 3; ++round) {
    while (*turn != round * (int)gridDim.x + b);
    __threadfence();
    *token = *token * 3 % 1009 + x[b];
    __threadfence();
    *turn = *turn + 1;
  }
}""",
        lambda a: (a["token"], [_ring(7, INTS[:5], 3)]),
        {"token": np.full(1, 7, i32), "x": INTS[:5], "turn": np.zeros(1, i32)}, {}, 5, 32,
    ),
    "a tree filled from its leaves": Kernel(
        """KERNEL(float* top, int* arrived, const float* x) {
  int node = 128 + INDEX;
  top[node] = x[INDEX];
  while (node > 1) {
    node /= 2;
    __threadfence();
    if (atomicAdd(&arrived[node], 1) == 0) return;
    __threadfence();
    top[node] = fmaxf(top[2 * node], top[2 * node + 1]);
  }
}""",
        lambda a: (a["top"][1:4], [FLOATS[:128].max(), FLOATS[:64].max(), FLOATS[64:128].max()]),
        {"top": np.zeros(256, f32), "arrived": np.zeros(128, i32), "x": FLOATS[:128]}, {}, 2, 64,
    ),
    "a split product whose parts add in order": Kernel(
        """KERNEL(float* c, const float* x, int* turn) {
  int t = threadIdx.x, part = blockIdx.x;
  float sum = 0;
  for (int j = 0; j < 4; ++j) sum += x[(part * 4 + j) * 32 + t];
  if (t == 0) {
    int now;
    do asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory"); while (now != part);
  }
  __syncthreads();
  c[t] = part ? c[t] + sum : sum;
  __syncthreads();
  if (t == 0) asm volatile("st.global.release.gpu.b32 [%0], %1;" :: "l"(turn), "r"(part + 1) : "memory");
}""",
        A.sum(0, dtype=f64), {"x": A, "turn": np.zeros(1, i32)}, _out(32), 8, 32,
    ),
    "steps until no thread swaps": Kernel(
        """KERNEL(int* x, int* steps) {
  int t = threadIdx.x, step = 0, quiet = 0;
  while (quiet < 2) {
    int i = 2 * t + step % 2;
    bool swap = i < 63 && x[i] > x[i + 1];
    if (swap) { int y = x[i]; x[i] = x[i + 1]; x[i + 1] = y; }
    quiet = __syncthreads_or(swap) ? 0 : quiet + 1;
    ++step;
  }
  if (t == 0) *steps = step;
}""",
        np.sort(INTS[:64]), {"x": INTS[:64], "steps": np.zeros(1, i32)}, {}, 1, 32,
    ),
    "a longest common subsequence by diagonals": Kernel(
        """KERNEL(int* out, const int* a, const int* b) {
  __shared__ int d[3][33];
  int t = threadIdx.x;
  for (int i = t; i < 99; i += 64) d[i / 33][i % 33] = 0;
  __syncthreads();
  for (int sum = 2; sum <= 64; ++sum) {
    int *now = d[sum % 3], *one = d[(sum + 2) % 3], *two = d[(sum + 1) % 3], i = t + 1, j = sum - i;
    if (i <= 32 && j >= 1 && j <= 32) now[i] = a[i - 1] == b[j - 1] ? two[i - 1] + 1 : max(one[i - 1], one[i]);
    else if (i <= 32 && j == 0) now[i] = 0;
    __syncthreads();
  }
  if (t == 0) *out = d[64 % 3][32];
}""",
        np.array([_common(*TEXTS)]), {"a": TEXTS[0], "b": TEXTS[1]}, _out(1, i32), 1, 64,
    ),
    "shortest paths between all": Kernel(
        """KERNEL(int* d) {
  int i = threadIdx.x / 16, j = threadIdx.x % 16;
  for (int k = 0; k < 16; ++k) {
    int through = d[i * 16 + k] + d[k * 16 + j];
    if (through < d[i * 16 + j]) d[i * 16 + j] = through;
    __syncthreads();
  }
}""",
        _shortest(DISTANCES), {"d": DISTANCES}, {}, 1, 256,
    ),
    "copies ahead of the sum": Kernel(
        """KERNEL(float* out, const float* x) {
  __shared__ float s[2][64];
  int t = threadIdx.x;
  auto copy = [&](int tile) {
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[tile % 2][t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\\ncp.async.commit_group;" :: "r"(to), "l"(x + tile * 64 + t) : "memory");
  };
  float sum = 0;
  copy(0);
  for (int tile = 0; tile < 4; ++tile) {
    if (tile < 3) { copy(tile + 1); asm volatile("cp.async.wait_group 1;" ::: "memory"); }
    else asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    sum += s[tile % 2][63 - t];
    __syncthreads();
  }
  out[t] = sum;
}""",
        FLOATS.reshape(4, 64)[:, ::-1].sum(0, dtype=f64), {"x": FLOATS}, _out(64), 1, 64,
    ),
    "the place of the smallest in one word": Kernel(
        """KERNEL(u64* best, const unsigned* x) { atomicMin(best, (u64)x[INDEX] << 32 | INDEX); }""",
        lambda a: (a["best"] & u64(0xFFFFFFFF), [WORDS.argmin()]), {"best": np.full(1, ~u64(0)), "x": WORDS}, {}, 4, 64,
    ),
    "threads that each take a lock": Kernel(
        """KERNEL(int* sum, const int* x, int* lock) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *sum += x[INDEX];
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}""",
        INTS[:32].sum(keepdims=True), {"sum": np.zeros(1, i32), "x": INTS[:32], "lock": np.zeros(1, i32)}, {}, 2, 16,
    ),
    "a barrier of all blocks by atomics": Kernel(
        """KERNEL(int* out, int* data, const int* x, int* arrived) {
  data[INDEX] = x[INDEX];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < gridDim.x) __nanosleep(20);
    __threadfence();
  }
  __syncthreads();
  out[INDEX] = __ldcg(&data[255 - INDEX]);
}""",
        INTS[::-1], {"x": INTS, "arrived": np.zeros(1, i32)}, {**_out(256, i32), "data": (256, i32)}, 4, 64,
    ),
    "halves of a warp apart": Kernel(
        """KERNEL(int* out, const int* x) {
  __shared__ int s[32];
  int t = threadIdx.x;
  s[t] = x[t];
  if (t < 16) {
    __syncwarp(0x0000ffff);
    out[t] = s[15 - t];
  } else {
    __syncwarp(0xffff0000);
    out[t] = s[47 - t];
  }
}""",
        INTS[:32].reshape(2, 16)[:, ::-1].ravel(), {"x": INTS[:32]}, _out(32, i32),
    ),
    "bytes of one word by several threads": Kernel(
        """KERNEL(unsigned* out, const unsigned char* x) {
  __shared__ __align__(4) unsigned char s[64];
  int t = threadIdx.x;
  s[63 - t] = x[t];
  __syncthreads();
  if (t < 16) out[t] = *(unsigned*)&s[4 * t];
}""",
        np.arange(64, dtype=u8)[::-1].copy().view(u32), {"x": np.arange(64, dtype=u8)}, _out(16, u32), 1, 64,
    ),
    "a stack of free places": Kernel(
        "KERNEL(int* out, int* top, const int* stack) { out[stack[atomicSub(top, 1) - 1]] = INDEX; }",
        lambda a: (np.sort(a["out"]), np.arange(128)), {"top": np.full(1, 128, i32), "stack": np.arange(128, dtype=i32)},
        _out(128, i32), 2, 64,
    ),
    "rows of a sparse matrix by warps": Kernel(
        """KERNEL(float* y, const int* offsets, const int* columns, const float* values, const float* x) {
  int row = INDEX / 32, lane = threadIdx.x % 32;
  float sum = 0;
  for (int e = offsets[row] + lane; e < offsets[row + 1]; e += 32) sum += values[e] * x[columns[e]];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
  if (lane == 0) y[row] = sum;
}""",
        (FLOATS.astype(f64) * A.ravel()[np.arange(256) * 5 % 64]).reshape(8, 32).sum(1),
        {"offsets": np.arange(0, 257, 32, dtype=i32), "columns": (np.arange(256) * 5 % 64).astype(i32), "values": FLOATS,
         "x": A.ravel()[:64]},
        _out(8), 4, 64,
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", ["forward", "reversed"])
@pytest.mark.parametrize("name", ORDERED)
def test_no_word_about_threads_that_something_orders(name, order):
    _check(ORDERED[name], order)


def _standard(x: np.ndarray, epsilon: float) -> np.ndarray:
    x = x.astype(f64)
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + epsilon)


def _average(rows: np.ndarray, weight: float) -> list[np.ndarray]:
    mean, found = 0, []
    for n, row in enumerate(rows, 1):
        mean = mean + weight * (row - mean)
        found.append(mean / (1 - (1 - weight) ** n))
    return found


def _escape(c: complex) -> int:
    z, steps = 0j, 0
    while steps < 50 and abs(z) <= 2:
        z, steps = z * z + c, steps + 1
    return steps


def _around(x: np.ndarray, r: int, c: int) -> int:
    return x[max(r - 1, 0) : r + 2, max(c - 1, 0) : c + 2].sum()


def _softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(f64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _masked_softmax(x: np.ndarray) -> np.ndarray:
    """Returns the softmax of rows whose masked numbers are -inf; a row of these alone is 0."""
    e = np.where(np.isinf(x), 0, np.exp(np.where(np.isinf(x), 0, x).astype(f64)))
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x.astype(f64)])


def _causal(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q.astype(f64) @ k.T / np.sqrt(q.shape[1])
    return _softmax(np.where(np.tri(len(q)) > 0, scores, -np.inf)) @ v


def _bf16(x: np.ndarray) -> np.ndarray:
    """Returns the nearest bfloat16 numbers, as float32."""
    bits = x.view(u32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & u32(0xFFFF0000)).view(f32)


def _fnv(rows: np.ndarray) -> np.ndarray:
    h = np.full(len(rows), 2166136261, u32)
    for column in rows.T:
        h = (h ^ column) * u32(16777619)
    return h


def _murmur(h: np.ndarray) -> np.ndarray:
    h = (h ^ h >> 16) * u32(0x85EBCA6B)
    h = (h ^ h >> 13) * u32(0xC2B2AE35)
    return h ^ h >> 16


def _xorshift(s: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        s = s ^ s << 13
        s = s ^ s >> 17
        s = s ^ s << 5
    return s


def _pcg(seed: np.ndarray) -> np.ndarray:
    state = seed.astype(u64) * u64(6364136223846793005) + u64(1442695040888963407)
    x = ((state >> u64(18) ^ state) >> u64(27)).astype(u32)
    turn = (state >> u64(59)).astype(u32)
    return x >> turn | x << (-turn & u32(31))


def _lcg(s: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        s = s * u32(1664525) + u32(1013904223)
    return s


def _philox(counter: np.ndarray) -> np.ndarray:
    c0, c1, c2, c3 = counter, *(np.zeros_like(counter) for _ in range(3))
    k0, k1 = np.full_like(counter, 0xDEADBEEF), np.full_like(counter, 0x12345678)
    for _ in range(10):
        a, b = c0.astype(u64) * u64(0xD2511F53), c2.astype(u64) * u64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (b >> u64(32)).astype(u32) ^ c1 ^ k0,
            b.astype(u32),
            (a >> u64(32)).astype(u32) ^ c3 ^ k1,
            a.astype(u32),
        )
        k0, k1 = k0 + u32(0x9E3779B9), k1 + u32(0xBB67AE85)
    return c0 ^ c1 ^ c2 ^ c3


def _reversed_bits(x: np.ndarray) -> np.ndarray:
    return sum((x >> u32(b) & u32(1)) << u32(31 - b) for b in range(32))


def _spread(x: np.ndarray) -> np.ndarray:
    return sum((x >> u32(b) & u32(1)) << u32(2 * b) for b in range(16))


def _adler(rows: np.ndarray) -> np.ndarray:
    return np.array([zlib.adler32(bytes(row)) for row in rows])


X, POSITIVE = FLOATS * 10, np.abs(FLOATS) + f32(0.125)
ROWS = X.reshape(8, 32)
MASKED = np.where(np.arange(32) < np.arange(8)[:, None] * 4, ROWS, -INF).astype(f32)
SPECIAL = np.where(np.arange(256) % 5 == 0, INF, np.where(np.arange(256) % 7 == 0, NAN, X)).astype(f32)
INFINITE = np.where(np.arange(256) % 5 == 0, INF, np.where(np.arange(256) % 7 == 0, -INF, X)).astype(f32)
Q, K, V = A[:, :8], B[:, :8], A[:, 8:16]
Q, K, V = (np.ascontiguousarray(m) for m in (Q, K, V))
PATHS = (
    np.where(np.arange(16) < 4, X[:16] + 50, INF).astype(f32),
    np.where(WORDS.reshape(16, 16) % 9 == 0, POSITIVE.reshape(16, 16), INF),
)
SCALED = ROWS * (np.arange(8) % 4).astype(f32)[:, None]
BYTES, LONG = (_random(8).integers(0, 256, (64, n)).astype(u8) for n in (12, 48))
X64, Y64 = X.astype(f64), np.roll(X, 9).astype(f64)
WARP_SUM = """__device__ float sum(float v) {
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffff, v, d);
  return v;
}
__device__ float most(float v) {
  for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, d));
  return v;
}
"""


def _each(body: str, right: np.ndarray, x: np.ndarray = X, dtype: type = f32, error: float = 1e-5, **more) -> Kernel:
    """Returns a kernel whose thread i makes out[i] of x[i] and of `more`."""
    types = {f32: "float", f64: "double", i32: "int", u32: "unsigned", i64: "long long", u64: "u64", u8: "unsigned char",
             i8: "signed char"}  # fmt: skip
    inputs = {"x": x, **more, "n": i32(len(x))}
    params = [f"{types[dtype]}* out"] + [
        f"const {types[v.dtype.type]}* {name}" if isinstance(v, np.ndarray) else f"{types[type(v)]} {name}"
        for name, v in inputs.items()
    ]
    source = f"KERNEL({', '.join(params)}) {{\n  int i = INDEX;\n  if (i >= n) return;\n  {body}\n}}"
    return Kernel(source, right, inputs, _out(len(x), dtype), -(-len(x) // 64), 64, error)


NUMBERS = {
    "softmax": Kernel(
        WARP_SUM + """KERNEL(float* out, const float* x) {
  float v = x[INDEX], e = expf(v - most(v));
  out[INDEX] = e / sum(e);
}""",
        _softmax(ROWS).ravel(), {"x": ROWS.ravel()}, _out(256), 8,
    ),
    "softmax of 16 numbers a thread, in one pass": Kernel(
        """KERNEL(float* out, const float* x) {
  const float* row = x + INDEX * 16;
  float m = -INF, l = 0;
  for (int j = 0; j < 16; ++j) {
    float top = fmaxf(m, row[j]);
    l = l * __expf(m - top) + __expf(row[j] - top);
    m = top;
  }
  for (int j = 0; j < 16; ++j) out[INDEX * 16 + j] = __expf(row[j] - m) / l;
}""",
        _softmax(FLOATS.reshape(16, 16)).ravel(), {"x": FLOATS}, _out(256), 1, 16,
    ),
    "softmax of masked rows": Kernel(
        """KERNEL(float* out, const float* x) {
  const float* row = x + threadIdx.x * 32;
  float m = -INF, l = 0;
  for (int j = 0; j < 32; ++j) {
    float top = fmaxf(m, row[j]), base = top == -INF ? 0 : top;
    l = l * expf(m - base) + expf(row[j] - base);
    m = top;
  }
  float base = m == -INF ? 0 : m;
  for (int j = 0; j < 32; ++j) out[threadIdx.x * 32 + j] = l > 0 ? expf(row[j] - base) / l : 0;
}""",
        _masked_softmax(MASKED).ravel(), {"x": MASKED}, _out(256), 1, 8,
    ),
    "masked numbers written as -inf": _each("out[i] = x[i] > 0 ? 2 * x[i] : -INF;", np.where(X > 0, 2 * X64, -INF)),
    "the logarithm of a sum of exponentials": Kernel(
        WARP_SUM + """KERNEL(float* out, const float* x) {
  float v = 100 * x[INDEX], m = most(v), l = sum(expf(v - m));
  if (threadIdx.x == 0) out[blockIdx.x] = m + logf(l);
}""",
        np.array([100 * r.max() + np.log(np.exp(100 * (r - r.max())).sum()) for r in ROWS.astype(f64)]),
        {"x": ROWS.ravel()}, _out(8), 8,
    ),
    "sums of exponentials joined from nothing": Kernel(
        """KERNEL(float* out, const float* x) {
  float m = -INF, l = 0;
  if (threadIdx.x % 2 == 0) { m = x[threadIdx.x / 2]; l = 1; }
  for (int d = 16; d > 0; d /= 2) {
    float m2 = __shfl_xor_sync(0xffffffff, m, d), l2 = __shfl_xor_sync(0xffffffff, l, d), top = fmaxf(m, m2);
    l = l * (m == -INF ? 0 : expf(m - top)) + l2 * (m2 == -INF ? 0 : expf(m2 - top));
    m = top;
  }
  if (threadIdx.x == 0) *out = m + logf(l);
}""",
        np.log(np.exp(FLOATS[:16].astype(f64)).sum(keepdims=True)), {"x": FLOATS[:16]}, _out(1),
    ),
    "layer norm": Kernel(
        WARP_SUM + """KERNEL(float* out, const float* x, const float* scale, const float* shift) {
  float v = x[INDEX], mean = sum(v) / 32, d = v - mean, variance = sum(d * d) / 32;
  out[INDEX] = d * rsqrtf(variance + 1e-5f) * scale[threadIdx.x] + shift[threadIdx.x];
}""",
        lambda a: (
            a["out"].reshape(8, 32),
            _standard(np.vstack([ROWS[:7], np.full(32, 3)]), 1e-5) * A[0] + B[0],
        ),
        {"x": np.vstack([ROWS[:7], np.full(32, 3, f32)]), "scale": A[0], "shift": B[0]}, _out(256), 8,
    ),
    "RMS norm": Kernel(
        WARP_SUM + """KERNEL(float* out, const float* x) {
  float v = x[INDEX];
  out[INDEX] = v * rsqrtf(sum(v * v) / 32 + 1e-6f);
}""",
        (ROWS / np.sqrt((ROWS.astype(f64) ** 2).mean(1, keepdims=True) + 1e-6)).ravel(), {"x": ROWS}, _out(256), 8,
    ),
    "sigmoid whose exponential overflows": _each("out[i] = 1 / (1 + expf(-20 * x[i]));", 1 / (1 + np.exp(-20 * X64))),
    "tanh by an exponential that overflows": _each("out[i] = 1 - 2 / (expf(10 * x[i]) + 1);", np.tanh(5 * X64)),
    "tanh": _each("out[i] = tanhf(100 * x[i]);", np.tanh(100 * X64)),
    "GELU by tanh": _each(
        "float v = x[i]; out[i] = 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));",
        0.5 * X64 * (1 + np.tanh(0.7978845608 * (X64 + 0.044715 * X64**3))),
    ),
    "GELU by erf": _each(
        "out[i] = x[i] * normcdff(x[i]);", 0.5 * X64 * (1 + _erf(X64 / np.sqrt(2)))
    ),
    "SiLU": _each("out[i] = __fdividef(x[i], 1 + __expf(-x[i]));", X64 / (1 + np.exp(-X64))),
    "softplus": _each("out[i] = x[i] > 20 ? x[i] : log1pf(expf(x[i]));", np.logaddexp(0, X64), error=1e-4),
    "softplus of large numbers by choice": _each(
        "float v = 50 * x[i], y = logf(1 + expf(v)); out[i] = v > 15 ? v : y;", np.logaddexp(0, 50 * X64)
    ),
    "cross entropy": Kernel(
        WARP_SUM + """KERNEL(float* loss, const float* x, const int* target) {
  float v = x[INDEX], m = most(v), l = sum(expf(v - m)), of = __shfl_sync(0xffffffff, v, target[blockIdx.x]);
  if (threadIdx.x == 0) loss[blockIdx.x] = m + logf(l) - of;
}""",
        -np.log(_softmax(ROWS)[np.arange(8), _ints(8, 32)]), {"x": ROWS, "target": _ints(8, 32)}, _out(8), 8,
    ),
    "entropy with probabilities of zero": _each(
        "float p = x[i]; out[i] = p > 0 ? -p * logf(p) : 0;",
        np.where(X > 0, -X64 * np.log(np.where(X > 0, X64, 1)), 0), np.maximum(X, 0),
    ),
    "cosine similarity with an epsilon": Kernel(
        WARP_SUM + """KERNEL(float* out, const float* x, const float* y) {
  float a = x[INDEX], b = y[threadIdx.x], ab = sum(a * b), aa = sum(a * a), bb = sum(b * b);
  if (threadIdx.x == 0) out[blockIdx.x] = ab / fmaxf(sqrtf(aa) * sqrtf(bb), 1e-8f);
}""",
        np.append((ROWS[:7] @ A[0].astype(f64)) / np.linalg.norm(ROWS[:7], axis=1) / np.linalg.norm(A[0]), 0),
        {"x": np.vstack([ROWS[:7], np.zeros((1, 32), f32)]), "y": A[0]}, _out(8), 8,
    ),
    "division where the divisor may be zero": _each(
        "float q = x[i] / y[i]; out[i] = y[i] != 0 ? q : 0;",
        np.where(np.arange(256) % 4 > 0, X64 / (np.arange(256) % 4 + (np.arange(256) % 4 == 0)), 0),
        y=(np.arange(256) % 4).astype(f32),
    ),
    "a unit vector, or zero": _each(
        "float r = rsqrtf(x[i] * x[i]); r = isinf(r) ? 0 : r; out[i] = x[i] * r;", np.sign(np.maximum(X, 0)), np.maximum(X, 0)
    ),
    "clamp": _each("out[i] = fminf(fmaxf(expf(100 * x[i]), 0.5f), 2);", np.clip(np.exp(np.minimum(100 * X64, 9)), 0.5, 2)),
    "clamp of infinite inputs": _each("out[i] = fminf(fmaxf(x[i], -1), 1);", np.clip(INFINITE, -1, 1), INFINITE),
    "the largest from -inf": Kernel(
        """KERNEL(float* out, const float* x, int n) {
  float m = -INF;
  for (int i = threadIdx.x; i < n; i += 32) m = fmaxf(m, x[i]);
  out[threadIdx.x] = m;
}""",
        np.array([X[t:200:32].max() for t in range(32)]),
        {"x": X[:200], "n": i32(200)}, _out(32),
    ),
    "the smallest from inf, of no numbers too": Kernel(
        """KERNEL(float* out, const float* x, int n) {
  float m = INF;
  for (int i = threadIdx.x; i < n; i += 32) m = fminf(m, x[i]);
  out[threadIdx.x] = m;
}""",
        np.append(X[:20], np.full(12, INF)), {"x": X[:20], "n": i32(20)}, _out(32),
    ),
    "the place of the largest": Kernel(
        """KERNEL(int* out, const float* x) {
  float best = -INF; int at = -1;
  for (int i = threadIdx.x; i < 256; i += 32) if (x[i] > best) { best = x[i]; at = i; }
  for (int d = 16; d > 0; d /= 2) {
    float v = __shfl_down_sync(0xffffffff, best, d); int i = __shfl_down_sync(0xffffffff, at, d);
    if (v > best || (v == best && i < at)) { best = v; at = i; }
  }
  if (threadIdx.x == 0) *out = at;
}""",
        np.array([X.argmax()]), {"x": X}, _out(1, i32),
    ),
    "attention with a causal mask": Kernel(
        """KERNEL(float* out, const float* q, const float* k, const float* v) {
  int row = threadIdx.x;
  float m = -INF, l = 0, sum[8] = {};
  for (int j = 0; j < 32; ++j) {
    float s = 0;
    for (int c = 0; c < 8; ++c) s += q[row * 8 + c] * k[j * 8 + c];
    s = j <= row ? s * rsqrtf(8) : -INF;
    float top = fmaxf(m, s), old = expf(m - top), p = expf(s - top);
    l = l * old + p;
    for (int c = 0; c < 8; ++c) sum[c] = sum[c] * old + p * v[j * 8 + c];
    m = top;
  }
  for (int c = 0; c < 8; ++c) out[row * 8 + c] = sum[c] / l;
}""",
        _causal(Q, K, V), {"q": Q, "k": K, "v": V}, _out((32, 8)),
    ),
    "conversion to half": _each(
        "out[i] = __half2float(__float2half(fminf(fmaxf(1e4f * x[i], -65504.f), 65504.f)));",
        np.clip(1e4 * X64, -65504, 65504).astype(f16), error=1e-3,
    ),
    "conversion to bfloat16": _each("out[i] = __bfloat162float(__float2bfloat16(x[i]));", _bf16(X), error=0),
    "large numbers in bfloat16": _each(
        "out[i] = __bfloat162float(__float2bfloat16(x[i] * 1e36f));", _bf16(X * f32(1e36)), error=1e-2
    ),
    "a loss scaled until no half overflows": Kernel(
        """KERNEL(float* w, const float* gradient, float scale) {
  __shared__ int overflow;
  int i = threadIdx.x, again;
  float g;
  do {
    if (i == 0) overflow = 0;
    __syncthreads();
    __half h = __float2half(gradient[i] * scale);
    if (__hisinf(h)) overflow = 1;
    g = __half2float(h) / scale;
    __syncthreads();
    again = overflow;
    __syncthreads();
    if (again) scale /= 2;
  } while (again);
  w[i] -= 0.1f * g;
}""",
        A[0] - 0.1 * X64[:32], {"w": A[0], "gradient": X[:32], "scale": f32(65536)}, error=1e-3,
    ),
    "Adam": Kernel(
        """KERNEL(float* w, float* m, float* v, const float* g, int step) {
  int i = INDEX;
  m[i] = 0.9f * m[i] + 0.1f * g[i];
  v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
  float mh = m[i] / (1 - powf(0.9f, step)), vh = v[i] / (1 - powf(0.999f, step));
  w[i] -= 0.01f * mh / (sqrtf(vh) + 1e-8f);
}""",
        FLOATS - 0.01 * np.sign(np.maximum(X64, 0)),
        {"w": FLOATS, "m": np.zeros(256, f32), "v": np.zeros(256, f32), "g": np.maximum(X, 0), "step": i32(1)}, {}, 4, 64, 1e-4,
    ),
    "variance by Welford, joined between lanes": Kernel(
        """KERNEL(float* out, const float* x, int n) {
  float count = 0, mean = 0, square = 0;
  for (int i = threadIdx.x; i < n; i += 32) {
    float d = x[i] - mean;
    mean += d / ++count;
    square += d * (x[i] - mean);
  }
  for (int s = 16; s > 0; s /= 2) {
    float c = __shfl_xor_sync(~0u, count, s), m = __shfl_xor_sync(~0u, mean, s), q = __shfl_xor_sync(~0u, square, s);
    float all = count + c, d = m - mean;
    if (all > 0) { mean += d * c / all; square += q + d * d * count * c / all; }
    count = all;
  }
  if (threadIdx.x == 0) { out[0] = mean; out[1] = square / count; }
}""",
        np.array([X64[:20].mean(), X64[:20].var()]), {"x": X[:20], "n": i32(20)}, _out(2),
    ),
    "powers": _each("out[i] = powf(fabsf(x[i]), 2.5f) + powf(x[i], 3) + powf(0, i + 1);", np.abs(X64) ** 2.5 + X64**3),
    "hypot of large numbers": _each("out[i] = hypotf(x[i] * 1e25f, 1e25f) / 1e25f;", np.hypot(X64, 1)),
    "distances with zero": _each(
        "float d = x[i] - x[i / 2 * 2]; out[i] = sqrtf(d * d);", np.abs(X64 - X64[np.arange(256) // 2 * 2])
    ),
    "forces between points, itself apart": Kernel(
        """KERNEL(float* out, const float* x) {
  int i = threadIdx.x;
  float force = 0;
  for (int j = 0; j < 32; ++j) {
    float d = x[j] - x[i], r = 1 / (d * d);
    force += j == i ? 0 : copysignf(r, d);
  }
  out[i] = force;
}""",
        lambda a: (
            a["out"],
            [sum(np.sign(v - u) / (v - u) ** 2 for v in np.arange(32.0) if v != u) for u in np.arange(32.0)],
        ),
        {"x": np.arange(32, dtype=f32)}, _out(32),
    ),
    "a polynomial": _each(
        "float v = x[i]; out[i] = fmaf(fmaf(fmaf(2, v, -3), v, 0.5f), v, 7);", ((2 * X64 - 3) * X64 + 0.5) * X64 + 7, error=1e-4
    ),
    "Kahan's sum": Kernel(
        """KERNEL(float* out, const float* x) {
  float sum = 0, lost = 0;
  for (int i = threadIdx.x; i < 256; i += 32) {
    float y = __fsub_rn(x[i], lost), next = __fadd_rn(sum, y);
    lost = __fsub_rn(__fsub_rn(next, sum), y);
    sum = next;
  }
  out[threadIdx.x] = sum;
}""",
        X64.reshape(8, 32).sum(0), {"x": X}, _out(32),
    ),
    "an exponential moving average": Kernel(
        """KERNEL(float* out, const float* x) {
  float mean = 0;
  for (int i = 0; i < 16; ++i) {
    float v = x[i * 16 + threadIdx.x];
    mean += 0.25f * (v - mean);
    out[i * 16 + threadIdx.x] = mean / (1 - exp2f((i + 1) * log2f(0.75f)));
  }
}""",
        lambda a: (a["out"].reshape(16, 16), _average(X64.reshape(16, 16), 0.25)), {"x": X}, _out(256), 1, 16, 1e-4,
    ),
    "a square root by Newton": _each(
        "float v = x[i], y = v > 1 ? v : 1; for (int r = 0; r < 12; ++r) y = 0.5f * (y + v / y); out[i] = v == 0 ? 0 : y;",
        np.sqrt(np.maximum(X64, 0)), np.maximum(X, 0), error=1e-3,
    ),
    "dot products of halves": Kernel(
        WARP_SUM + """KERNEL(float* out, const __half2* x, const __half2* y) {
  __half2 product = __hmul2(x[INDEX], y[threadIdx.x]);
  float dot = sum(__low2float(product) + __high2float(product));
  if (threadIdx.x == 0) out[blockIdx.x] = dot;
}""",
        FLOATS.astype(f16).reshape(4, 64).astype(f64) @ A.ravel()[:64].astype(f16).astype(f64),
        {"x": FLOATS.astype(f16), "y": A.ravel()[:64].astype(f16)}, _out(4), 4, 32, 5e-3,
    ),
    "bytes by a scale of each row": Kernel(
        WARP_SUM + """KERNEL(signed char* out, float* scales, const float* x) {
  float v = x[INDEX], scale = most(fabsf(v)) / 127, inverse = scale > 0 ? 1 / scale : 0;
  out[INDEX] = (signed char)max(-128, min(127, __float2int_rn(v * inverse)));
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}""",
        lambda a: (np.abs(a["out"].reshape(8, 32) * a["scales"][:, None] - SCALED) <= a["scales"][:, None] * 0.501, 1),
        {"x": SCALED}, {"out": (256, i8), "scales": (8, f32)}, 8,
    ),
    "bytes with saturation": _each(
        "out[i] = (signed char)fminf(fmaxf(rintf(x[i] * 16), -128), 127);", np.clip(np.rint(X * 16), -128, 127), dtype=i8
    ),
    "numbers from bytes": _each(
        "out[i] = (x[i] - 128) * 0.05f;", (np.arange(256) - 128) * 0.05, np.arange(256, dtype=u8)
    ),
    "powers of two from bits": _each(
        "out[i] = __int_as_float((x[i] + 127) << 23) * __uint_as_float(0x3fc00000u);",
        1.5 * 2.0 ** (np.arange(256) % 64 - 32), (np.arange(256) % 64 - 32).astype(i32),
    ),
    "tests for infinity and NaN": _each(
        "out[i] = isinf(x[i]) + 2 * isnan(x[i]) + 4 * isfinite(x[i]);",
        np.isinf(SPECIAL) + 2 * np.isnan(SPECIAL) + 4 * np.isfinite(SPECIAL), SPECIAL, i32,
    ),
    "a maximum that leaves out NaN": _each(
        "out[i] = fmaxf(isinf(x[i]) ? 0 : x[i], -1e30f);",
        np.where(np.isinf(SPECIAL), 0, np.where(np.isnan(SPECIAL), -1e30, SPECIAL)), SPECIAL,
    ),
    "infinite inputs": _each(
        "out[i] = 2 * x[i] + 1;", 2 * INFINITE.astype(f64) + 1, INFINITE
    ),
    "NaN and infinity taken out": _each(
        "float v = 3 * x[i] - x[i]; out[i] = isfinite(v) ? v : 0;", np.where(np.isfinite(SPECIAL), 2 * np.where(np.isfinite(SPECIAL), SPECIAL, 0), 0),
        SPECIAL, error=1e-4,
    ),
    "rays whose slabs are infinite": Kernel(
        """KERNEL(int* out, const float* d) {
  float inverse = 1 / d[INDEX], a = -1.5f * inverse, b = 0.5f * inverse;
  out[INDEX] = fmaxf(a, b) >= fmaxf(fminf(a, b), 0);
}""",
        np.ones(256), {"d": np.maximum(X, 0)}, _out(256, i32), 4, 64,
    ),
    "an infinity written and replaced": _each(
        "out[i] = 1 / x[i]; if (isinf(out[i])) out[i] = 0;",
        np.where(X > 0, 1 / np.where(X > 0, X64, 1), 0), np.maximum(X, 0),
    ),
    "paths where inf is no path": Kernel(
        """KERNEL(float* out, const float* d, const float* w) {
  int to = threadIdx.x;
  float best = d[to];
  for (int from = 0; from < 16; ++from) best = fminf(best, d[from] + w[from * 16 + to]);
  out[to] = best;
}""",
        np.minimum(PATHS[0], (PATHS[0][:, None] + PATHS[1]).min(0)),
        {"d": PATHS[0], "w": PATHS[1]}, _out(16), 1, 16,
    ),
    "normal numbers by Box and Muller": _each(
        "float u = (x[i] + 1.0f) * 2.3283064e-10f, r = sqrtf(-2 * logf(u)); out[i] = r * cospif(2 * (i / 256.0f));",
        np.sqrt(-2 * np.log(np.minimum((WORDS.astype(f64) + 1) / 2**32, 1))) * np.cos(np.pi * np.arange(256) / 128), WORDS, error=1e-3,
    ),
    "points of the Mandelbrot set": _each(
        "float a = 0, b = 0; int r = 0; for (; r < 50 && a * a + b * b <= 4; ++r) { float c = a * a - b * b + x[i] / 8; b = 2 * a * b + 0.5f; a = c; }"
        " out[i] = r;",
        np.array([_escape(complex(v / 8, 0.5)) for v in X64]), dtype=i32,
    ),
    "sines of large numbers": _each("out[i] = sinf(x[i] * 100000);", np.sin((X * f32(100000)).astype(f64)), error=1e-4),
    "FNV": Kernel(
        """KERNEL(unsigned* out, const unsigned char* text) {
  unsigned h = 2166136261u;
  for (int j = 0; j < 12; ++j) { h ^= text[INDEX * 12 + j]; h *= 16777619u; }
  out[INDEX] = h;
}""",
        _fnv(BYTES), {"text": BYTES}, _out(64, u32), 2,
    ),
    "murmur": _each(
        "unsigned h = x[i]; h ^= h >> 16; h *= 0x85ebca6bu; h ^= h >> 13; h *= 0xc2b2ae35u; h ^= h >> 16; out[i] = h;",
        _murmur(WORDS), WORDS, u32,
    ),
    "places by the top bits of a product": Kernel(
        "KERNEL(int* out, const unsigned* x) { atomicAdd(&out[(x[INDEX] * 2654435769u) >> 26], 1); }",
        np.bincount((WORDS * u32(2654435769)) >> 26, minlength=64), {"out": np.zeros(64, i32), "x": WORDS}, {}, 4, 64,
    ),
    "xorshift": _each(
        "unsigned s = x[i]; for (int r = 0; r < 8; ++r) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; } out[i] = s;",
        _xorshift(WORDS, 8), WORDS, u32,
    ),
    "PCG": _each(
        "u64 s = x[i] * 6364136223846793005ull + 1442695040888963407ull;"
        " unsigned v = (unsigned)((s >> 18 ^ s) >> 27), turn = s >> 59; out[i] = v >> turn | v << (-turn & 31);",
        _pcg(WORDS), WORDS, u32,
    ),
    "a linear congruential generator": _each(
        "unsigned s = x[i]; for (int r = 0; r < 5; ++r) s = s * 1664525u + 1013904223u; out[i] = s;", _lcg(WORDS, 5), WORDS, u32
    ),
    "random places by a generator": _each(
        "unsigned s = x[i]; float sum = 0; for (int r = 0; r < 5; ++r) { s = s * 1664525u + 1013904223u; sum += y[s >> 26]; } out[i] = sum;",
        sum(X64[_lcg(WORDS, r) >> 26] for r in range(1, 6)), WORDS, f32, 1e-4, y=X[:64],
    ),
    "Philox": _each(
        """unsigned c0 = x[i], c1 = 0, c2 = 0, c3 = 0, k0 = 0xdeadbeefu, k1 = 0x12345678u;
  for (int r = 0; r < 10; ++r, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
    unsigned a = __umulhi(0xd2511f53u, c0), b = __umulhi(0xcd9e8d57u, c2), low = 0xd2511f53u * c0;
    c0 = b ^ c1 ^ k0; c1 = 0xcd9e8d57u * c2; c2 = a ^ c3 ^ k1; c3 = low;
  }
  out[i] = c0 ^ c1 ^ c2 ^ c3;""",
        _philox(WORDS), WORDS, u32,
    ),
    "a counter that wraps": Kernel(
        """KERNEL(unsigned* out, unsigned* counter) {
  unsigned n = atomicAdd(counter, 1);
  out[n % 64] = n;
}""",
        lambda a: (a["out"], np.roll(np.arange(64) + (1 << 32) - 32, 32) % (1 << 32)),
        {"counter": np.full(1, (1 << 32) - 32, u32)}, _out(64, u32), 2,
    ),
    "a ring whose ends wrap": Kernel(
        """KERNEL(int* out, const int* ring, unsigned head, unsigned tail) {
  for (unsigned i = threadIdx.x; i < head - tail; i += blockDim.x) out[i] = ring[(tail + i) % 64];
}""",
        np.roll(INTS[:64], 20), {"ring": INTS[:64], "head": u32(44), "tail": u32((1 << 32) - 20)}, _out(64, i32),
    ),
    "negative offsets": Kernel(
        """KERNEL(float* out, const float* x, int n) {
  const float* end = x + n - 1;
  int i = threadIdx.x;
  float sum = 0;
  for (int d = -2; d <= 2; ++d) if (i + d >= 0 && i + d < n) sum += end[-(i + d)];
  out[i] = sum;
}""",
        np.convolve(X64[31::-1], np.ones(5), "same"), {"x": X[:32], "n": i32(32)}, _out(32), error=1e-4,
    ),
    "an offset added as an unsigned number": _each(
        "unsigned back = -3, j = i + back; out[i] = x[i] - (i < 3 ? 0 : x[j]);",
        X64 - np.where(np.arange(256) < 3, 0, np.roll(X64, 3)),
    ),
    "places beyond 31 bits": Kernel(
        """KERNEL(int* out, const int* x, int rows, int columns) {
  int i = threadIdx.x, row = rows - 1;
  size_t first = (size_t)row * columns, place = first + i;
  out[place - first] = x[place % columns] + (place > 0x7fffffffu);
}""",
        INTS[:32] + 1, {"x": INTS[:32], "rows": i32(1 << 27), "columns": i32(32)}, _out(32, i32),
    ),
    "reversed bits": _each(
        """unsigned v = x[i];
  v = (v & 0x55555555u) << 1 | (v >> 1 & 0x55555555u);
  v = (v & 0x33333333u) << 2 | (v >> 2 & 0x33333333u);
  v = (v & 0x0f0f0f0fu) << 4 | (v >> 4 & 0x0f0f0f0fu);
  v = (v & 0x00ff00ffu) << 8 | (v >> 8 & 0x00ff00ffu);
  out[i] = v << 16 | v >> 16;""",
        _reversed_bits(WORDS), WORDS, u32,
    ),
    "the order of a Fourier transform": _each(
        "out[i] = x[__brev(i) >> 24];", X[_reversed_bits(np.arange(256, dtype=u32)) >> 24]
    ),
    "Gray code and back": _each(
        "unsigned g = x[i] ^ x[i] >> 1, v = g; for (int d = 1; d < 32; d *= 2) v ^= v >> d; out[i] = v;", WORDS, WORDS, u32
    ),
    "bits counted by a product": _each(
        """unsigned v = x[i];
  v -= v >> 1 & 0x55555555u;
  v = (v & 0x33333333u) + (v >> 2 & 0x33333333u);
  v = (v + (v >> 4)) & 0x0f0f0f0fu;
  out[i] = (v * 0x01010101u) >> 24;""",
        np.array([int(w).bit_count() for w in WORDS]), WORDS, u32,
    ),
    "the lowest bit": _each("out[i] = x[i] & -x[i];", WORDS & (~WORDS + u32(1)), WORDS, u32),
    "fixed point by 64 bits": _each(
        "out[i] = (int)(((long long)x[i] * y + (1 << 15)) >> 16);",
        (INTS.astype(i64) * 65536 * 98304 + 32768) >> 16, INTS * 65536, i32, y=i32(98304),
    ),
    "powers by a modulus": _each(
        "u64 r = 1, b = x[i] % m; for (unsigned e = m - 2; e > 0; e /= 2, b = b * b % m) if (e & 1) r = r * b % m; out[i] = (unsigned)(r * x[i] % m);",
        np.ones(256), WORDS % u32(1000000006) + u32(1), u32, m=u32(1000000007),
    ),
    "a product by Montgomery": _each(
        "u64 t = (u64)x[i] * (x[i] >> 3); unsigned q = (unsigned)t * inverse; u64 r = (t + (u64)q * m) >> 32; out[i] = r >= m ? r - m : r;",
        np.array([v * (v >> 3) * pow(1 << 32, -1, 998244353) % 998244353 for v in (WORDS % 998244353).tolist()]),
        WORDS % u32(998244353), u32, m=u32(998244353), inverse=u32(-pow(998244353, -1, 1 << 32) % (1 << 32)),
    ),
    "a checksum of 16 bits": Kernel(
        """KERNEL(unsigned* out, const unsigned char* bytes) {
  unsigned sum = 0;
  for (int j = 0; j < 12; j += 2) sum += bytes[INDEX * 12 + j] << 8 | bytes[INDEX * 12 + j + 1];
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  out[INDEX] = ~sum & 0xffff;
}""",
        65534 - (BYTES.view(">u2").sum(1, dtype=i64) - 1) % 65535, {"bytes": BYTES}, _out(64, u32), 2,
    ),
    "Adler's checksum": Kernel(
        """KERNEL(unsigned* out, const unsigned char* bytes) {
  unsigned a = 1, b = 0;
  for (int j = 0; j < 12; ++j) { a = (a + bytes[INDEX * 12 + j]) % 65521; b = (b + a) % 65521; }
  out[INDEX] = b << 16 | a;
}""",
        _adler(BYTES), {"bytes": BYTES}, _out(64, u32), 2,
    ),
    "CRC by a table": Kernel(
        """KERNEL(unsigned* out, const unsigned char* bytes) {
  __shared__ unsigned table[256];
  for (unsigned v = threadIdx.x; v < 256; v += blockDim.x) {
    unsigned c = v;
    for (int k = 0; k < 8; ++k) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
    table[v] = c;
  }
  __syncthreads();
  unsigned crc = ~0u;
  for (int j = 0; j < 48; ++j) crc = table[(crc ^ bytes[threadIdx.x * 48 + j]) & 255] ^ crc >> 8;
  out[threadIdx.x] = ~crc;
}""",
        np.array([zlib.crc32(bytes(row)) for row in LONG]), {"bytes": LONG}, _out(64, u32), 1, 64,
    ),
    "time from a clock that wraps": _each(
        "unsigned passed = y[i] - x[i]; out[i] = passed > 1000u ? 1 : 0;",
        INTS * 40 > 1000, WORDS, i32, y=WORDS + (INTS * 40).astype(u32),
    ),
    "loops down to zero": Kernel(
        """KERNEL(float* out, const float* x, int n) {
  float y = 0;
  for (int i = n - 1; i >= 0; --i) y = y * 0.5f + x[i];
  for (unsigned i = n; i-- > 0;) y = y * 0.5f + x[i];
  out[threadIdx.x] = y;
}""",
        np.full(32, np.polyval(np.tile(X64[31::-1], 2), 0.5)), {"x": X[:32], "n": i32(32)}, _out(32),
    ),
    "division by a magic number": _each(
        "unsigned q = __umulhi(x[i], 0xcccccccdu) >> 3; out[i] = q * 100 + (x[i] - q * 10);",
        (WORDS.astype(u64) // 10 * 100 + WORDS % 10) % (1 << 32), WORDS, u32,
    ),
    "sums with saturation": _each(
        "unsigned sum = x[i] + y[i]; out[i] = sum < x[i] ? ~0u : sum;",
        np.minimum(WORDS.astype(u64) + np.roll(WORDS, 1), 0xFFFFFFFF), WORDS, u32, y=np.roll(WORDS, 1),
    ),
    "signed sums with saturation": _each(
        "int a = x[i], b = y[i]; unsigned sum = (unsigned)a + b; bool over = (int)((a ^ sum) & (b ^ sum)) < 0;"
        " out[i] = over ? (a < 0 ? 1 << 31 : ~(1 << 31)) : (int)sum;",
        np.clip(WORDS.view(i32).astype(i64) + np.roll(WORDS, 1).view(i32), -(1 << 31), (1 << 31) - 1),
        WORDS.view(i32), i32, y=np.roll(WORDS, 1).view(i32),
    ),
    "Morton code": _each(
        """unsigned a = x[i] & 0xffff, b = x[i] >> 16;
  a = (a | a << 8) & 0x00ff00ffu; b = (b | b << 8) & 0x00ff00ffu;
  a = (a | a << 4) & 0x0f0f0f0fu; b = (b | b << 4) & 0x0f0f0f0fu;
  a = (a | a << 2) & 0x33333333u; b = (b | b << 2) & 0x33333333u;
  a = (a | a << 1) & 0x55555555u; b = (b | b << 1) & 0x55555555u;
  out[i] = a | b << 1;""",
        _spread(WORDS & u32(0xFFFF)) | _spread(WORDS >> 16) << 1, WORDS, u32,
    ),
    "truth as numbers": _each(
        "int sign = (x[i] > 0) - (x[i] < 0); out[i] = sign * 10 + !sign + (sign == 1) * y[x[i] > 0];",
        np.sign(X) * 10 + (X > 0) * 7, dtype=i32, y=np.array([0, 7], i32),
    ),
    "a maximum of positive floats by their bits": Kernel(
        """KERNEL(float* out, const float* x) {
  __shared__ unsigned most;
  if (threadIdx.x == 0) most = 0;
  __syncthreads();
  atomicMax(&most, __float_as_uint(x[INDEX]));
  __syncthreads();
  if (threadIdx.x == 0) atomicMax((int*)out, (int)most);
}""",
        POSITIVE.max(keepdims=True), {"out": np.zeros(1, f32), "x": POSITIVE}, {}, 4, 64,
    ),
    "floats sorted by keys of their bits": Kernel(
        """__device__ unsigned key(float v) { unsigned b = __float_as_uint(v); return b ^ ((unsigned)((int)b >> 31) | 0x80000000u); }
__device__ float number(unsigned k) { return __uint_as_float(k ^ (((k >> 31) - 1) | 0x80000000u)); }
KERNEL(float* out, const float* x) {
  __shared__ unsigned keys[64];
  unsigned own = keys[threadIdx.x] = key(x[threadIdx.x]);
  __syncthreads();
  int place = 0;
  for (int j = 0; j < 64; ++j) place += keys[j] < own || (keys[j] == own && j < threadIdx.x);
  out[place] = number(own);
}""",
        np.sort(INFINITE[:64]), {"x": INFINITE[:64]}, _out(64), 1, 64,
    ),
    "the largest of floats by an atomic on keys": Kernel(
        """__device__ unsigned key(float v) { unsigned b = __float_as_uint(v); return b & 0x80000000u ? ~b : b | 0x80000000u; }
KERNEL(unsigned* out, const float* x) { atomicMax(out, key(x[INDEX])); }""",
        np.array([int(X.max().view(u32)) | 1 << 31]), {"out": np.zeros(1, u32), "x": X}, {}, 4, 64,
    ),
    "numbers of four bits with a sign": Kernel(
        """KERNEL(float* out, const unsigned* x) {
  int i = INDEX, q = (int)(x[i / 8] << (28 - i % 8 * 4)) >> 28;
  out[i] = 0.5f * q;
}""",
        0.5 * (((WORDS[:32, None] >> np.arange(0, 32, 4, dtype=u32) & 15).astype(i64).ravel() + 8) % 16 - 8),
        {"x": WORDS[:32]}, _out(256), 4, 64,
    ),
    "neighbours within bounds by one comparison": Kernel(
        """KERNEL(int* out, const int* x, int rows, int columns) {
  int r = threadIdx.x / 8, c = threadIdx.x % 8, sum = 0;
  for (int dr = -1; dr <= 1; ++dr)
    for (int dc = -1; dc <= 1; ++dc)
      if ((unsigned)(r + dr) < (unsigned)rows && (unsigned)(c + dc) < (unsigned)columns) sum += x[(r + dr) * columns + c + dc];
  out[threadIdx.x] = sum;
}""",
        np.array([_around(INTS[:64].reshape(8, 8), r, c) for r in range(8) for c in range(8)]),
        {"x": INTS[:64], "rows": i32(8), "columns": i32(8)}, _out(64, i32), 1, 64,
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", ["forward", "reversed"])
@pytest.mark.parametrize("name", NUMBERS)
def test_no_word_about_numbers_that_are_right(name, order):
    _check(NUMBERS[name], order)
