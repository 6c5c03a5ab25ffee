// The same loads without bank conflicts.
//
// Idea: two changes of layout. First, PAD unused floats follow each
// four rows of tile_a. The lanes that transpose A write four rows
// apart. With the padding they reach 32 different banks. Second, a
// thread's elements are spread over the tile in squares of 4 x 4.
// Neighbouring lanes now read tile_b 16 bytes apart. Eight lanes
// together read each of the 32 banks once.
// What limits it: the block waits for global memory, then
// multiplies, then waits again.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block
// (BM / TM) * (BN / TN). BM, BN, BK, TM and TN are defines.

#include "../../cuda/gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int PAD = 128 / BK;  // rows of A that a warp loads at once

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) bank_free(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  // tile_a is transposed: four rows of BM floats, then the padding.
  __shared__ __align__(16) float tile_a[BK / 4][4 * BM + PAD];
  __shared__ __align__(16) float tile_b[BK][BN];
  // The block's tile begins here in C.
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The thread loads four floats of A and of B from here on.
  int load_a_row = threadIdx.x / (BK / 4);
  int load_a_col = threadIdx.x % (BK / 4) * 4;
  int load_b_row = threadIdx.x / (BN / 4);
  int load_b_col = threadIdx.x % (BN / 4) * 4;
  // The first of the thread's 4 x 4 squares begins here.
  int thread_row = threadIdx.x / (BN / TN) * 4;
  int thread_col = threadIdx.x % (BN / TN) * 4;
  int row = block_row + thread_row, col = block_col + thread_col;

  float sum[TM][TN] = {};
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
#pragma unroll
    for (int offset = 0; offset < BM; offset += THREADS / (BK / 4)) {
      float4 values = load4(A, M, K, block_row + load_a_row + offset,
                            k_tile + load_a_col);
      tile_a[load_a_col / 4][0 * BM + load_a_row + offset] = values.x;
      tile_a[load_a_col / 4][1 * BM + load_a_row + offset] = values.y;
      tile_a[load_a_col / 4][2 * BM + load_a_row + offset] = values.z;
      tile_a[load_a_col / 4][3 * BM + load_a_row + offset] = values.w;
    }
#pragma unroll
    for (int offset = 0; offset < BK; offset += THREADS / (BN / 4)) {
      float4 values = load4(B, K, N, k_tile + load_b_row + offset,
                            block_col + load_b_col);
      *(float4*)&tile_b[load_b_row + offset][load_b_col] = values;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      __align__(16) float a[TM], b[TN];
      float* column_k = &tile_a[k / 4][k % 4 * BM];  // [BM]
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *(float4*)&a[i] =
            *(float4*)&column_k[thread_row + i * (BM / TM)];
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *(float4*)&b[j] =
            *(float4*)&tile_b[k][thread_col + j * (BN / TN)];
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
    for (int j = 0; j < TN; j += 4) {
      int m = row + i / 4 * 4 * (BM / TM) + i % 4;
      int n = col + j * (BN / TN);
      store4(C, C0, M, N, m, n, &sum[i][j], alpha, beta);
    }
}
