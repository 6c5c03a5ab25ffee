// Winograd in steps, the products: Z[p] = U[p]^T V[p] for each of the
// T*T positions.
//
// Idea: a batch of matrix products, [K x C] by [C x tiles]; blockIdx.z
// is the position. The kernel is gemm/09_warp_tile.cu with one thing
// made easier: the filters were written with filters side by side, so
// a tile of either matrix is copied as it lies, 16 bytes at a time,
// none of it turned. Rows are whole fours: no float goes alone.
// What limits it: with few channels the stores of Z, with many the
// multiply-adds.
//
// Launch: grid (ceil(fours(tiles) / BN), ceil(K / BM), T*T), block
// (BM / 8) * (BN / 8). BM filters x BN tiles, BK channels at a time,
// STAGES of them on their way, and M are defines.

#include "../gemm/async.cuh"
#include "winograd.cuh"

constexpr int THREADS = (BM / 8) * (BN / 8);
constexpr int WM = 64, WN = 32;  // of a warp, 8 x 8 of a lane
constexpr int ACROSS = WN / 8;   // lanes along a row of the tile

extern "C" __global__ void
__launch_bounds__(THREADS, 512 / THREADS) winograd_product(
    const float* __restrict__ U,  // [T*T, C, fours(K)]
    const float* __restrict__ V,  // [T*T, C, fours(tiles)]
    float* __restrict__ Z,        // [T*T, K, fours(tiles)]
    Conv s) {
  __shared__ __align__(16) float Us[STAGES][BK][BM];
  __shared__ __align__(16) float Vs[STAGES][BK][BN];
  int K = fours(s.K), N = fours(tiles_of(s).all);  // rows' lengths
  int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  int ku = threadIdx.x / (BM / 4), mu = threadIdx.x % (BM / 4) * 4;
  int kv = threadIdx.x / (BN / 4), nv = threadIdx.x % (BN / 4) * 4;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int y = warp / (BN / WN) * WM  // its first element
        + (lane / (2 * ACROSS) * 2 + lane % 2) * 4;
  int x = warp % (BN / WN) * WN + lane / 2 % ACROSS * 4;
  size_t p = blockIdx.z;
  const float* u = U + (p * s.C + ku) * K + m0 + mu;
  const float* v = V + (p * s.C + kv) * N + n0 + nv;

  // Begins to copy the next tiles, those at channel c0.
  auto fetch = [&](int stage, int c0) {
#pragma unroll
    for (int i = 0; i < BK; i += THREADS / (BM / 4))
      copy_async<16>(&Us[stage][ku + i][mu], u + (size_t)i * K,
                     c0 + ku + i < s.C && m0 + mu < K);
#pragma unroll
    for (int i = 0; i < BK; i += THREADS / (BN / 4))
      copy_async<16>(&Vs[stage][kv + i][nv], v + (size_t)i * N,
                     c0 + kv + i < s.C && n0 + nv < N);
    close_group();
    u += (size_t)BK * K;
    v += (size_t)BK * N;
  };
  for (int i = 0; i < STAGES - 1; ++i) fetch(i, i * BK);

  float sum[8][8] = {};
  int now = 0, next = STAGES - 1;  // stages to read and to fill
#pragma unroll 1
  for (int c0 = 0; c0 < s.C; c0 += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    fetch(next, c0 + (STAGES - 1) * BK);
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      __align__(16) float a[8], b[8];
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        *(float4*)&a[i] = *(float4*)&Us[now][k][y + i * (WM / 8)];
        *(float4*)&b[i] = *(float4*)&Vs[now][k][x + i * (WN / 8)];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] += a[i] * b[j];
    }
    now = now + 1 == STAGES ? 0 : now + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }

#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      int m = m0 + y + i / 4 * 4 * (WM / 8) + i % 4;
      int n = n0 + x + j * (WN / 8);
      if (m < s.K && n < N)
        *(float4*)&Z[(p * s.K + m) * N + n] = *(float4*)&sum[i][j];
    }
}
