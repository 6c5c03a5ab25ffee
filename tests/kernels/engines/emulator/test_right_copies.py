"""Right kernels with asynchronous copies, as people write them: the emulator reports nothing about them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from kernels import sources
from kernels.engines.emulator import ledger
from kernels.engines.emulator.compiler.compile import OPTIONS, compile_ptx
from kernels.engines.emulator.launch import Options, device_memory, launch
from tests.helpers.emulated import NAME, needs_nvrtc
from tests.helpers.hopper import COMPILER

pytestmark = [needs_nvrtc]
f32, i32 = np.float32, np.int32
RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(f32)


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


def heat(x: np.ndarray, steps: int) -> np.ndarray:
    x = x.astype(float)
    for _ in range(steps):
        x = np.convolve(x, [0.25, 0.5, 0.25], "same")
    return x


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
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
    :: "r"(at(to)), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
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

MBARRIER = """
__device__ void init(unsigned long long* bar, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(bar)), "r"(count) : "memory");
}
__device__ void arrive(unsigned long long* bar) {
  asm volatile("{.reg .b64 state;\\n mbarrier.arrive.shared.b64 state, [%0];\\n}" :: "r"(at(bar)) : "memory");
}
__device__ void wait(unsigned long long* bar, int parity) {
  int ended = 0;
  while (!ended)
    asm volatile("{.reg .pred p;\\n mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\\n selp.b32 %0, 1, 0, p;\\n}"
      : "=r"(ended) : "r"(at(bar)), "r"(parity) : "memory");
}
"""

A, B = normal(32, 48), normal(48, 32)
ODD_A, ODD_B = normal(30, 44), normal(44, 28)
ROWS = normal(8, 64)
LINE = normal(256)
COUNTS = whole(100, 2, 128)
TILE = normal(64, 64)
WEIGHTS = normal(5)
PALETTE = normal(256)
TABLE, WORDS = normal(40, 32), whole(40, 24)
BYTES = RNG.integers(0, 256, 4096).astype(np.uint8)
QUERY, KEYS, VALUES = normal(32), normal(64, 32), normal(64, 32)
HALF_A, HALF_B = normal(16, 64).astype(np.float16), normal(64, 16).astype(np.float16)

BY_PTX = {
    "lanes beyond the end ignore their source": Case(PTX + """
extern "C" __global__ void k(float* out, const float* in, int n) {
  __shared__ __align__(16) float s[256];
  int t = threadIdx.x;
  asm volatile("{.reg .pred beyond;\\n setp.ge.s32 beyond, %2, %3;\\n cp.async.cg.shared.global [%0], [%1], 16, beyond;\\n}"
    :: "r"(at(s + 4 * t)), "l"(in + 4 * t), "r"(4 * t), "r"(n) : "memory");
  wait_all();
  __syncthreads();
  for (int i = t; i < 256; i += 64) out[i] = s[255 - i];
}""", (LINE[:200], np.int32(200)), np.append(np.zeros(56, f32), LINE[199::-1])),
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
    "matrix by vector, ring of 4, empty groups at the end": Case(
        PTX + """
extern "C" __global__ void k(float* y, const float* w, const float* x) {
  const int STAGES = 4, CHUNKS = 8;
  __shared__ float4 ws[STAGES][8][8], xs[STAGES][8];
  int t = threadIdx.x, r = t / 8, c = t % 8;
  auto load = [&](int chunk) {
    if (chunk < CHUNKS) {
      copy_cg(&ws[chunk % STAGES][r][c], w + (blockIdx.x * 8 + r) * 256 + chunk * 32 + c * 4);
      if (r == 0) copy_cg(&xs[chunk % STAGES][c], x + chunk * 32 + c * 4);
    }
    commit();
  };
  float sum = 0;
  for (int chunk = 0; chunk < STAGES - 1; ++chunk) load(chunk);
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
    load(chunk + STAGES - 1);
    wait<STAGES - 1>();
    __syncthreads();
    float4 a = ws[chunk % STAGES][r][c], b = xs[chunk % STAGES][c];
    sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    __syncthreads();
  }
  for (int d = 4; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (c == 0) y[blockIdx.x * 8 + r] = sum;
}""", (TILE.reshape(16, 256), LINE), product(TILE.reshape(16, 256), LINE), 64, 2),
    "chunks are used as they come": Case(
        PTX + """
template <int CHUNK> __device__ void use(float* out, float (*s)[64], float& before) {
  wait<3 - CHUNK>();
  __syncthreads();
  for (int i = 0; i < 64; ++i) before = fmaxf(before, s[CHUNK][i]);
  out[CHUNK * 64 + threadIdx.x] = before - s[CHUNK][63 - threadIdx.x];
}
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[4][64];
  for (int chunk = 0; chunk < 4; ++chunk) {
    copy<4>(&s[chunk][threadIdx.x], in + chunk * 64 + threadIdx.x);
    commit();
  }
  float before = -3e38f;
  use<0>(out, s, before);
  use<1>(out, s, before);
  use<2>(out, s, before);
  use<3>(out, s, before);
}""", (LINE,), np.maximum.accumulate(LINE.reshape(4, 64).max(1))[:, None] - LINE.reshape(4, 64)[:, ::-1]),
    "a warp copies, named barriers": Case(
        PTX + """
