// The same loads, and no two lanes in one bank.
//
// Idea: two changes of place. After each four rows of As come PAD
// floats that nobody uses, so that the lanes that turn A, which
// write four rows apart, reach 32 different banks. And the elements
// of a thread move apart, in squares of 4 x 4: lanes side by side
// now read Bs 16 bytes apart, and 8 of them all 32 banks once.
// What limits it: the block waits for global memory, then
// multiplies, then waits again.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block
// (BM / TM) * (BN / TN). BM, BN, BK, TM and TN are defines.

#include "gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int PAD = 128 / BK;  // so many lanes write to one row

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) bank_free(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  __shared__ __align__(16) float As[BK / 4][4 * BM + PAD];  // turned
  __shared__ __align__(16) float Bs[BK][BN];
  int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  int ma = threadIdx.x / (BK / 4), ka = threadIdx.x % (BK / 4) * 4;
  int kb = threadIdx.x / (BN / 4), nb = threadIdx.x % (BN / 4) * 4;
  int y = threadIdx.x / (BN / TN) * 4;  // its first element
  int x = threadIdx.x % (BN / TN) * 4;
  int row = m0 + y, col = n0 + x;

  float sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
    for (int i = 0; i < BM; i += THREADS / (BK / 4)) {
      float4 a = load4(A, M, K, m0 + ma + i, k0 + ka);
      As[ka / 4][0 * BM + ma + i] = a.x;
      As[ka / 4][1 * BM + ma + i] = a.y;
      As[ka / 4][2 * BM + ma + i] = a.z;
      As[ka / 4][3 * BM + ma + i] = a.w;
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
      float* column = &As[k / 4][k % 4 * BM];
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *(float4*)&a[i] = *(float4*)&column[y + i * (BM / TM)];
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *(float4*)&b[j] = *(float4*)&Bs[k][x + j * (BN / TN)];
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
