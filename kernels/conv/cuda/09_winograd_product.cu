// Winograd in steps, the products: Z[p] = U[p]^T V[p] for each of the
// T*T positions p.
//
// Idea: a batch of matrix products, [K x C] by [C x tiles]. blockIdx.z
// is the position. The kernel is gemm/09_warp_tile.cu with simpler
// copies. In U the filters are contiguous, so no tile is transposed.
// Tiles of both matrices are copied 16 bytes at a time. Row lengths
// are multiples of 4, so no float is copied alone. With few tiles there
// are few blocks for many channels. The channels are then cut into
// parts of `terms`, one block for each. The next step adds the parts.
// What limits it: with few channels the stores of Z, with many the
// multiply-adds.
//
// Launch: grid (ceil(round_up_4(tiles) / BN), ceil(K / BM), T*T *
// parts), block (BM / 8) * (BN / 8). BM filters x BN tiles, BK channels
// at a time, STAGES tiles in shared memory, and M are defines.

#include "../../cuda/async.cuh"
#include "winograd.cuh"

constexpr int THREADS = (BM / 8) * (BN / 8);
constexpr int WM = 64, WN = 32;  // of a warp, 8 x 8 of a lane
constexpr int ACROSS = WN / 8;   // lanes along a row of the tile

extern "C" __global__ void
__launch_bounds__(THREADS, 512 / THREADS) winograd_product(
    const float* __restrict__ U,  // [T*T, C, round_up_4(K)]
    const float* __restrict__ V,  // [T*T, C, round_up_4(tiles)]
    float* __restrict__ Z,        // [parts, T*T, K, round_up_4(tiles)]
    Conv shape, int terms) {
  __shared__ __align__(16) float tile_u[STAGES][BK][BM];
  __shared__ __align__(16) float tile_v[STAGES][BK][BN];
  int u_length = round_up_4(shape.K);  // of a row
  int v_length = round_up_4(tiles_of(shape).count);
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;  // of Z
  int load_u_row = threadIdx.x / (BM / 4);
  int load_u_col = threadIdx.x % (BM / 4) * 4;
  int load_v_row = threadIdx.x / (BN / 4);
  int load_v_col = threadIdx.x % (BN / 4) * 4;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int thread_row = warp / (BN / WN) * WM  // of its first sum
                 + (lane / (2 * ACROSS) * 2 + lane % 2) * 4;
  int thread_col = warp % (BN / WN) * WN + lane / 2 % ACROSS * 4;
  size_t position = blockIdx.z % (T * T);
  int begin = blockIdx.z / (T * T) * terms;  // first channel
  int end = min(begin + terms, shape.C);
  const float* u = U + (position * shape.C + begin + load_u_row) * u_length +
                   block_row + load_u_col;
  const float* v = V + (position * shape.C + begin + load_v_row) * v_length +
                   block_col + load_v_col;

  // Begins to copy the next tiles, from channel c_tile on.
  auto load_tiles = [&](int stage, int c_tile) {
#pragma unroll
    for (int i = 0; i < BK; i += THREADS / (BM / 4))
      copy_async<16>(&tile_u[stage][load_u_row + i][load_u_col],
                     u + (size_t)i * u_length,
                     c_tile + load_u_row + i < end &&
                         block_row + load_u_col < u_length);
#pragma unroll
    for (int i = 0; i < BK; i += THREADS / (BN / 4))
      copy_async<16>(&tile_v[stage][load_v_row + i][load_v_col],
                     v + (size_t)i * v_length,
                     c_tile + load_v_row + i < end &&
                         block_col + load_v_col < v_length);
    close_group();
    u += (size_t)BK * u_length;
    v += (size_t)BK * v_length;
  };
  for (int i = 0; i < STAGES - 1; ++i) load_tiles(i, begin + i * BK);

  float sum[8][8] = {};
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int c_tile = begin; c_tile < end; c_tile += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    load_tiles(fill_stage, c_tile + (STAGES - 1) * BK);
#pragma unroll
    for (int c = 0; c < BK; ++c) {
      __align__(16) float a[8], b[8];
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        *(float4*)&a[i] =
            *(float4*)&tile_u[read_stage][c][thread_row + i * (WM / 8)];
        *(float4*)&b[i] =
            *(float4*)&tile_v[read_stage][c][thread_col + i * (WN / 8)];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] += a[i] * b[j];
    }
    read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
    fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
  }

  Z += (size_t)blockIdx.z * shape.K * v_length;
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      int k = block_row + thread_row + i / 4 * 4 * (WM / 8) + i % 4;
      int tile = block_col + thread_col + j * (WN / 8);
      if (k < shape.K && tile < v_length)
        *(float4*)&Z[(size_t)k * v_length + tile] =
            *(float4*)&sum[i][j];
    }
}