#define SYNC(id) asm volatile("bar.sync %0, 96;" :: "r"(id) : "memory")
#define ARRIVE(id) asm volatile("bar.arrive %0, 96;" :: "r"(id) : "memory")
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float ring[2][64];
  int t = threadIdx.x;
  if (t < 32) {
    for (int r = 0; r < 8; ++r) {
      if (r >= 2) SYNC(3 + r % 2);
      copy<8>(&ring[r % 2][2 * t], in + r * 64 + 2 * t);
      wait_all();
      ARRIVE(1 + r % 2);
    }
  } else {
    for (int r = 0; r < 8; ++r) {
      SYNC(1 + r % 2);
      out[r * 64 + t - 32] = ring[r % 2][95 - t];
      if (r < 6) ARRIVE(3 + r % 2);
    }
  }
}""", (ROWS,), ROWS[:, ::-1], 96),
    "convert own pieces before the barrier": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in, float scale) {
  __shared__ float4 s[64];
  int t = threadIdx.x;
  copy_cg(s + t, in + 4 * t);
  wait_all();
  s[t].x *= scale, s[t].y *= scale, s[t].z *= scale, s[t].w *= scale;
  __syncthreads();
  float* all = (float*)s;
  for (int i = t; i < 256; i += 64) out[i] = all[i] + all[(i + 64) % 256];
}""", (LINE, f32(3)), 3 * (LINE.astype(float) + np.roll(LINE, -64))),
    "the next copy begins once a value is in a register": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[64];
  int t = threadIdx.x;
  float sum = 0;
  copy<4>(s + t, in + t);
  for (int r = 0; r < 8; ++r) {
    wait_all();
    __syncthreads();
    float v = s[t ^ 32];
    __syncthreads();
    if (r < 7) copy<4>(s + t, in + (r + 1) * 64 + t);
    sum += v * v;
  }
  out[t] = sum;
}""", (ROWS,), np.roll((ROWS.astype(float) ** 2).sum(0), 32)),
    "a text whose last piece is short": Case(
        PTX + """
extern "C" __global__ void k(int* out, const unsigned char* in, int n) {
  __shared__ __align__(16) unsigned char s[1024];
  int t = threadIdx.x, left = min(max(n - 16 * t, 0), 16), sum = 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
    :: "r"(at(s + 16 * t)), "l"(left ? in + 16 * t : in), "r"(left) : "memory");
  commit();
  wait<0>();
  __syncthreads();
  for (int i = t; i < 1024; i += 64) sum += s[i];
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (t % 32 == 0) atomicAdd(out, sum);
}""", (BYTES[:955], i32(955)), BYTES[:955].sum(dtype=i32)[None]),
    "head, body and tail of three sizes": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float s[256];
  int t = threadIdx.x;
  if (t < 3) copy<4>(s + 1 + t, in + 1 + t);
  else if (t < 63) copy<16>(s + 4 * t - 8, in + 4 * t - 8);
  else copy<8>(s + 244, in + 244);
  commit();
  wait<0>();
  __syncthreads();
  for (int i = t; i < 245; i += 64) out[i] = s[245 - i];
}""", (LINE,), LINE[245:0:-1], unread=True),
    "bitonic sort of a tile": Case(
        PTX + """
extern "C" __global__ void k(int* out, const int* in) {
  __shared__ int s[64];
  int t = threadIdx.x;
  if (t < 32) copy<8>(s + 2 * t, in + 2 * t);
  wait_all();
  __syncthreads();
  for (int size = 2; size <= 64; size *= 2)
    for (int d = size / 2; d; d /= 2) {
      int other = t ^ d;
      if (other > t && (s[t] > s[other]) == !(t & size)) {
        int v = s[t];
        s[t] = s[other];
        s[other] = v;
      }
      __syncthreads();
    }
  out[t] = s[t];
}""", (COUNTS[0, :64],), np.sort(COUNTS[0, :64])),
    "a table comes while the indices are computed": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* table, const float* in) {
  __shared__ float palette[256];
  int t = threadIdx.x;
  for (int i = t; i < 64; i += 32) copy_cg(palette + 4 * i, table + 4 * i);
  commit();
  int index[8];
  for (int i = 0; i < 8; ++i) index[i] = min(max(__float2int_rd(in[i * 32 + t] * 32) + 128, 0), 255);
  wait<0>();
  __syncwarp();
  for (int i = 0; i < 8; ++i) out[i * 32 + t] = palette[index[i]];
}""", (PALETTE, LINE), PALETTE[np.clip(np.floor(LINE * f32(32)) + 128, 0, 255).astype(int)], 32, unread=True),
    "attention over tiles, keys and values in turn": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* query, const float* keys, const float* values) {
  __shared__ float4 ks[32][9], vs[32][8];
  __shared__ float scores[32];
  int lane = threadIdx.x;
  auto load = [&](float4* to, int width, const float* from, int tile) {
    if (tile < 2) for (int i = lane; i < 256; i += 32) copy_cg(to + i / 8 * width + i % 8, from + tile * 1024 + 4 * i);
    commit();
  };
  float q[32], mine = 0, sum = 0, top = -3e38f;
  load(ks[0], 9, keys, 0);
  load(vs[0], 8, values, 0);
  for (int d = 0; d < 32; ++d) q[d] = query[d];
  for (int tile = 0; tile < 2; ++tile) {
    wait<1>();
    __syncwarp();
    float score = 0;
    for (int d = 0; d < 32; ++d) score += q[d] * ((float*)ks[lane])[d];
    float higher = fmaxf(top, warp_max(score)), old = expf(top - higher), p = expf(score - higher);
    scores[lane] = p;
    sum = sum * old + warp_sum(p);
    mine *= old;
    top = higher;
    __syncwarp();
    load(ks[0], 9, keys, tile + 1);
    wait<1>();
    __syncwarp();
    for (int j = 0; j < 32; ++j) mine += scores[j] * ((float*)vs[j])[lane];
    __syncwarp();
    load(vs[0], 8, values, tile + 1);
  }
  out[lane] = mine / sum;
}""", (QUERY, KEYS, VALUES), softmax(product(KEYS, QUERY)) @ VALUES, 32),
    "lanes without a copy have an empty group": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float4 rows[2][2][16];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int r = 0; r < 2; ++r) {
    if (lane < 16) copy_cg(&rows[warp][r][lane], in + (r * 2 + warp) * 64 + 4 * lane);
    commit();
  }
  wait<1>();
  __syncwarp();
  float first = ((float*)rows[warp][0])[63 - lane];
  wait<0>();
  __syncwarp();
  out[threadIdx.x] = first + ((float*)rows[warp][1])[lane];
}""", (ROWS[:4],), ROWS[:2, :31:-1].astype(float) + ROWS[2:4, :32], unread=True),
    "steps of heat in shared memory after a copy": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[2][66];
  int t = threadIdx.x;
  copy<4>(&s[0][t + 1], in + t);
  if (t < 4) s[t / 2][t % 2 * 65] = 0;
  wait_all();
  __syncthreads();
  for (int step = 0; step < 4; ++step) {
    float* now = s[step % 2];
    s[1 - step % 2][t + 1] = (now[t] + 2 * now[t + 1] + now[t + 2]) / 4;
    __syncthreads();
  }
  out[t] = s[0][t + 1];
}""", (LINE[:64],), heat(LINE[:64], 4)),
    "rows of a persistent block, a queue of tiles": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in, int rows) {
  __shared__ float s[2][64];
  int t = threadIdx.x, now = 0;
  auto load = [&](int row, int to) {
    if (row < rows) copy<4>(&s[to][t], in + row * 64 + t);
    commit();
  };
  load(blockIdx.x, 0);
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    wait<0>();
    __syncthreads();
    load(row + gridDim.x, now ^ 1);
    out[row * 64 + t] = s[now][(t + 1) % 64] - s[now][t];
    now ^= 1;
  }
}""", (TILE[:61], i32(61)), np.roll(TILE[:61], -1, 1) - TILE[:61], 64, 4),
    "arrivals at an mbarrier after copies": Case(
        PTX + MBARRIER + """
