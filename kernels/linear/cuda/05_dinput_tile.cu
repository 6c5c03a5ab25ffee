// dx = dy W with register tiles; only the tile of dy is transposed.
//
// Idea: the sum runs over n. dy has n along its rows, so its tile is
// transposed while cp.async copies it. W has n along its columns: its
// rows are copied as they are, 16 bytes at a time.
// If SPLITS is above 1, the sum over n is cut into as many parts. A
// block computes one part. Another launch adds the parts.
// What limits it: the multiply-adds, if there are enough blocks.
//
// Launch: grid (ceil(K / BN), ceil(M / BM), SPLITS), block 32 lanes for
// each WM x WN of the tile. Shared memory: 4 * STAGES * BK *
// (BM + BN + 8) bytes. BM, BN, BK, WM, WN, TM, TN, STAGES and SPLITS
// are defines; WM * WN == 32 * TM * TN. BK counts steps of n here.

#include "product.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) dinput_tile(
    const float* __restrict__ dy,  // [M, N]
    const float* __restrict__ W,   // [N, K]
    float* __restrict__ dx,        // [SPLITS, M, K]
    int M, int N, int K) {
  extern __shared__ __align__(16) float shared[];
  auto tile_dy = (float (*)[BK][BM + 4])shared;           // [STAGES]
  auto tile_w = (float (*)[BK][BN + 4])&tile_dy[STAGES];  // [STAGES]
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The part of the sum: n_first .. n_end - 1.
  int length = ((N - 1) / BK / SPLITS + 1) * BK;
  int n_first = min(N, (int)blockIdx.z * length);
  int n_end = min(N, n_first + length);

  // What this thread copies next, from dy and from W.
  const float* next_dy =
      dy + (size_t)(block_row + threadIdx.x / BK) * N + n_first +
      threadIdx.x % BK;
  const float* next_w =
      W + (size_t)(n_first + threadIdx.x / (BN / 4)) * K + block_col +
      threadIdx.x % (BN / 4) * 4;
  bool inside = block_row + BM <= M && block_col + BN <= K &&
                K % 4 == 0;
  auto copy_next = [&](int stage, int n) {
    if (inside && n + BK <= n_end) {
      copy_transposed<true, BM>(tile_dy[stage], next_dy, N, BM, BK);
      copy_straight<true, BN>(tile_w[stage], next_w, K, BN, BK);
    } else if (n < n_end) {
      copy_transposed<false, BM>(tile_dy[stage], next_dy, N,
                                 M - block_row, n_end - n);
      copy_straight<false, BN>(tile_w[stage], next_w, K,
                               K - block_col, n_end - n);
    }
    close_group();
    next_dy += BK;
    next_w += (size_t)BK * K;
  };
  for (int stage = 0; stage < STAGES - 1; ++stage)
    copy_next(stage, n_first + stage * BK);

  float sum[TM][TN] = {};
  int thread_row = first_row(), thread_col = first_col();
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int n = n_first; n < n_end; n += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    copy_next(fill_stage, n + (STAGES - 1) * BK);
    add_products(sum, tile_dy[read_stage], tile_w[read_stage],
                 thread_row, thread_col);
    read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
    fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
  }

  dx += (size_t)blockIdx.z * M * K;  // the part's own [M, K]
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; j += 4)
      store_four(dx, M, K, block_row + thread_row + row_at(i),
                 block_col + thread_col + col_at(j),
                 *(float4*)&sum[i][j]);
}
