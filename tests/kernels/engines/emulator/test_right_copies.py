"""Right kernels with asynchronous copies, as people write them: the result is right and the emulator reports nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from kernels.engines.emulator import ledger
from kernels.engines.emulator.compiler.compile import OPTIONS, compile_ptx
from kernels.engines.emulator.launch import Options, device_memory, launch
from tests.helpers.emulated import NAME, needs_nvrtc

pytestmark = [needs_nvrtc]
f32, i32 = np.float32, np.int32
RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(f32)


def whole(high: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(i32)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(float) @ b.astype(float)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x.astype(float) - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def normalized(x: np.ndarray) -> np.ndarray:
    x = x.astype(float)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


class Case(NamedTuple):
    """A kernel `k`, the arguments after its output, and the output. `unread`: it leaves some elements unread."""

    source: str
    args: tuple
    expected: np.ndarray
    block: int | tuple[int, int] = 64
    grid: int | tuple[int, int] = 1
    shared: int = 0
    compiler: tuple[str, ...] = OPTIONS
    unread: bool = False


PTX = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
template <int BYTES> __device__ void copy(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(at(to)), "l"(from), "n"(BYTES) : "memory");
}
template <int BYTES> __device__ void copy_some(void* to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(at(to)), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
}
__device__ void copy_cg(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at(to)), "l"(from) : "memory");
}
__device__ void copy_cg_some(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory"); }
__device__ void wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ float warp_sum(float v) {
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}
__device__ float warp_max(float v) {
  for (int d = 16; d; d /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
  return v;
}
"""

A, B = normal(32, 48), normal(48, 32)
ODD_A, ODD_B = normal(30, 44), normal(44, 28)
ROWS = normal(8, 64)
LINE = normal(256)
COUNTS = whole(100, 2, 128)
TILE = normal(64, 64)
WEIGHTS = normal(5)
TABLE, WORDS = normal(40, 32), whole(40, 24)
BYTES = RNG.integers(0, 256, 4096).astype(np.uint8)
QUERY, KEYS, VALUES = normal(32), normal(64, 32), normal(64, 32)
HALF_A, HALF_B = normal(16, 64).astype(np.float16), normal(64, 16).astype(np.float16)