extern "C" __global__ void k(float* out, const float* a, const float* b) {
  __shared__ float as[64], bs[64];
  __shared__ unsigned long long full;
  int t = threadIdx.x;
  float sum = 0;
  if (t == 0) init(&full, 64);
  __syncthreads();
  for (int r = 0; r < 8; ++r) {
    copy<4>(as + t, a + r * 64 + t);
    copy<4>(bs + t, b + r * 64 + t);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at(&full)) : "memory");
    wait(&full, r % 2);
    sum += as[t ^ 33] * bs[t ^ 33];
    __syncthreads();
  }
  sum = warp_sum(sum);
  if (t % 32 == 0) atomicAdd(out, sum);
}""", (ROWS, TILE[:8]), (ROWS.astype(float) * TILE[:8]).sum()[None]),
    "arrivals that are counted twice": Case(
        PTX + MBARRIER + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float4 s[16];
  __shared__ unsigned long long full;
  int t = threadIdx.x;
  if (t == 0) init(&full, 64);
  __syncthreads();
  if (t < 16) {
    copy_cg(s + t, in + 4 * t);
    asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" :: "r"(at(&full)) : "memory");
  }
  arrive(&full);
  wait(&full, 0);
  out[t] = ((float*)s)[63 - t];
}""", (LINE[:64],), LINE[63::-1]),
    "warps that copy and warps that add, mbarriers": Case(
        PTX + MBARRIER + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float4 ring[2][16];
  __shared__ unsigned long long full[2], free[2];
  int t = threadIdx.x;
  if (t < 2) init(full + t, 32), init(free + t, 64);
  __syncthreads();
  if (t >= 64) {
    int lane = t - 64;
    for (int r = 0; r < 16; ++r) {
      int stage = r % 2, use = r / 2;
      if (use > 0) wait(free + stage, (use - 1) % 2);
      if (lane < 16) copy_cg(&ring[stage][lane], in + r * 64 + 4 * lane);
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at(full + stage)) : "memory");
    }
    wait_all();
  } else {
    float sum = 0;
    for (int r = 0; r < 16; ++r) {
      wait(full + r % 2, r / 2 % 2);
      sum += ((float*)ring[r % 2])[63 - t] * (r + 1);
      arrive(free + r % 2);
    }
    out[t] = sum;
  }
}""", (TILE[:16],), (TILE[:16].astype(float) * np.arange(1, 17)[:, None]).sum(0)[::-1], 96),
    "a cache policy for values that are read once": Case(
        PTX + """
extern "C" __global__ void k(float* out, const float* in, int n) {
  __shared__ float4 s[2][16];
  int t = threadIdx.x;
  unsigned long long once;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
  if (t < 16)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
      :: "r"(at(&s[0][t])), "l"(in + 4 * t), "l"(once) : "memory");
  else if (t < 32)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;"
      :: "r"(at(&s[1][t - 16])), "l"(in + 4 * t), "r"(t < n ? 16 : 0), "l"(once) : "memory");
  commit();
  wait<0>();
  __syncthreads();
  float* all = (float*)s;
  out[t] = all[127 - t] + all[t];
}""", (LINE[:128], i32(30)), LINE[:64] + np.where(np.arange(128) < 120, LINE[:128], 0)[:63:-1].astype(float), unread=True),
}  # fmt: skip

PRIMITIVES = "#include <cuda_pipeline.h>\n"
BY_PRIMITIVES = {
    "pipeline primitives: a ring of 3": Case(
        PRIMITIVES + """
extern "C" __global__ void k(float* out, const float* in) {
  const int STAGES = 3;
  __shared__ float ring[STAGES][64];
  int t = threadIdx.x;
  float most = -3e38f;
  auto load = [&](int row) {
    if (row < 64) __pipeline_memcpy_async(&ring[row % STAGES][t], in + row * 64 + t, 4);
    __pipeline_commit();
  };
  for (int row = 0; row < STAGES - 1; ++row) load(row);
  for (int row = 0; row < 64; ++row) {
    load(row + STAGES - 1);
    __pipeline_wait_prior(STAGES - 1);
    __syncthreads();
    most = fmaxf(most, ring[row % STAGES][63 - t] * (row % 2 ? 1 : -1));
    __syncthreads();
  }
  out[t] = most;
}""", (TILE,), (TILE * np.where(np.arange(64) % 2, 1, -1)[:, None]).max(0)[::-1]),
    "pipeline primitives: the rest of a piece is zeros": Case(
        PRIMITIVES + """
