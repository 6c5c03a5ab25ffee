// A column of results for each thread.
//
// Idea: a block owns a BM x BN tile of C as before, but each thread
// computes TM elements of it, one below the other, and keeps their
// sums in registers. A float of Bs is read once and used TM times.
// What limits it: one load from As for every multiply-add, where
// there were two.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block BM / TM * BN. BM,
// BN, BK and TM are defines.

constexpr int THREADS = BM / TM * BN;

extern "C" __global__ void __launch_bounds__(THREADS)
register_tile_1d(
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
  int y = threadIdx.x / BN * TM, x = threadIdx.x % BN;  // its first
  int row = m0 + y, col = n0 + x;  // element

  float sum[TM] = {};
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
      float b = Bs[k][x];
#pragma unroll
      for (int i = 0; i < TM; ++i) sum[i] += As[y + i][k] * b;
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < TM; ++i) {
    if (row + i < M && col < N) {
      size_t at = (size_t)(row + i) * N + col;
      C[at] = alpha * sum[i] + (beta != 0 ? beta * C0[at] : 0.0f);
    }
  }
}
