// A small tile of results for each thread.
//
// Idea: each thread computes TM x TN elements of the block's tile.
// For each k it takes TM floats of As and TN of Bs into registers
// and multiplies each by each: TM + TN loads for TM * TN
// multiply-adds.
// What limits it: loads again, now because each brings one float
// only, and the floats that the lanes read together fall into the
// same banks of shared memory.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block
// (BM / TM) * (BN / TN). BM, BN, BK, TM and TN are defines.

#include "gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) register_tile_2d(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  __shared__ float As[BM][BK];
  __shared__ float Bs[BK][BN];
  int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  int ma = threadIdx.x / BK, ka = threadIdx.x % BK;  // what it
  int kb = threadIdx.x / BN, nb = threadIdx.x % BN;  // fetches
  int y = threadIdx.x / (BN / TN) * TM;  // its first element
  int x = threadIdx.x % (BN / TN) * TN;
  int row = m0 + y, col = n0 + x;

  float sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
    for (int i = 0; i < BM; i += THREADS / BK) {
      int m = m0 + ma + i, k = k0 + ka;
      bool inside = m < M && k < K;
      As[ma + i][ka] = inside ? A[(size_t)m * K + k] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < BK; i += THREADS / BN) {
      int k = k0 + kb + i, n = n0 + nb;
      bool inside = k < K && n < N;
      Bs[kb + i][nb] = inside ? B[(size_t)k * N + n] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; ++i) a[i] = As[y + i][k];
#pragma unroll
      for (int j = 0; j < TN; ++j) b[j] = Bs[k][x + j];
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
        size_t at = (size_t)m * N + n;
        float c0 = beta != 0 ? beta * C0[at] : 0.0f;
        C[at] = alpha * sum[i][j] + c0;
      }
    }
}