extern "C" __global__ void k(float* out, const float* in, int n) {
  __shared__ __align__(16) float s[64];
  int t = threadIdx.x, left = min(max(n - 4 * t, 0), 4);
  if (t < 16) __pipeline_memcpy_async(s + 4 * t, in + (left ? 4 * t : 0), 16, 4 * (4 - left));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  out[t] = s[63 - t];
}""", (LINE[:54], i32(54)), np.pad(LINE[:54], (0, 10))[::-1]),
    "pipeline primitives: transposition by pieces of 8 bytes": Case(
        PRIMITIVES + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float2 tile[32][17];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32, col = blockIdx.x * 32;
  const float2* from = (const float2*)in;
  for (int r = y; r < 32; r += 4)
    __pipeline_memcpy_async(&tile[r][x], from + (row + r) * 32 + col / 2 + x, sizeof(float2));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  for (int c = y; c < 16; c += 4) {
    for (int r = x; r < 32; r += 16) {
      out[(col + 2 * c) * 64 + row + r] = tile[r][c].x;
      out[(col + 2 * c + 1) * 64 + row + r] = tile[r][c].y;
    }
  }
}""", (TILE,), TILE.T, (16, 4), (2, 2)),
    "pipeline primitives: arrival at an mbarrier": Case(
        PRIMITIVES + """#include <cuda_awbarrier_primitives.h>
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[64];
  __shared__ __mbarrier_t full;
  int t = threadIdx.x;
  if (t == 0) __mbarrier_init(&full, 64);
  __syncthreads();
  __pipeline_memcpy_async(s + t, in + t, 4);
  __pipeline_arrive_on(&full);
  __mbarrier_token_t token = __mbarrier_arrive(&full);
  while (!__mbarrier_test_wait(&full, token)) {}
  out[t] = s[t] + s[63 - t];
}""", (LINE[:64],), LINE[:64].astype(float) + LINE[63::-1]),
    "pipeline primitives: two arrays, the first is used early": Case(
        PRIMITIVES + """
extern "C" __global__ void k(float* out, const float* x, const float* gain) {
  __shared__ float row[64], scale[64], parts[2];
  int t = threadIdx.x;
  __pipeline_memcpy_async(row + t, x + blockIdx.x * 64 + t, 4);
  __pipeline_commit();
  __pipeline_memcpy_async(scale + t, gain + t, 4);
  __pipeline_commit();
  __pipeline_wait_prior(1);
  float v = row[t], sum = v * v;
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  if (t % 32 == 0) parts[t / 32] = sum;
  __pipeline_wait_prior(0);
  __syncthreads();
  out[blockIdx.x * 64 + t] = v * rsqrtf((parts[0] + parts[1]) / 64) * scale[t];
}""", (ROWS, LINE[:64]), LINE[:64] * ROWS / np.sqrt((ROWS.astype(float) ** 2).mean(1, keepdims=True)), 64, 8),
    "pipeline of cuda_pipeline.h, pieces of its own type": Case(
        PRIMITIVES + """using namespace nvcuda::experimental;
extern "C" __global__ void k(float* out, const float4* in) {
  __shared__ float4 s[2][16];
  int t = threadIdx.x;
  pipeline pipe;
  if (t < 16) memcpy_async(s[0][t], in[t], pipe);
  pipe.commit();
  if (t < 16) memcpy_async(s[1][t], in[16 + t], pipe);
  pipe.commit();
  pipe.wait_prior<1>();
  __syncthreads();
  float v = ((float*)s[0])[63 - t];
  pipe.wait_prior<0>();
  __syncthreads();
  out[t] = v * ((float*)s[1])[t];
}""", (LINE[:128],), LINE[63::-1].astype(float) * LINE[64:128]),
}  # fmt: skip

GROUPS = """#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
"""
BY_GROUPS = {
    "group: a histogram of the block's tile": Case(
        GROUPS + """
extern "C" __global__ void k(int* out, const int* in) {
  __shared__ int s[128], bins[100];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, s, in + blockIdx.x * 128, sizeof(s));
  for (int i = block.thread_rank(); i < 100; i += block.size()) bins[i] = 0;
  cg::wait(block);
  for (int i = block.thread_rank(); i < 128; i += block.size()) atomicAdd(bins + s[i], 1);
  block.sync();
  for (int i = block.thread_rank(); i < 100; i += block.size()) atomicAdd(out + i, bins[i]);
}""", (COUNTS,), np.bincount(COUNTS.ravel(), minlength=100).astype(i32), 64, 2),
    "group: two buffers, wait_prior": Case(
        GROUPS + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[2][64];
  auto block = cg::this_thread_block();
  int t = block.thread_rank();
  float sum = 0;
  cg::memcpy_async(block, s[0], in, sizeof(s[0]));
  for (int r = 0; r < 8; ++r) {
    if (r < 7) {
      cg::memcpy_async(block, s[(r + 1) % 2], in + (r + 1) * 64, sizeof(s[0]));
      cg::wait_prior<1>(block);
    } else {
      cg::wait(block);
    }
    sum += s[r % 2][63 - t] * s[r % 2][t];
    block.sync();
  }
  out[t] = sum;
}""", (ROWS,), (ROWS.astype(float) * ROWS[:, ::-1]).sum(0)),
    "group: softmax, a row a tile of 32": Case(
        GROUPS + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float rows[4][64];
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  int lane = warp.thread_rank(), row = blockIdx.x * 4 + warp.meta_group_rank();
  float* mine = rows[warp.meta_group_rank()];
  cg::memcpy_async(warp, mine, in + row * 64, sizeof(float) * 64);
  cg::wait(warp);
  float top = cg::reduce(warp, fmaxf(mine[lane], mine[63 - lane]), cg::greater<float>());
  float a = expf(mine[lane] - top), b = expf(mine[lane + 32] - top), sum = cg::reduce(warp, a + b, cg::plus<float>());
  out[row * 64 + lane] = a / sum;
  out[row * 64 + lane + 32] = b / sum;
}""", (ROWS,), softmax(ROWS), 128, 2),
    "group: prefix sums of tiles of 16": Case(
        GROUPS + """#include <cooperative_groups/scan.h>
extern "C" __global__ void k(int* out, const int* in) {
  __shared__ int s[4][16];
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  int lane = tile.thread_rank(), n = tile.meta_group_rank();
  cg::memcpy_async(tile, s[n], in + blockIdx.x * 64 + n * 16, sizeof(s[n]));
  cg::wait(tile);
  out[blockIdx.x * 64 + n * 16 + lane] = cg::inclusive_scan(tile, s[n][15 - lane]);
}""", (COUNTS,), np.cumsum(COUNTS.reshape(16, 16)[:, ::-1], 1, dtype=i32), 64, 4),
    "group: aligned size, columns of a matrix": Case(
        GROUPS + """#include <cuda/barrier>
extern "C" __global__ void k(int* out, const float* in) {
  extern __shared__ __align__(16) float s[];
  auto block = cg::this_thread_block();
  for (int r = 0; r < 8; ++r) cg::memcpy_async(block, s + r * 64, in + r * 64, cuda::aligned_size_t<16>(256));
  cg::wait(block);
  int t = block.thread_rank(), best = 0;
  for (int r = 1; r < 8; ++r) if (s[r * 64 + t] > s[best * 64 + t]) best = r;
  out[t] = best;
}""", (ROWS,), ROWS.argmax(0).astype(i32), 64, 1, 2048),
    "group: layouts of two lengths": Case(
        GROUPS + """
extern "C" __global__ void k(float* out, const float* in, int n) {
  __shared__ float s[64];
  auto block = cg::this_thread_block();
  int first = block.group_index().x * 64, t = block.thread_rank(), left = min(n - first, 64);
  cg::memcpy_async(block, s, 64, in + first, left);
  cg::wait(block);
  if (t < left) out[first + t] = s[left - 1 - t];
}""", (LINE[:150], i32(150)), np.concatenate([LINE[63::-1], LINE[127:63:-1], LINE[149:127:-1]]), 64, 3),
    "group: three rows ahead": Case(
        GROUPS + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float ring[4][64];
  auto block = cg::this_thread_block();
  int t = block.thread_rank();
  float v = 0;
  for (int r = 0; r < 3; ++r) cg::memcpy_async(block, ring[r], in + r * 64, sizeof(ring[0]));
  for (int r = 0; r < 16; ++r) {
    cg::memcpy_async(block, ring[(r + 3) % 4], in + min(r + 3, 15) * 64, r + 3 < 16 ? sizeof(ring[0]) : 0);
    cg::wait_prior<3>(block);
    v = 0.5f * v + ring[r % 4][(t + r) % 64];
    block.sync();
  }
  out[t] = v;
}""", (TILE[:16],), sum(0.5 ** (15 - r) * np.roll(TILE[r], -r).astype(float) for r in range(16))),
    "group: warps share out the rows of a gather": Case(
        GROUPS + """
