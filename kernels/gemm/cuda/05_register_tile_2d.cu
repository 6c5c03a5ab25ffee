// A small tile of results for each thread.
//
// Idea: each thread computes TM x TN elements of the block's tile.
// For each k it loads TM floats of tile_a and TN floats of tile_b
// into registers. Then it multiplies all pairs of them. These are
// TM + TN loads for TM * TN multiply-adds.
// What limits it: still the loads. Each of them brings only one
// float. The floats that the lanes load together fall into the same
// banks of shared memory.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block
// (BM / TM) * (BN / TN). BM, BN, BK, TM and TN are defines.

#include "../../cuda/gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) register_tile_2d(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  __shared__ float tile_a[BM][BK];
  __shared__ float tile_b[BK][BN];
  // The block's tile begins here in C.
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The thread loads these elements of tile_a and tile_b first.
  int load_a_row = threadIdx.x / BK, load_a_col = threadIdx.x % BK;
  int load_b_row = threadIdx.x / BN, load_b_col = threadIdx.x % BN;
  // The thread's TM x TN elements begin here in the block's tile.
  int thread_row = threadIdx.x / (BN / TN) * TM;
  int thread_col = threadIdx.x % (BN / TN) * TN;
  int row = block_row + thread_row, col = block_col + thread_col;

  float sum[TM][TN] = {};
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
#pragma unroll
    for (int offset = 0; offset < BM; offset += THREADS / BK) {
      int m = block_row + load_a_row + offset;
      int k = k_tile + load_a_col;
      bool inside = m < M && k < K;
      tile_a[load_a_row + offset][load_a_col] =
          inside ? A[(size_t)m * K + k] : 0.0f;
    }
#pragma unroll
    for (int offset = 0; offset < BK; offset += THREADS / BN) {
      int k = k_tile + load_b_row + offset;
      int n = block_col + load_b_col;
      bool inside = k < K && n < N;
      tile_b[load_b_row + offset][load_b_col] =
          inside ? B[(size_t)k * N + n] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];  // part of a column of A, of a row of B
#pragma unroll
      for (int i = 0; i < TM; ++i) a[i] = tile_a[thread_row + i][k];
#pragma unroll
      for (int j = 0; j < TN; ++j) b[j] = tile_b[k][thread_col + j];
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      int m = row + i, n = col + j;
      if (m < M && n < N) {
        size_t c_index = (size_t)m * N + n;
        float c0 = beta != 0 ? beta * C0[c_index] : 0.0f;
        C[c_index] = alpha * sum[i][j] + c0;
      }
    }
}
