// Tiles of A and B through shared memory.
//
// Idea: a block owns a BM x BN tile of C, a thread one element of
// it. The block slides along K, BK at a time, and brings a tile of A
// and one of B into shared memory; each value fetched from global
// memory is then used BN or BM times.
// What limits it: two loads for every multiply-add still, now from
// shared memory.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block BM * BN. BM, BN
// and BK are defines.

constexpr int THREADS = BM * BN;

extern "C" __global__ void __launch_bounds__(THREADS) shared_tile(
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
  int y = threadIdx.x / BN, x = threadIdx.x % BN;  // its element
  int row = m0 + y, col = n0 + x;

  float sum = 0.0f;
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
    for (int k = 0; k < BK; ++k) sum += As[y][k] * Bs[k][x];
    __syncthreads();
  }

  if (row >= M || col >= N) return;
  size_t i = (size_t)row * N + col;
  C[i] = alpha * sum + (beta != 0 ? beta * C0[i] : 0.0f);
}