extern "C" __global__ void k(float* out, const float* table, const int* words) {
  __shared__ float rows[2][12][32];
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int w = warp.meta_group_rank();
  for (int r = 0; r < 12; ++r) cg::memcpy_async(warp, rows[w][r], table + words[w * 12 + r] * 32, sizeof(float) * 32);
  cg::wait(warp);
  float sum = 0;
  for (int r = 0; r < 12; ++r) sum += rows[w][r][31 - warp.thread_rank()];
  out[w * 32 + warp.thread_rank()] = sum / 12;
}""", (TABLE, WORDS), TABLE[WORDS].reshape(2, 12, 32).mean(1, dtype=float)[:, ::-1], unread=True),
}  # fmt: skip

PIPELINE = """#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
"""
BY_CUDA = {
    "cuda::pipeline of a thread, one row ahead": Case(
        PIPELINE + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[2][64];
  int t = threadIdx.x;
  auto pipe = cuda::make_pipeline();
  float sum = 0;
  auto load = [&](int r) {
    pipe.producer_acquire();
    if (r < 8) cuda::memcpy_async(&s[r % 2][t], in + r * 64 + t, sizeof(float), pipe);
    pipe.producer_commit();
  };
  load(0);
  for (int r = 0; r < 8; ++r) {
    load(r + 1);
    cuda::pipeline_consumer_wait_prior<1>(pipe);
    __syncthreads();
    sum += s[r % 2][63 - t] / (r + 1);
    __syncthreads();
    pipe.consumer_release();
  }
  out[t] = sum;
}""", (ROWS,), (ROWS.astype(float) / np.arange(1, 9)[:, None]).sum(0)[::-1]),
    "cuda::pipeline of a thread, product of tiles": Case(
        PIPELINE + """
extern "C" __global__ void k(float* c, const float4* a, const float4* b) {
  __shared__ float4 as[2][16][4], bs[2][16][4];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 4;
  cuda::aligned_size_t<16> size(16);
  auto pipe = cuda::make_pipeline();
  auto load = [&](int tile) {
    pipe.producer_acquire();
    if (x < 4) cuda::memcpy_async(&as[tile % 2][y][x], a + row * 12 + tile * 4 + x, size, pipe);
    else if (x < 8) cuda::memcpy_async(&bs[tile % 2][y][x - 4], b + (tile * 16 + y) * 8 + col + x - 4, size, pipe);
    pipe.producer_commit();
  };
  float sum = 0;
  load(0);
  for (int tile = 0; tile < 3; ++tile) {
    pipe.consumer_wait();
    __syncthreads();
    if (tile < 2) load(tile + 1);
    const float* left = (float*)as[tile % 2][y];
    for (int i = 0; i < 16; ++i) sum += left[i] * ((float*)bs[tile % 2][i])[x];
    pipe.consumer_release();
  }
  c[row * 32 + blockIdx.x * 16 + x] = sum;
}""", (A, B), product(A, B), (16, 16), (2, 2)),
    "cuda::pipeline of a block, two stages": Case(
        PIPELINE + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int t = block.thread_rank();
  for (int r = 0, ahead = 0; r < 8; ++r) {
    for (; ahead < 8 && ahead < r + 2; ++ahead) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, s[ahead % 2], in + ahead * 64, sizeof(s[0]), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    float sum = 0;
    for (int i = 0; i <= t; ++i) sum += s[r % 2][i];
    out[r * 64 + t] = sum;
    pipe.consumer_release();
  }
}""", (ROWS,), np.cumsum(ROWS, 1, dtype=float)),
    "cuda::pipeline of a block, warps with roles": Case(
        PIPELINE + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  int t = block.thread_rank();
  auto role = t < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(block, &state, role);
  for (int r = 0; r < 8; ++r) {
    if (role == cuda::pipeline_role::producer) {
      pipe.producer_acquire();
      for (int i = t; i < 64; i += 32) cuda::memcpy_async(&s[r % 2][i], in + r * 64 + i, sizeof(float), pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      out[r * 64 + t - 32] = s[r % 2][95 - t];
      pipe.consumer_release();
    }
  }
}""", (ROWS,), ROWS[:, ::-1], 96),
    "cuda::pipeline of a block, a number of producers": Case(
        PIPELINE + """
extern "C" __global__ void k(int* out, const int* in) {
  __shared__ int s[3][64], bins[100];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto pipe = cuda::make_pipeline(block, &state, 32);
  int t = block.thread_rank();
  for (int i = t; i < 100; i += block.size()) bins[i] = 0;
  block.sync();
  if (t < 32) {
    for (int r = 0; r < 4; ++r) {
      pipe.producer_acquire();
      cuda::memcpy_async(warp, s[r % 3], in + r * 64, sizeof(s[0]), pipe);
      pipe.producer_commit();
    }
  } else {
    for (int r = 0; r < 4; ++r) {
      pipe.consumer_wait();
      atomicAdd(bins + s[r % 3][t - 32], r + 1);
      pipe.consumer_release();
    }
  }
  block.sync();
  for (int i = t; i < 100; i += block.size()) out[i] = bins[i];
}""", (COUNTS,), np.bincount(COUNTS.ravel(), np.repeat([1, 2, 3, 4], 64), 100).astype(i32), 96),
    "cuda::barrier, each thread copies its element": Case(
        PIPELINE + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[64];
  __shared__ cuda::barrier<cuda::thread_scope_block> full;
  int t = threadIdx.x;
  if (t == 0) init(&full, blockDim.x);
  __syncthreads();
  float v = 0;
  for (int r = 0; r < 8; ++r) {
    cuda::memcpy_async(s + t, in + r * 64 + t, sizeof(float), full);
    full.arrive_and_wait();
    v = v * 0.5f + s[(t + 31) % 64];
    full.arrive_and_wait();
  }
  out[t] = v;
}""", (ROWS,), np.roll((ROWS.astype(float) * 0.5 ** np.arange(7, -1, -1)[:, None]).sum(0), -31)),
    "cuda::barrier, the block copies a tile": Case(
        PIPELINE + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float s[66];
  __shared__ cuda::barrier<cuda::thread_scope_block> full;
  auto block = cg::this_thread_block();
  int t = block.thread_rank();
  if (t == 0) init(&full, block.size());
  block.sync();
  cuda::memcpy_async(block, s, in + blockIdx.x * 60, cuda::aligned_size_t<4>(sizeof(float) * 64), full);
  if (t >= 62) s[t + 2] = 0;
  auto token = full.arrive();
  full.wait(std::move(token));
  out[blockIdx.x * 64 + t] = s[t] + s[t + 1] + s[t + 2];
  block.sync();
}""", (LINE[:244],), np.concatenate([np.convolve(np.pad(LINE[60 * b : 60 * b + 64].astype(float), (0, 2)), [1, 1, 1], "valid")
            for b in range(4)]), 64, 4),
    "cuda::barrier, one for each of two buffers": Case(
        PIPELINE + """
using Barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float s[2][64];
  __shared__ Barrier full[2];
  auto block = cg::this_thread_block();
  int t = block.thread_rank();
  if (t < 2) init(full + t, block.size());
  block.sync();
  float sum = 0;
  cuda::aligned_size_t<16> size(sizeof(s[0]));
  cuda::memcpy_async(block, s[0], in, size, full[0]);
  for (int r = 0; r < 8; ++r) {
    if (r < 7) cuda::memcpy_async(block, s[(r + 1) % 2], in + (r + 1) * 64, size, full[(r + 1) % 2]);
    full[r % 2].arrive_and_wait();
    sum += s[r % 2][t ^ 1] * s[r % 2][t ^ 32];
    block.sync();
  }
  out[t] = sum;
}""", (ROWS,), (ROWS[:, np.arange(64) ^ 1].astype(float) * ROWS[:, np.arange(64) ^ 32]).sum(0)),
    "cuda::barrier, warps that fill and warps that use": Case(
        PIPELINE + """
using Barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[2][64];
  __shared__ Barrier full[2], empty[2];
  int t = threadIdx.x;
  if (t < 2) init(full + t, 96), init(empty + t, 96);
  __syncthreads();
  if (t < 32) {
    for (int r = 0; r < 8; ++r) {
      empty[r % 2].arrive_and_wait();
      for (int i = t; i < 64; i += 32) cuda::memcpy_async(&s[r % 2][i], in + r * 64 + i, sizeof(float), full[r % 2]);
      (void)full[r % 2].arrive();
    }
    return;
  }
  (void)empty[0].arrive();
  (void)empty[1].arrive();
  for (int r = 0; r < 8; ++r) {
    full[r % 2].arrive_and_wait();
    out[r * 64 + t - 32] = s[r % 2][(t + r) % 64];
    if (r < 6) (void)empty[r % 2].arrive();
  }
}""", (ROWS,), np.stack([np.roll(row, -32 - r) for r, row in enumerate(ROWS)]), 96),
    "cuda::pipeline of a thread commits to a barrier": Case(
        PIPELINE + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ float s[64];
  __shared__ cuda::barrier<cuda::thread_scope_block> full;
  int t = threadIdx.x;
  if (t == 0) init(&full, blockDim.x);
  __syncthreads();
  auto pipe = cuda::make_pipeline();
  pipe.producer_acquire();
  cuda::memcpy_async(s + t, in + t, sizeof(float), pipe);
  cuda::pipeline_producer_commit(pipe, full);
  full.arrive_and_wait();
  out[t] = s[63 - t] * s[t];
}""", (LINE[:64],), LINE[:64].astype(float) * LINE[63::-1]),
}  # fmt: skip

BULK = (
    sources.translation_unit("cuda/hopper.cuh")
    + """
