// A tile of C for each warp.
//
// Idea: a warp computes its own WM x WN tile, which is nearly square.
// Its lanes are laid over this tile in pairs, one below the other.
// The hardware handles 16 lanes of a load together. For each k these
// 16 lanes now load few floats of tile_a and of tile_b. Each float
// has a bank of its own or is shared with a neighbour. A load from
// tile_b needs half the time.
// What limits it: the multiply-adds themselves. What remains is the
// order of the instructions, which is better in the library.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block 32 lanes for each
// WM x WN of the tile. Shared memory: 4 * STAGES * BK * (BM + 4 + BN)
// bytes. BM, BN, BK, WM, WN, TM, TN and STAGES are defines;
// WM * WN == 32 * TM * TN.

#include "../../cuda/async.cuh"
#include "../../cuda/gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int ACROSS = WN / TN;  // lanes along a row of the tile

// Begins to copy a tile of A [BM, BK], transposed, and one of B
// [BK, BN]. a and b are the first floats that this thread copies.
// From one row to the next there are lda and ldb floats. The tiles
// begin rows_left, cols_left and k_left before the ends of the
// matrices; zeros are written beyond. If WHOLE, nothing is tested:
// the tiles are inside, and rows of B are multiples of 16 bytes.
template <bool WHOLE>
__device__ inline void copy_tiles(
    float (*tile_a)[BM + 4], float (*tile_b)[BN],
    const float* a, const float* b, int lda, int ldb,
    int rows_left, int cols_left, int k_left) {
  int load_a_row = threadIdx.x / BK, load_a_col = threadIdx.x % BK;
  int load_b_row = threadIdx.x / (BN / 4);
  int load_b_col = threadIdx.x % (BN / 4) * 4;
#pragma unroll (WHOLE ? BM : 1)
  for (int offset = 0; offset < BM; offset += THREADS / BK)
    copy_async<4>(&tile_a[load_a_col][load_a_row + offset],
                  a + (size_t)offset * lda,
                  WHOLE || (load_a_row + offset < rows_left &&
                            load_a_col < k_left));
#pragma unroll (WHOLE ? BK : 1)
  for (int offset = 0; offset < BK; offset += THREADS / (BN / 4))
    copy4_async<WHOLE>(&tile_b[load_b_row + offset][load_b_col],
                       b + (size_t)offset * ldb,
                       load_b_row + offset < k_left
                           ? cols_left - load_b_col : 0);
}

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) warp_tile(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(16) float shared[];
  auto tile_a = (float (*)[BK][BM + 4])shared;  // [STAGES]: transposed
  auto tile_b = (float (*)[BK][BN])&tile_a[STAGES];  // [STAGES]
  // The block's tile begins here in C.
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The thread copies these elements of tile_a and tile_b first.
  int load_a_row = threadIdx.x / BK, load_a_col = threadIdx.x % BK;
  int load_b_row = threadIdx.x / (BN / 4);
  int load_b_col = threadIdx.x % (BN / 4) * 4;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The first of the thread's 4 x 4 squares begins here.
  int thread_row = warp / (BN / WN) * WM +
                   (lane / (2 * ACROSS) * 2 + lane % 2) * 4;
  int thread_col = warp % (BN / WN) * WN + lane / 2 % ACROSS * 4;
  int row = block_row + thread_row, col = block_col + thread_col;

  // What this thread copies next, from A and from B.
  const float* next_a = A + (size_t)(block_row + load_a_row) * K +
                        load_a_col;
  const float* next_b = B + (size_t)load_b_row * N +
                        (block_col + load_b_col);
  bool whole = block_row + BM <= M && block_col + BN <= N &&
               N % 4 == 0;
  auto copy_next = [&](int stage, int k_tile) {
    if (whole && k_tile + BK <= K)
      copy_tiles<true>(tile_a[stage], tile_b[stage], next_a, next_b,
                       K, N, BM, BN, BK);
    else if (k_tile < K)
      copy_tiles<false>(tile_a[stage], tile_b[stage], next_a, next_b,
                        K, N, M - block_row, N - block_col,
                        K - k_tile);
    close_group();
    next_a += BK;
    next_b += (size_t)BK * N;
  };
  for (int stage = 0; stage < STAGES - 1; ++stage)
    copy_next(stage, stage * BK);

  float sum[TM][TN] = {};
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    copy_next(fill_stage, k_tile + (STAGES - 1) * BK);
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      __align__(16) float a[TM], b[TN];
      float* column_k = tile_a[read_stage][k];  // [BM]
      float* row_k = tile_b[read_stage][k];     // [BN]
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *(float4*)&a[i] =
            *(float4*)&column_k[thread_row + i * (WM / TM)];
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *(float4*)&b[j] =
            *(float4*)&row_k[thread_col + j * (WN / TN)];
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
    }
    read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
    fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
  }

#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      int m = row + i / 4 * 4 * (WM / TM) + i % 4;
      int n = col + j * (WN / TN);
      store4(C, C0, M, N, m, n, &sum[i][j], alpha, beta);
    }
}
