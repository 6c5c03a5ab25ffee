// Winograd in one kernel: input tiles are transformed, multiplied and
// transformed back without leaving the chip.
//
// Idea: a block owns BK filters x 32 output tiles. Of BC channels at
// a time each thread transforms one input tile into shared memory;
// each warp then multiplies T*T / WARPS positions, [BK x BC] by
// [BC x 32] each, its sums in registers. The next channels are loaded
// meanwhile: filters by cp.async, pixels into registers. At the end
// the sums pass through shared memory to the threads that transform
// them back. No workspace but the transformed filters, written once
// by 07_winograd_filter.cu.
// What limits it: room on the chip. Every position wants a tile of
// sums of its own, so BK and the 32 tiles must be small: with M = 4
// a float from shared memory is used less than with M = 2, and the
// input is transformed again for every BK filters.
//
// Launch: grid (ceil(tiles / 32), ceil(K / BK)), block 32 * WARPS, in
// shared memory 8 * T*T * BC * (BK + 32) bytes. M, BK, BC and WARPS
// are defines.

#include "../gemm/async.cuh"
#include "winograd.cuh"

constexpr int THREADS = 32 * WARPS, TILES = 32;
constexpr int EACH = T * T / WARPS;       // positions of a warp
constexpr int TN = BK * TILES / 32 / 8;   // a lane: 8 filters, TN tiles
constexpr int ACROSS = TILES / TN;        // lanes along the tiles
constexpr int DOWN = 32 / ACROSS;         // lanes along the filters
constexpr int BLOCKS = EACH * 8 * TN > 64 ? 1 : 512 / THREADS;
static_assert(T * T % WARPS == 0 && BC <= WARPS, "work for each");

extern "C" __global__ void
__launch_bounds__(THREADS, BLOCKS) winograd_fused(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ U,  // [T*T, C, fours(K)]
    float* __restrict__ y,        // [N, K, P, Q]
    Conv s) {
  extern __shared__ __align__(16) float shared[];
  auto Us = (float(*)[T * T][BC][BK])shared;             // 2 stages
  auto Vs = (float(*)[T * T][BC][TILES])&Us[2][0][0][0];  // 2 stages
  Tiles tiles = tiles_of(s);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int tile = blockIdx.x * TILES + lane;  // it loads and stores
  Place at = place(tiles, tile);
  int k0 = blockIdx.y * BK, row = fours(s.K);
  int kl = (lane / (2 * ACROSS) * 2 + lane % 2) * 4;
  int nl = lane / 2 % ACROSS * 4;  // it multiplies from kl, nl on
  int kc = lane % (BK / 4) * 4, cc = lane / (BK / 4);  // it copies

  float d[T][T];
  auto load = [&](int stage, int c0) {
#pragma unroll
    for (int e = 0; e < EACH; ++e) {  // a warp its own positions
      int p = warp * EACH + e;
      const float* u = U + ((size_t)p * s.C + c0 + cc) * row + k0 + kc;
#pragma unroll
      for (int c = 0; c < BC; c += 128 / BK)
        copy_async<16>(&Us[stage][p][cc + c][kc], u + (size_t)c * row,
                       c0 + cc + c < s.C && k0 + kc < row);
    }
    close_group();
    if (warp < BC)
      load_tile(x, s, at, c0 + warp,
                tile < tiles.all && c0 + warp < s.C, d);
  };
  auto transform = [&](int stage) {
    if (warp >= BC) return;
    float v[T][T];
    both_sides(BT, d, v);
#pragma unroll
    for (int p = 0; p < T * T; ++p)
      Vs[stage][p][warp][lane] = v[p / T][p % T];
  };

  float sum[EACH][8][TN] = {};
  load(0, 0);
  transform(0);
#pragma unroll 1
  for (int c0 = 0, now = 0; c0 < s.C; c0 += BC, now ^= 1) {
    wait_groups<0>();
    __syncthreads();
    bool more = c0 + BC < s.C;
    if (more) load(now ^ 1, c0 + BC);
#pragma unroll
    for (int e = 0; e < EACH; ++e)
#pragma unroll
      for (int c = 0; c < BC; ++c) {
        const float* u = &Us[now][warp * EACH + e][c][kl];
        const float* v = &Vs[now][warp * EACH + e][c][nl];
        __align__(16) float a[8], b[TN];
#pragma unroll
        for (int i = 0; i < 8; i += 4)
          *(float4*)&a[i] = *(float4*)&u[i * DOWN];
#pragma unroll
        for (int j = 0; j < TN; j += 4)
          *(float4*)&b[j] = *(float4*)&v[j * ACROSS];
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) sum[e][i][j] += a[i] * b[j];
      }
    if (more) transform(now ^ 1);
  }

  // Two of a lane's 8 filters at a time, so 2 * DOWN of the block's.
  auto Zs = (float(*)[2 * DOWN][TILES])shared;  // [T*T]
#pragma unroll
  for (int i0 = 0; i0 < 8; i0 += 2) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; ++e)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4)
          *(float4*)&Zs[warp * EACH + e][kl / 2 + i][nl + j * ACROSS] =
              *(float4*)&sum[e][i0 + i][j];
    __syncthreads();
#pragma unroll 1
    for (int f = warp; f < 2 * DOWN; f += WARPS) {
      int k = k0 + f / 2 * 4 + i0 % 4 + f % 2 + i0 / 4 * 4 * DOWN;
      float z[T][T], out[M][M];
#pragma unroll
      for (int p = 0; p < T * T; ++p) z[p / T][p % T] = Zs[p][f][lane];
      both_sides(AT, z, out);
      if (k < s.K && tile < tiles.all) store_tile(y, s, at, k, out);
    }
  }
}