__device__ void load(void* to, const void* from, int bytes, Barrier* full) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
    :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(full)) : "memory");
}
__device__ void store(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
    :: "l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}
__device__ float warp_sum(float v) {
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}
"""
)
SM_90 = (*COMPILER, "-DBF16=0")


def bulk(body: str, args: tuple, expected: np.ndarray, block: int = 64, grid: int = 1, **more) -> Case:
    return Case(BULK + body, args, expected, block, grid, compiler=SM_90, **more)


BY_BULK = {
    "bulk: a tile, read backwards": bulk("""
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float s[64];
  __shared__ Barrier full;
  int t = threadIdx.x;
  if (t == 0) { init_barrier(&full, 1); publish_barriers(); }
  __syncthreads();
  if (t == 0) {
    arrive_expecting(&full, sizeof(s));
    load(s, in + blockIdx.x * 64, sizeof(s), &full);
  }
  wait(&full, 0);
  out[blockIdx.x * 64 + t] = s[63 - t];
}""", (LINE,), LINE.reshape(4, 64)[:, ::-1], grid=4),
    "bulk: product of tiles, two buffers": bulk("""
extern "C" __global__ void k(float* c, const float* a, const float* b) {
  const int K = 48, N = 32, T = 8;
  __shared__ __align__(16) float as[2][32][T], bs[2][T][N];
  __shared__ Barrier full[2];
  int t = threadIdx.x, x = t % 32, y = t / 32;
  if (t == 0) { init_barrier(full, 1); init_barrier(full + 1, 1); publish_barriers(); }
  __syncthreads();
  auto begin = [&](int tile) {
    if (t >= 32 || tile >= K / T) return;
    Barrier* to = full + tile % 2;
    if (t == 0) arrive_expecting(to, sizeof(as[0]) + sizeof(bs[0]));
    __syncwarp();
    load(as[tile % 2][t], a + t * K + tile * T, sizeof(as[0][0]), to);
    if (t == 0) load(bs[tile % 2], b + tile * T * N, sizeof(bs[0]), to);
  };
  float sum[8] = {};
  begin(0);
  for (int tile = 0; tile < K / T; ++tile) {
    begin(tile + 1);
    wait(full + tile % 2, tile / 2 % 2);
    for (int r = 0; r < 8; ++r)
      for (int i = 0; i < T; ++i) sum[r] += as[tile % 2][r * 4 + y][i] * bs[tile % 2][i][x];
    __syncthreads();
  }
  for (int r = 0; r < 8; ++r) c[(r * 4 + y) * N + x] = sum[r];
}""", (A, B), product(A, B), 128),
    "bulk: a warp that loads and warps that add, ring of 3": bulk("""
