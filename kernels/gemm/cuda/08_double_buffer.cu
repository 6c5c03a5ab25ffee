// The next tiles are copied while these are multiplied.
//
// Idea: shared memory holds STAGES tiles of A and of B. cp.async
// copies tiles to shared memory while the threads compute. In each
// step the threads wait for the oldest tile. Then they begin to copy
// the tile STAGES - 1 steps ahead, and multiply. A step needs one
// barrier instead of two. A is copied one float at a time, because
// neighbouring floats go to different rows. Only tiles that reach
// beyond the matrices are tested float by float. In all tiles that
// test would slow down the multiply-adds.
// What limits it: the shape of a warp, 16 lanes by 2. The lanes load
// few floats of tile_a and many of tile_b.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block
// (BM / TM) * (BN / TN). Shared memory: 4 * STAGES * BK *
// (BM + 4 + BN) bytes. BM, BN, BK, TM, TN and STAGES are defines.

#include "../../cuda/async.cuh"
#include "../../cuda/gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);

// Begins to copy a tile of A [BM, BK], transposed, and one of B
// [BK, BN]. a and b are the first floats that this thread copies.
// From one row to the next there are lda and ldb floats. The tiles
// begin rows_left, cols_left and k_left before the ends of the
// matrices; zeros are written beyond. If WHOLE, nothing is tested:
// the tiles lie inside, and rows of B are multiples of 16 bytes.
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
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) double_buffer(
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
  // The first of the thread's 4 x 4 squares begins here.
  int thread_row = threadIdx.x / (BN / TN) * 4;
  int thread_col = threadIdx.x % (BN / TN) * 4;
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
            *(float4*)&column_k[thread_row + i * (BM / TM)];
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *(float4*)&b[j] =
            *(float4*)&row_k[thread_col + j * (BN / TN)];
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
      int m = row + i / 4 * 4 * (BM / TM) + i % 4;
      int n = col + j * (BN / TN);
      store4(C, C0, M, N, m, n, &sum[i][j], alpha, beta);
    }
}