BY_PTX = {
    "product, two buffers, two barriers": Case(
        PTX + """
extern "C" __global__ void k(float* c, const float* a, const float* b) {
  const int K = 48, N = 32, T = 16;
  __shared__ float as[2][T][T], bs[2][T][T];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, col = blockIdx.x * T + x;
  auto load = [&](int tile) {
    copy<4>(&as[tile % 2][y][x], a + row * K + tile * T + x);
    copy<4>(&bs[tile % 2][y][x], b + (tile * T + y) * N + col);
    commit();
  };
  float sum = 0;
  load(0);
  for (int tile = 0; tile < K / T; ++tile) {
    if (tile + 1 < K / T) { load(tile + 1); wait<1>(); } else wait<0>();
    __syncthreads();
    for (int i = 0; i < T; ++i) sum += as[tile % 2][y][i] * bs[tile % 2][i][x];
    __syncthreads();
  }
  c[row * N + col] = sum;
}""", (A, B), product(A, B), (16, 16), (2, 2)),
    "product, two buffers, one barrier": Case(
        PTX + """
extern "C" __global__ void k(float* c, const float* a, const float* b) {
  const int K = 48, N = 32, T = 16;
  extern __shared__ float2 shared[];
  float* as = (float*)shared, *bs = as + 2 * T * T;
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, col = blockIdx.x * T;
  auto load = [&](int tile, int to) {
    if (x < T / 2) copy<8>(as + (to * T + y) * T + 2 * x, a + row * K + tile * T + 2 * x);
    else copy<8>(bs + (to * T + y) * T + 2 * x - T, b + (tile * T + y) * N + col + 2 * x - T);
  };
  float sum = 0;
  load(0, 0);
  for (int tile = 0, now = 0; tile < K / T; ++tile, now ^= 1) {
    wait_all();
    __syncthreads();
    if (tile + 1 < K / T) load(tile + 1, now ^ 1);
    for (int i = 0; i < T; ++i) sum += as[(now * T + y) * T + i] * bs[(now * T + i) * T + x];
  }
  c[row * N + col + x] = sum;
}""", (A, B), product(A, B), (16, 16), (2, 2), 4096),
    "product, ring of 3, edges filled with zeros": Case(
        PTX + """
extern "C" __global__ void k(float* c, const float* a, const float* b, int M, int N, int K) {
  const int T = 16, STAGES = 3;
  __shared__ __align__(16) float as[STAGES][T][T], bs[STAGES][T][T];
  int t = threadIdx.y * T + threadIdx.x, tiles = (K + T - 1) / T;
  int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  auto load = [&](int tile) {
    if (tile < tiles && t < 128) {
      bool first = t < 64;
      int r = t % 64 / 4, c = t % 4 * 4;
      int from_row = first ? blockIdx.y * T + r : tile * T + r, from_col = first ? tile * T + c : blockIdx.x * T + c;
      int rows = first ? M : K, cols = first ? K : N;
      bool inside = from_row < rows && from_col < cols;
      const float* from = first ? a : b;
      copy_cg_some(first ? &as[tile % STAGES][r][c] : &bs[tile % STAGES][r][c],
                   inside ? from + from_row * cols + from_col : from, inside ? 16 : 0);
    }
    commit();
  };
  float sum = 0;
  for (int tile = 0; tile < STAGES - 1; ++tile) load(tile);
  for (int tile = 0; tile < tiles; ++tile) {
    wait<STAGES - 2>();
    __syncthreads();
    load(tile + STAGES - 1);
    for (int i = 0; i < T; ++i) sum += as[tile % STAGES][threadIdx.y][i] * bs[tile % STAGES][i][threadIdx.x];
  }
  if (row < M && col < N) c[row * N + col] = sum;
}""", (ODD_A, ODD_B, i32(30), i32(28), i32(44)), product(ODD_A, ODD_B), (16, 16), (2, 2)),
    "product of tensor cores, ring of 2": Case(
        PTX + """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(float* c, const half* a, const half* b) {
  __shared__ __align__(32) half as[2][16][16], bs[2][16][16];
  int lane = threadIdx.x, row = lane / 2, col = lane % 2 * 8;
  auto load = [&](int tile) {
    copy_cg(&as[tile % 2][row][col], a + row * 64 + tile * 16 + col);
    copy_cg(&bs[tile % 2][row][col], b + (tile * 16 + row) * 16 + col);
    commit();
  };
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0);
  load(0);
  for (int tile = 0; tile < 4; ++tile) {
    if (tile < 3) { load(tile + 1); wait<1>(); } else wait<0>();
    __syncwarp();
    fragment<matrix_a, 16, 16, 16, half, row_major> left;
    fragment<matrix_b, 16, 16, 16, half, row_major> right;
    load_matrix_sync(left, as[tile % 2][0], 16);
    load_matrix_sync(right, bs[tile % 2][0], 16);
    mma_sync(sum, left, right, sum);
    __syncwarp();
  }
  store_matrix_sync(c, sum, 16, mem_row_major);
}""", (HALF_A, HALF_B), product(HALF_A, HALF_B), 32),
    "transposition, padded tile": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float tile[32][33];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32, col = blockIdx.x * 32;
  for (int r = y; r < 32; r += 8) copy<4>(&tile[r][x], in + (row + r) * 64 + col + x);
  wait_all();
  __syncthreads();
  for (int r = y; r < 32; r += 8) out[(col + r) * 64 + row + x] = tile[x][r];
}""", (TILE,), TILE.T, (32, 8), (2, 2)),
    "transposition, swizzled tile of 16-byte pieces": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float4 tile[32][8];
  int t = threadIdx.x, row = blockIdx.y * 32, col = blockIdx.x * 32;
  for (int i = t; i < 256; i += 64) {
    int r = i / 8, piece = i % 8;
    copy_cg(&tile[r][piece ^ r / 4], in + (row + r) * 64 + col + piece * 4);
  }
  commit();
  wait<0>();
  __syncthreads();
  for (int i = t; i < 1024; i += 64) {
    int r = i % 32, c = i / 32;
    out[(col + c) * 64 + row + r] = ((float*)&tile[r][c / 4 ^ r / 4])[c % 4];
  }
}""", (TILE,), TILE.T, 64, (2, 2)),
    "stencil, halo filled with zeros": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in, int n) {
  __shared__ float s[66];
  int first = blockIdx.x * 64;
  for (int i = threadIdx.x; i < 66; i += 64) {
    int from = first + i - 1;
    bool inside = from >= 0 && from < n;
    copy_some<4>(s + i, in + (inside ? from : 0), inside ? 4 : 0);
  }
  commit();
  wait<0>();
  __syncthreads();
  int i = threadIdx.x + 1;
  if (first + threadIdx.x < n) out[first + threadIdx.x] = s[i - 1] - 2 * s[i] + s[i + 1];
}""", (LINE[:250], i32(250)), np.convolve(LINE[:250].astype(float), [1, -2, 1], "same"), 64, 4, unread=True),
    "stencil of a grid, rows in a ring of 4": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  const int W = 64, H = 64;
  __shared__ float ring[4][W];
  int x = threadIdx.x;
  auto load = [&](int row) {
    if (row < H) copy<4>(&ring[row % 4][x], in + row * W + x);
    commit();
  };
  load(0); load(1); load(2);
  for (int y = 0; y < H; ++y) {
    wait<1>();
    __syncthreads();
    bool inner = x > 0 && x < W - 1 && y > 0 && y < H - 1;
    float* now = ring[y % 4];
    out[y * W + x] = inner ? ring[(y + 3) % 4][x] + ring[(y + 1) % 4][x] + now[x - 1] + now[x + 1] - 4 * now[x] : 0;
    __syncthreads();
    load(y + 3);
  }
}""", (TILE,), np.pad(
            TILE[:-2, 1:-1].astype(float) + TILE[2:, 1:-1] + TILE[1:-1, :-2] + TILE[1:-1, 2:] - 4.0 * TILE[1:-1, 1:-1], 1
        )),
    "softmax, a row a warp": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float2 rows[4][32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.x * 4 + warp;
  copy<8>(&rows[warp][lane], in + row * 64 + 2 * lane);
  commit();
  wait<0>();
  __syncwarp();
  float* mine = (float*)rows[warp];
  float a = mine[lane], b = mine[lane + 32], top = warp_max(fmaxf(a, b));
  a = expf(a - top), b = expf(b - top);
  float sum = warp_sum(a + b);
  out[row * 64 + lane] = a / sum;
  out[row * 64 + lane + 32] = b / sum;
}""", (ROWS,), softmax(ROWS), 128, 2),
    "softmax in one pass over chunks": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float chunk[2][32];
  int lane = threadIdx.x;
  const float* row = in + blockIdx.x * 256;
  float top = -3e38f, sum = 0;
  copy<4>(&chunk[0][lane], row + lane);
  commit();
  for (int c = 0; c < 8; ++c) {
    if (c < 7) copy<4>(&chunk[(c + 1) % 2][lane], row + (c + 1) * 32 + lane);
    commit();
    wait<1>();
    float v = chunk[c % 2][lane], higher = fmaxf(top, v);
    sum = sum * expf(top - higher) + expf(v - higher);
    top = higher;
  }
  float most = warp_max(top);
  sum = warp_sum(sum * expf(top - most));
  for (int c = 0; c < 8; ++c) out[blockIdx.x * 256 + c * 32 + lane] = expf(row[c * 32 + lane] - most) / sum;
}""", (TILE.reshape(16, 256),), softmax(TILE.reshape(16, 256)), 32, 16),
    "prefix sum of a tile": Case(
        PTX + """
extern "C" __global__ void k(int* out, const int* in) {
  __shared__ int s[128];
  int t = threadIdx.x, first = blockIdx.x * 128;
  if (t < 32) copy_cg(s + 4 * t, in + first + 4 * t);
  wait_all();
  __syncthreads();
  for (int d = 1; d < 128; d *= 2) {
    int before = t >= d ? s[t - d] : 0;
    __syncthreads();
    s[t] += before;
    __syncthreads();
  }
  out[first + t] = s[t];
}""", (COUNTS,), np.cumsum(COUNTS, 1, dtype=i32), 128, 2),
    "sum, each thread reads what it copied": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float ring[2][64];
  int t = threadIdx.x;
  float sum = 0;
  copy<4>(&ring[0][t], in + t);
  commit();
  for (int i = 0; i < 64; ++i) {
    if (i + 1 < 64) copy<4>(&ring[(i + 1) % 2][t], in + (i + 1) * 64 + t);
    commit();
    wait<1>();
    sum += ring[i % 2][t];
  }
  sum = warp_sum(sum);
  if (t % 32 == 0) atomicAdd(out, sum);
}""", (TILE,), TILE.sum(dtype=float)[None]),
    "convolution of a row, weights first": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in, const float* weights) {
  __shared__ float w[5], s[64 + 4];
  int t = threadIdx.x, first = blockIdx.x * 60;
  if (t < 5) copy<4>(w + t, weights + t);
  commit();
  copy<4>(s + t, in + first + t);
  commit();
  wait<1>();
  __syncthreads();
  float mine[5];
  for (int i = 0; i < 5; ++i) mine[i] = w[4 - i];
  wait<0>();
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 5 && t < 60; ++i) sum += mine[i] * s[t + i];
  if (t < 60) out[first + t] = sum;
}""", (LINE[:244], WEIGHTS), np.convolve(LINE[:244].astype(float), WEIGHTS, "valid"), 64, 4),
    "gather, the indices come first": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* table, const int* words) {
  __shared__ int index[24];
  __shared__ float rows[24][32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x < 24) copy<4>(index + threadIdx.x, words + threadIdx.x);
  wait_all();
  __syncthreads();
  for (int r = warp; r < 24; r += 2) copy<4>(&rows[r][lane], table + index[r] * 32 + lane);
  wait_all();
  __syncthreads();
  for (int r = warp; r < 24; r += 2) out[r * 32 + lane] = rows[23 - r][31 - lane];
}""", (TABLE, WORDS), TABLE[WORDS][::-1, ::-1], unread=True),
    "embedding, padding words are zeros": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* table, const int* words) {
  __shared__ float4 rows[8][8];
  int t = threadIdx.x, r = t / 8, piece = t % 8, word = words[blockIdx.x * 8 + r];
  copy_cg_some(&rows[r][piece], table + max(word, 0) * 32 + piece * 4, word < 0 ? 0 : 16);
  commit();
  wait<0>();
  __syncthreads();
  float* values = (float*)rows;
  for (int i = t; i < 256; i += 64) out[blockIdx.x * 256 + i] = 2 * values[i];
}""", (TABLE, np.where(WORDS < 10, -1, WORDS)), np.where(WORDS[:, None] < 10, 0, 2 * TABLE[WORDS]), 64, 3, unread=True),
    "histogram of a tile of bytes": Case(
        PTX + """
extern "C" __global__ void k(int* out, const unsigned char* in) {
  __shared__ int bins[256];
  __shared__ __align__(16) unsigned char s[1024];
  int t = threadIdx.x;
  copy_cg(s + 16 * t, in + blockIdx.x * 1024 + 16 * t);
  commit();
  for (int b = t; b < 256; b += 64) bins[b] = 0;
  wait<0>();
  __syncthreads();
  for (int i = t; i < 1024; i += 64) atomicAdd(bins + s[i], 1);
  __syncthreads();
  for (int b = t; b < 256; b += 64) if (bins[b]) atomicAdd(out + b, bins[b]);
}""", (BYTES,), np.bincount(BYTES, minlength=256).astype(i32), 64, 4),
    "layer norm, the next row comes": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float rows[2][64], parts[2][2];
  int t = threadIdx.x, warp = t / 32;
  if (t < 16) copy_cg(&rows[0][4 * t], in + 4 * t);
  commit();
  for (int r = 0; r < 8; ++r) {
    if (r < 7 && t < 16) copy_cg(&rows[(r + 1) % 2][4 * t], in + (r + 1) * 64 + 4 * t);
    commit();
    wait<1>();
    __syncthreads();
    float v = rows[r % 2][t], sum = warp_sum(v), squares = warp_sum(v * v);
    if (t % 32 == 0) parts[warp][0] = sum, parts[warp][1] = squares;
    __syncthreads();
    float mean = (parts[0][0] + parts[1][0]) / 64, variance = (parts[0][1] + parts[1][1]) / 64 - mean * mean;
    out[r * 64 + t] = (v - mean) * rsqrtf(variance + 1e-5f);
  }
}""", (ROWS,), normalized(ROWS)),
    "attention of one query, keys before values": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* query, const float* keys, const float* values) {
  __shared__ __align__(16) float ks[64][36], vs[64][32], q[32], scores[64];
  int t = threadIdx.x;
  if (t < 8) copy_cg(q + 4 * t, query + 4 * t);
  for (int i = t; i < 512; i += 64) copy_cg(&ks[i / 8][i % 8 * 4], keys + 4 * i);
  commit();
  for (int i = t; i < 512; i += 64) copy_cg(&vs[i / 8][i % 8 * 4], values + 4 * i);
  commit();
  wait<1>();
  __syncthreads();
  float score = 0, top = -3e38f, sum = 0, mine = 0;
  for (int d = 0; d < 32; ++d) score += q[d] * ks[t][d];
  scores[t] = score;
  wait<0>();
  __syncthreads();
  if (t >= 32) return;
  for (int j = 0; j < 64; ++j) top = fmaxf(top, scores[j]);
  for (int j = 0; j < 64; ++j) {
    float p = expf(scores[j] - top);
    sum += p;
    mine += p * vs[j][t];
  }
  out[t] = mine / sum;
}""", (QUERY, KEYS, VALUES), softmax(product(KEYS, QUERY)) @ VALUES),
}  # fmt: skip

