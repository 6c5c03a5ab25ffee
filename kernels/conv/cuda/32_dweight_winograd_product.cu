// Winograd for the gradient of the filters, the products:
// Z[p] = U[p] V[p]^T for each of the T*T positions p.
//
// Idea: the sum over all output pixels became a sum over all tiles. It
// is the inner extent of the products, so rows of both matrices are
// read along it. 4 bytes at a time they are copied to columns of the
// tiles in shared memory. There are few products of K x C, so the sum
// is cut into parts of `terms` tiles, one block for each.
// What limits it: multiply-adds.
//
// Launch: grid (ceil(C / BN), ceil(K / BM), T*T * parts), block
// (BM / 8) * (BN / 8). BM filters x BN maps, BK tiles at a time, STAGES
// tiles in shared memory, and M are defines.

#include "../../cuda/async.cuh"
#include "winograd.cuh"

constexpr int THREADS = (BM / 8) * (BN / 8);
constexpr int WM = 64, WN = 32;  // of a warp, 8 x 8 of a lane
constexpr int ACROSS = WN / 8;   // lanes along a row of the tile
constexpr int GAP = 4;  // floats: lanes that store a column share few banks

extern "C" __global__ void
__launch_bounds__(THREADS, 512 / THREADS) dweight_winograd_product(
    const float* __restrict__ U,  // [T*T, K, round_up_4(tiles)]
    const float* __restrict__ V,  // [T*T, C, round_up_4(tiles)]
    float* __restrict__ Z,        // [parts, T*T, K, C]
    Conv shape, int terms) {
  __shared__ __align__(16) float tile_u[STAGES][BK][BM + GAP];
  __shared__ __align__(16) float tile_v[STAGES][BK][BN + GAP];
  int length = round_up_4(tiles_of(shape).count);  // of a row
  int block_k = blockIdx.y * BM, block_c = blockIdx.x * BN;
  int position = blockIdx.z % (T * T), part = blockIdx.z / (T * T);
  int begin = part * terms, end = min(begin + terms, length);
  int load_term = threadIdx.x % BK, load_row = threadIdx.x / BK;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int thread_row = warp / (BN / WN) * WM  // of its first sum
                 + (lane / (2 * ACROSS) * 2 + lane % 2) * 4;
  int thread_col = warp % (BN / WN) * WN + lane / 2 % ACROSS * 4;
  const float* u =
      U + ((size_t)position * shape.K + block_k + load_row) * length;
  const float* v =
      V + ((size_t)position * shape.C + block_c + load_row) * length;

  // Begins to copy the next tiles, from term t on.
  auto load_tiles = [&](int stage, int t) {
    int term = t + load_term;
#pragma unroll
    for (int i = 0; i < BM; i += THREADS / BK)
      copy_async<4>(
          &tile_u[stage][load_term][load_row + i],
          u + (size_t)i * length + term,
          term < end && block_k + load_row + i < shape.K);
#pragma unroll
    for (int i = 0; i < BN; i += THREADS / BK)
      copy_async<4>(
          &tile_v[stage][load_term][load_row + i],
          v + (size_t)i * length + term,
          term < end && block_c + load_row + i < shape.C);
    close_group();
  };
  for (int i = 0; i < STAGES - 1; ++i) load_tiles(i, begin + i * BK);

  float sum[8][8] = {};
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int t = begin; t < end; t += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    load_tiles(fill_stage, t + (STAGES - 1) * BK);
#pragma unroll
    for (int i_term = 0; i_term < BK; ++i_term) {
      __align__(16) float a[8], b[8];
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        *(float4*)&a[i] =
            *(float4*)&tile_u[read_stage][i_term]
                             [thread_row + i * (WM / 8)];
        *(float4*)&b[i] =
            *(float4*)&tile_v[read_stage][i_term]
                             [thread_col + i * (WN / 8)];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] += a[i] * b[j];
    }
    read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
    fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
  }

  Z += ((size_t)part * T * T + position) * shape.K * shape.C;
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      int k = block_k + thread_row + i / 4 * 4 * (WM / 8) + i % 4;
      int c = block_c + thread_col + j / 4 * 4 * (WN / 8) + j % 4;
      if (k < shape.K && c < shape.C)
        Z[(size_t)k * shape.C + c] = sum[i][j];
    }
}