extern "C" __global__ void k(float* out, const float* in) {
  const int STAGES = 3, ROWS = 16;
  __shared__ __align__(16) float ring[STAGES][64];
  __shared__ Barrier full[STAGES], empty[STAGES];
  int t = threadIdx.x;
  if (t == 0) {
    for (int s = 0; s < STAGES; ++s) init_barrier(full + s, 1), init_barrier(empty + s, 64);
    publish_barriers();
  }
  __syncthreads();
  if (t >= 64) {
    if (t == 64) {
      for (int r = 0; r < ROWS; ++r) {
        int s = r % STAGES;
        wait(empty + s, r / STAGES % 2 ^ 1);
        arrive_expecting(full + s, sizeof(ring[0]));
        load(ring[s], in + r * 64, sizeof(ring[0]), full + s);
      }
    }
  } else {
    float v = 0;
    for (int r = 0; r < ROWS; ++r) {
      int s = r % STAGES;
      wait(full + s, r / STAGES % 2);
      v = 0.5f * v + ring[s][63 - t];
      arrive(empty + s);
    }
    out[t] = v;
  }
}""", (TILE[:16],), (TILE[:16] * 0.5 ** np.arange(15.0, -1, -1)[:, None]).sum(0)[::-1], 96),
    "bulk: each lane loads its row of a gather": bulk("""
extern "C" __global__ void k(float* out, const float* table, const int* words) {
  __shared__ __align__(16) float rows[24][32];
  __shared__ Barrier full;
  int lane = threadIdx.x;
  if (lane == 0) { init_barrier(&full, 24); publish_barriers(); }
  __syncwarp();
  if (lane < 24) {
    arrive_expecting(&full, sizeof(rows[0]));
    load(rows[lane], table + words[lane] * 32, sizeof(rows[0]), &full);
  }
  wait(&full, 0);
  float sum = 0;
  for (int r = 0; r < 24; ++r) sum += rows[r][31 - lane];
  out[lane] = sum;
}""", (TABLE, WORDS), TABLE[WORDS].sum(0, dtype=float)[::-1], 32),
    "bulk: layer norm in place, a store follows": bulk("""
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float row[64];
  __shared__ float parts[2][2];
  __shared__ Barrier full;
  int t = threadIdx.x;
  if (t == 0) {
    init_barrier(&full, 1);
    publish_barriers();
    arrive_expecting(&full, sizeof(row));
    load(row, in + blockIdx.x * 64, sizeof(row), &full);
  }
  __syncthreads();
  wait(&full, 0);
  float v = row[t], sum = warp_sum(v), squares = warp_sum(v * v);
  if (t % 32 == 0) parts[t / 32][0] = sum, parts[t / 32][1] = squares;
  __syncthreads();
  float mean = (parts[0][0] + parts[1][0]) / 64, variance = (parts[0][1] + parts[1][1]) / 64 - mean * mean;
  row[t] = (v - mean) * rsqrtf(variance + 1e-5f);
  publish_writes();
  __syncthreads();
  if (t == 0) {
    store(out + blockIdx.x * 64, row, sizeof(row));
    close_stores();
    wait_stores_read<0>();
  }
}""", (ROWS,), normalized(ROWS), grid=8),
    "bulk: stores from two buffers": bulk("""
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float s[2][64];
  int t = threadIdx.x;
  for (int r = 0; r < 8; ++r) {
    if (t == 0) wait_stores_read<1>();
    __syncthreads();
    s[r % 2][63 - t] = 2 * in[r * 64 + t];
    publish_writes();
    __syncthreads();
    if (t == 0) {
      store(out + r * 64, s[r % 2], sizeof(s[0]));
      close_stores();
    }
  }
  if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}""", (ROWS,), 2 * ROWS[:, ::-1]),
    "bulk: transposition, each lane stores a row": bulk("""
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float from[32][32], to[32][36];
  __shared__ Barrier full;
  int lane = threadIdx.x, row = blockIdx.x / 2 * 32, col = blockIdx.x % 2 * 32;
  if (lane == 0) { init_barrier(&full, 32); publish_barriers(); }
  __syncwarp();
  arrive_expecting(&full, 128);
  load(from[lane], in + (row + lane) * 64 + col, 128, &full);
  wait(&full, 0);
  for (int r = 0; r < 32; ++r) to[lane][r] = from[r][lane];
  publish_writes();
  __syncwarp();
  store(out + (col + lane) * 64 + row, to[lane], 128);
  close_stores();
  wait_stores_read<0>();
}""", (TILE,), TILE.T, 32, 4),
    "bulk: expected bytes of several copies, then one arrival": bulk("""
