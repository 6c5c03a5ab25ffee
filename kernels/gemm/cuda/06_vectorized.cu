// Four floats per load.
//
// Idea: one instruction loads 16 bytes instead of 4. The threads load
// rows of A and B four floats at a time. They transpose A while they
// copy it to shared memory. There the TM floats of a column become
// neighbours. They can be loaded four at a time too.
// What limits it: bank conflicts. Neighbouring lanes read tile_b
// 4 * TN bytes apart and write tile_a four rows apart. Both fall
// into the same few banks.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block
// (BM / TM) * (BN / TN). BM, BN, BK, TM and TN are defines.

#include "../../cuda/gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) vectorized(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  __shared__ __align__(16) float tile_a[BK][BM];  // transposed
  __shared__ __align__(16) float tile_b[BK][BN];
  // The block's tile begins here in C.
  int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
  // The thread loads four floats of A and of B from here on.
  int load_a_row = threadIdx.x / (BK / 4);
  int load_a_col = threadIdx.x % (BK / 4) * 4;
  int load_b_row = threadIdx.x / (BN / 4);
  int load_b_col = threadIdx.x % (BN / 4) * 4;
  // The thread's TM x TN elements begin here in the block's tile.
  int thread_row = threadIdx.x / (BN / TN) * TM;
  int thread_col = threadIdx.x % (BN / TN) * TN;
  int row = block_row + thread_row, col = block_col + thread_col;

  float sum[TM][TN] = {};
  for (int k_tile = 0; k_tile < K; k_tile += BK) {
#pragma unroll
    for (int offset = 0; offset < BM; offset += THREADS / (BK / 4)) {
      float4 values = load4(A, M, K, block_row + load_a_row + offset,
                            k_tile + load_a_col);
      tile_a[load_a_col + 0][load_a_row + offset] = values.x;
      tile_a[load_a_col + 1][load_a_row + offset] = values.y;
      tile_a[load_a_col + 2][load_a_row + offset] = values.z;
      tile_a[load_a_col + 3][load_a_row + offset] = values.w;
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
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *(float4*)&a[i] = *(float4*)&tile_a[k][thread_row + i];
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *(float4*)&b[j] = *(float4*)&tile_b[k][thread_col + j];
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
      int m = row + i, n = col + j;
      store4(C, C0, M, N, m, n, &sum[i][j], alpha, beta);
    }
}
