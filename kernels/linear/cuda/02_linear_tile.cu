// y = x W^T + b with register tiles; both tiles are transposed.
//
// Idea: x and W both have k along their rows. The multiply-adds want
// k along the columns of shared memory: then the floats of a thread
// are contiguous, and four are read at once. So both tiles are
// transposed while cp.async copies them. STAGES tiles are in shared
// memory: the next ones are copied while these are multiplied.
// If SPLITS is above 1, the sum over k is cut into as many parts. A
// block computes one part, without b. Another launch adds the parts.
// What limits it: the multiply-adds, if there are enough blocks.
//
// Launch: grid (ceil(N / BN), ceil(M / BM), SPLITS), block 32 lanes for
// each WM x WN of the tile. Shared memory: 4 * STAGES * BK *
// (BM + BN + 8) bytes. BM, BN, BK, WM, WN, TM, TN, STAGES and SPLITS
// are defines; WM * WN == 32 * TM * TN.

#include "product.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) linear_tile(
    const float* __restrict__ x,  // [M, K]
    const float* __restrict__ W,  // [N, K]
    const float* __restrict__ b,  // [N], read if SPLITS is 1
    float* __restrict__ y,        // [SPLITS, M, N]
    int M, int N, int K) {
  extern __shared__ __align__(16) float shared[];
  auto tile_x = (float (*)[BK][BM + 4])shared;           // [STAGES]
  auto tile_w = (float (*)[BK][BN + 4])&tile_x[STAGES];  // [STAGES]
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The part of the sum: k_first .. k_end - 1.
  int length = ((K - 1) / BK / SPLITS + 1) * BK;
  int k_first = min(K, (int)blockIdx.z * length);
  int k_end = min(K, k_first + length);

  // What this thread copies next, from x and from W.
  int load_row = threadIdx.x / BK, load_k = threadIdx.x % BK;
  const float* next_x =
      x + (size_t)(block_row + load_row) * K + k_first + load_k;
  const float* next_w =
      W + (size_t)(block_col + load_row) * K + k_first + load_k;
  bool inside = block_row + BM <= M && block_col + BN <= N;
  auto copy_next = [&](int stage, int k) {
    if (inside && k + BK <= k_end) {
      copy_transposed<true, BM>(tile_x[stage], next_x, K, BM, BK);
      copy_transposed<true, BN>(tile_w[stage], next_w, K, BN, BK);
    } else if (k < k_end) {
      copy_transposed<false, BM>(tile_x[stage], next_x, K,
                                 M - block_row, k_end - k);
      copy_transposed<false, BN>(tile_w[stage], next_w, K,
                                 N - block_col, k_end - k);
    }
    close_group();
    next_x += BK;
    next_w += BK;
  };
  for (int stage = 0; stage < STAGES - 1; ++stage)
    copy_next(stage, k_first + stage * BK);

  float sum[TM][TN] = {};
  int thread_row = first_row(), thread_col = first_col();
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int k = k_first; k < k_end; k += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    copy_next(fill_stage, k + (STAGES - 1) * BK);
    add_products(sum, tile_x[read_stage], tile_w[read_stage],
                 thread_row, thread_col);
    read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
    fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
  }

  y += (size_t)blockIdx.z * M * N;  // the part's own [M, N]
#pragma unroll
  for (int j = 0; j < TN; j += 4) {
    int col = block_col + thread_col + col_at(j);
    float4 bias = {};
    if (SPLITS == 1) bias = load4(b, 1, N, 0, col);
#pragma unroll
    for (int i = 0; i < TM; ++i)
      store_four(y, M, N, block_row + thread_row + row_at(i), col,
                 {sum[i][j] + bias.x, sum[i][j + 1] + bias.y,
                  sum[i][j + 2] + bias.z, sum[i][j + 3] + bias.w});
  }
}
