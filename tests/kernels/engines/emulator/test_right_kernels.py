"""Right kernels as people write them: the emulator computes what NumPy does and reports no race, no number that went wrong and
nothing left unwritten or unread."""

from __future__ import annotations

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