KERNELS = BY_PTX


def run(case: Case, order: str):
    names = [f"arg{n + 1}" for n in range(len(case.args))]
    inputs = {name: arg for name, arg in zip(names, case.args, strict=True) if isinstance(arg, np.ndarray)}
    dtype = i32 if case.expected.dtype.kind == "i" else f32
    arrays = {"arg0": np.zeros(case.expected.shape, dtype), **inputs}
    written = ["arg0", *inputs] if "atomicAdd(out" in case.source else list(inputs)
    memory = device_memory(arrays, written)
    args = ["arg0", *(n if n in inputs else arg for n, arg in zip(names, case.args, strict=True))]
    block, grid = (n if isinstance(n, tuple) else (n, 1) for n in (case.block, case.grid))
    options = Options(races=True, numbers=True, order=order)
    ptx = compile_ptx(case.source, NAME, case.compiler)
    return memory, launch(ptx, "k", (*grid, 1), (*block, 1), args, memory, case.shared, options)


@pytest.mark.parametrize("order", ["forward", "reversed"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_raises_no_alarm(name, order):
    case = KERNELS[name]
    memory, done = run(case, order)
    notes = [note for note in ledger.notes(done.ended) if not (case.unread and "never read" in note)]
    assert (*done.races, *done.warnings, *notes) == ()
    assert list(done.ended.first_nan.messages()) == []
    np.testing.assert_allclose(memory.array("arg0"), case.expected, rtol=1e-4, atol=1e-5)
