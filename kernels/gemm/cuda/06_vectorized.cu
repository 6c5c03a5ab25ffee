// Four floats to a load.
//
// Idea: one instruction brings 16 bytes instead of 4. Rows of A and
// B are read four floats at a time; A is turned on its way into
// shared memory, so that the TM floats of a column lie side by side
// there and can be taken four at a time as well.
// What limits it: bank conflicts. Lanes read Bs 4 * TN bytes apart
// and write As 4 * BM bytes apart, into the same few banks.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block
// (BM / TM) * (BN / TN). BM, BN, BK, TM and TN are defines.

#include "gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) vectorized(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  __shared__ __align__(16) float As[BK][BM];  // turned
  __shared__ __align__(16) float Bs[BK][BN];
  int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  int ma = threadIdx.x / (BK / 4), ka = threadIdx.x % (BK / 4) * 4;
  int kb = threadIdx.x / (BN / 4), nb = threadIdx.x % (BN / 4) * 4;
  int y = threadIdx.x / (BN / TN) * TM;  // its first element
  int x = threadIdx.x % (BN / TN) * TN;
  int row = m0 + y, col = n0 + x;

  float sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
    for (int i = 0; i < BM; i += THREADS / (BK / 4)) {
      float4 a = load4(A, M, K, m0 + ma + i, k0 + ka);
      As[ka + 0][ma + i] = a.x;
      As[ka + 1][ma + i] = a.y;
      As[ka + 2][ma + i] = a.z;
      As[ka + 3][ma + i] = a.w;
    }
#pragma unroll
    for (int i = 0; i < BK; i += THREADS / (BN / 4)) {
      float4 b = load4(B, K, N, k0 + kb + i, n0 + nb);
      *(float4*)&Bs[kb + i][nb] = b;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      __align__(16) float a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *(float4*)&a[i] = *(float4*)&As[k][y + i];
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *(float4*)&b[j] = *(float4*)&Bs[k][x + j];
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
