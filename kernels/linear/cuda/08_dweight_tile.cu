// dW = dy^T x and db with register tiles; nothing is transposed.
//
// Idea: the sum runs over the rows m. dy and x both have m along their
// columns, as the multiply-adds want it. So rows of both are copied as
// they are, 16 bytes at a time. db needs no other read: the blocks of
// the first column add up their tiles of dy in shared memory.
// If SPLITS is above 1, the sum over m is cut into as many parts. A
// block computes one part. Another launch adds the parts. A layer with
// few weights and many rows has too few blocks otherwise.
// What limits it: the multiply-adds, if there are enough blocks.
//
// Launch: grid (ceil(K / BN), ceil(N / BM), SPLITS), block 32 lanes for
// each WM x WN of the tile, at least BM. Shared memory: 4 * STAGES *
// BK * (BM + BN + 8) bytes. BM, BN, BK, WM, WN, TM, TN, STAGES and
// SPLITS are defines; WM * WN == 32 * TM * TN. BK counts steps of m
// here.

#include "product.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) dweight_tile(
    const float* __restrict__ dy,  // [M, N]
    const float* __restrict__ x,   // [M, K]
    float* __restrict__ dW,        // [SPLITS, N, K]
    float* __restrict__ db,        // [SPLITS, N]
    int M, int N, int K) {
  extern __shared__ __align__(16) float shared[];
  auto tile_dy = (float (*)[BK][BM + 4])shared;           // [STAGES]
  auto tile_x = (float (*)[BK][BN + 4])&tile_dy[STAGES];  // [STAGES]
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The part of the sum: m_first .. m_end - 1.
  int length = ((M - 1) / BK / SPLITS + 1) * BK;
  int m_first = min(M, (int)blockIdx.z * length);
  int m_end = min(M, m_first + length);

  // What this thread copies next, from dy and from x.
  const float* next_dy =
      dy + (size_t)(m_first + threadIdx.x / (BM / 4)) * N + block_row +
      threadIdx.x % (BM / 4) * 4;
  const float* next_x =
      x + (size_t)(m_first + threadIdx.x / (BN / 4)) * K + block_col +
      threadIdx.x % (BN / 4) * 4;
  bool inside = block_row + BM <= N && block_col + BN <= K &&
                N % 4 == 0 && K % 4 == 0;
  auto copy_next = [&](int stage, int m) {
    if (inside && m + BK <= m_end) {
      copy_straight<true, BM>(tile_dy[stage], next_dy, N, BM, BK);
      copy_straight<true, BN>(tile_x[stage], next_x, K, BN, BK);
    } else if (m < m_end) {
      copy_straight<false, BM>(tile_dy[stage], next_dy, N,
                               N - block_row, m_end - m);
      copy_straight<false, BN>(tile_x[stage], next_x, K,
                               K - block_col, m_end - m);
    }
    close_group();
    next_dy += (size_t)BK * N;
    next_x += (size_t)BK * K;
  };
  for (int stage = 0; stage < STAGES - 1; ++stage)
    copy_next(stage, m_first + stage * BK);

  float sum[TM][TN] = {}, column_sum = 0.0f;
  bool adds_db = blockIdx.x == 0 && threadIdx.x < BM;
  int thread_row = first_row(), thread_col = first_col();
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int m = m_first; m < m_end; m += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    copy_next(fill_stage, m + (STAGES - 1) * BK);
    add_products(sum, tile_dy[read_stage], tile_x[read_stage],
                 thread_row, thread_col);
    if (adds_db)
      for (int i = 0; i < BK; ++i)
        column_sum += tile_dy[read_stage][i][threadIdx.x];
    read_stage = read_stage + 1 == STAGES ? 0 : read_stage + 1;
    fill_stage = fill_stage + 1 == STAGES ? 0 : fill_stage + 1;
  }

  dW += (size_t)blockIdx.z * N * K;  // the part's own [N, K]
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; j += 4)
      store_four(dW, N, K, block_row + thread_row + row_at(i),
                 block_col + thread_col + col_at(j),
                 *(float4*)&sum[i][j]);
  int n = block_row + threadIdx.x;
  if (adds_db && n < N) db[(size_t)blockIdx.z * N + n] = column_sum;
}