extern "C" __global__ void k(float* out, const float* q, const float* keys) {
  __shared__ __align__(16) float query[32], ks[64][32];
  __shared__ Barrier full;
  int t = threadIdx.x;
  if (t == 0) {
    init_barrier(&full, 64);
    publish_barriers();
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
      :: "r"(shared_address(&full)), "r"(128 + 8192) : "memory");
    load(query, q, 128, &full);
    for (int part = 0; part < 4; ++part) load(ks[16 * part], keys + 512 * part, 2048, &full);
  }
  __syncthreads();
  arrive(&full);
  wait(&full, 0);
  float sum = 0;
  for (int d = 0; d < 32; ++d) sum += query[d] * ks[t][d];
  out[t] = sum;
}""", (QUERY, KEYS), product(KEYS, QUERY)),
    "bulk: the blocks of a cluster exchange a row": bulk("""
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(float* out, const float* in) {
  __shared__ __align__(16) float mine[64], other[64];
  __shared__ Barrier full;
  int t = threadIdx.x;
  unsigned peer = cluster_rank() ^ 1, to, bar;
  if (t == 0) { init_barrier(&full, 1); publish_barriers(); arrive_expecting(&full, sizeof(other)); }
  mine[t] = in[blockIdx.x * 64 + t];
  publish_writes();
  cluster_barrier();
  if (t == 0) {
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(other)), "r"(peer));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar) : "r"(shared_address(&full)), "r"(peer));
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(to), "r"(shared_address(mine)), "r"((int)sizeof(mine)), "r"(bar) : "memory");
  }
  wait(&full, 0);
  out[blockIdx.x * 64 + t] = mine[t] - other[63 - t];
  cluster_barrier();
}""", (LINE,), (LINE.reshape(2, 2, 64) - LINE.reshape(2, 2, 64)[:, ::-1, ::-1]).ravel(), grid=4),
    "bulk: memcpy_async_tx of libcu++": Case("""#include <cuda/barrier>
#include <cuda/std/utility>
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float s[64];
  __shared__ cuda::barrier<cuda::thread_scope_block> full;
  int t = threadIdx.x;
  if (t == 0) init(&full, blockDim.x);
  __syncthreads();
  float sum = 0;
  for (int r = 0; r < 4; ++r) {
    cuda::barrier<cuda::thread_scope_block>::arrival_token token;
    if (t == 0) {
      cuda::device::memcpy_async_tx(s, in + r * 64, cuda::aligned_size_t<16>(sizeof(s)), full);
      token = cuda::device::barrier_arrive_tx(full, 1, sizeof(s));
    } else {
      token = full.arrive();
    }
    full.wait(cuda::std::move(token));
    sum += s[63 - t] * (r + 1);
    __syncthreads();
  }
  out[t] = sum;
}""", (LINE,), (LINE.reshape(4, 64) * np.arange(1.0, 5)[:, None]).sum(0)[::-1], compiler=SM_90),
    "bulk: memcpy_async of a block to a cuda::barrier": Case(PIPELINE + """
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float s[128];
  __shared__ cuda::barrier<cuda::thread_scope_block> full;
  auto block = cg::this_thread_block();
  int t = block.thread_rank();
  if (t == 0) init(&full, block.size());
  block.sync();
  cuda::memcpy_async(block, s, in + blockIdx.x * 128, cuda::aligned_size_t<16>(sizeof(s)), full);
  full.arrive_and_wait();
  out[blockIdx.x * 64 + t] = fmaxf(s[2 * t], s[2 * t + 1]);
}""", (LINE,), LINE.reshape(128, 2).max(1), 64, 2, compiler=SM_90),
    "bulk: bytes expected without an arrival": bulk("""
extern "C" __global__ void k(float* out, const float* in) {
  __shared__ __align__(16) float s[64];
  __shared__ Barrier full;
  int t = threadIdx.x;
  if (t == 0) { init_barrier(&full, 65); publish_barriers(); }
  __syncthreads();
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 4;" :: "r"(shared_address(&full)) : "memory");
  arrive(&full);
  if (t == 0) {
    load(s, in + blockIdx.x * 64, sizeof(s), &full);
    arrive(&full);
  }
  wait(&full, 0);
  out[blockIdx.x * 64 + t] = s[63 - t];
}""", (LINE,), LINE.reshape(4, 64)[:, ::-1], grid=4),
    "bulk: cuda::ptx, a copy there and back": Case("""#include <cuda/barrier>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void k(int* out, const int* in) {
  __shared__ __align__(16) int s[128];
  __shared__ cuda::barrier<cuda::thread_scope_block> full;
  int t = threadIdx.x;
  if (t == 0) {
    init(&full, blockDim.x);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  auto* bar = cuda::device::barrier_native_handle(full);
  cuda::std::uint64_t token;
  if (t == 0) {
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, s, in + blockIdx.x * 128, sizeof(s), bar);
    token = ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, sizeof(s));
  } else {
    token = ptx::mbarrier_arrive(bar);
  }
  while (!ptx::mbarrier_try_wait(bar, token)) {}
  for (int i = t; i < 128; i += 64) s[i] = s[i] * 3 + 1;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (t == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + blockIdx.x * 128, s, sizeof(s));
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}""", (COUNTS,), COUNTS * 3 + 1, 64, 2, compiler=SM_90),
}  # fmt: skip

KERNELS = BY_PTX | BY_PRIMITIVES | BY_GROUPS | BY_CUDA | BY_BULK


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
