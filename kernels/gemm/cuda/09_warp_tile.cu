// A tile of C for each warp.
//
// Idea: the warp gets a WM x WN tile of its own, nearly square, and
// its lanes are laid over it in pairs: neighbours take turns down
// and across. For each k the 16 lanes that are served together then
// read few floats of As and of Bs, each from a bank of its own or
// shared with a neighbour: a load from Bs takes half the time.
// What limits it: the multiply-adds themselves, at last. What the
// library still does better is the order of instructions.
//
// Launch: grid (ceil(N / BN), ceil(M / BM)), block 32 lanes for each
// WM x WN of the tile, shared memory 4 * STAGES * BK * (BM + 4 + BN)
// bytes. BM, BN, BK, WM, WN, TM, TN and STAGES are defines;
// WM * WN == 32 * TM * TN.

#include "async.cuh"
#include "gemm.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int ACROSS = WN / TN;  // lanes along a row of the tile

// Begins to copy a tile of A [BM, BK], turned, and one of B [BK, BN].
// a and b are the first floats that this thread copies, lda and ldb
// the floats from row to row. Of the matrices M, N and K are left
// where the tiles begin, zeros stand beyond. If WHOLE the tiles lie
// inside, and rows of B begin on 16 bytes: nothing is tested.
template <bool WHOLE>
__device__ inline void fetch(float (*As)[BM + 4], float (*Bs)[BN],
                             const float* a, const float* b,
                             int lda, int ldb, int M, int N, int K) {
  int ma = threadIdx.x / BK, ka = threadIdx.x % BK;
  int kb = threadIdx.x / (BN / 4), nb = threadIdx.x % (BN / 4) * 4;
#pragma unroll (WHOLE ? BM : 1)
  for (int i = 0; i < BM; i += THREADS / BK)
    copy_async<4>(&As[ka][ma + i], a + (size_t)i * lda,
                  WHOLE || (ma + i < M && ka < K));
#pragma unroll (WHOLE ? BK : 1)
  for (int i = 0; i < BK; i += THREADS / (BN / 4))
    copy4_async<WHOLE>(&Bs[kb + i][nb], b + (size_t)i * ldb,
                       kb + i < K ? N - nb : 0);
}

extern "C" __global__ void
__launch_bounds__(THREADS, resident(THREADS, TM * TN)) warp_tile(
    const float* __restrict__ A,   // [M, K]
    const float* __restrict__ B,   // [K, N]
    const float* __restrict__ C0,  // [M, N], read if beta is not 0
    float* __restrict__ C,         // [M, N]
    int M, int N, int K, float alpha, float beta) {
  extern __shared__ __align__(16) float shared[];
  auto As = (float (*)[BK][BM + 4])shared;  // [STAGES], turned
  auto Bs = (float (*)[BK][BN])&As[STAGES];  // [STAGES]
  int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  int ma = threadIdx.x / BK, ka = threadIdx.x % BK;
  int kb = threadIdx.x / (BN / 4), nb = threadIdx.x % (BN / 4) * 4;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int y = warp / (BN / WN) * WM  // its first element
        + (lane / (2 * ACROSS) * 2 + lane % 2) * 4;
  int x = warp % (BN / WN) * WN + lane / 2 % ACROSS * 4;
  int row = m0 + y, col = n0 + x;

  // Begins to copy the next tiles: the places to read from move on.
  const float* a = A + (size_t)(m0 + ma) * K + ka;
  const float* b = B + (size_t)kb * N + (n0 + nb);
  bool inside = m0 + BM <= M && n0 + BN <= N && N % 4 == 0;
  auto next_tiles = [&](int s, int k0) {
    if (inside && k0 + BK <= K)
      fetch<true>(As[s], Bs[s], a, b, K, N, BM, BN, BK);
    else if (k0 < K)
      fetch<false>(As[s], Bs[s], a, b, K, N, M - m0, N - n0, K - k0);
    close_group();
    a += BK;
    b += (size_t)BK * N;
  };
  for (int s = 0; s < STAGES - 1; ++s) next_tiles(s, s * BK);

  float sum[TM][TN] = {};
  int now = 0, next = STAGES - 1;  // stages to read and to fill
#pragma unroll 1
  for (int k0 = 0; k0 < K; k0 += BK) {
    wait_groups<STAGES - 2>();
    __syncthreads();
    next_tiles(next, k0 + (STAGES - 1) * BK);
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      __align__(16) float a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += 4)
        *(float4*)&a[i] = *(float4*)&As[now][k][y + i * (WM / TM)];
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        *(float4*)&b[j] = *(float4*)&Bs[now][k][x + j * (WN / TN)];
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
    }
    now = now + 1 == STAGES ? 0 : now + 1;
    next = next + 1 == STAGES ? 0 : next + 1;
  }

#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      int m = row + i / 4 * 4 * (WM / TM) + i % 4;
      int n = col + j * (WN / TN);
      store4(C, C0, M, N, m, n, &sum[i][j], alpha, beta);
    }
}
