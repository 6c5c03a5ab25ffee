// Flash attention (arXiv 2205.14135): tiles of keys, and a softmax
// that begins before all scores are known.
//
// Idea: a block keeps Br queries and walks over the keys, Bc at a
// time. Of each row it knows the maximum so far, m, and the sum of
// exponentials so far, l. Where a new tile has a larger maximum, what
// was summed before was too large by exp(new m - old m): l and O
// shrink by that, and all is as if the new m had been known from the
// start. No row of S is ever whole, so N has no limit; K and V are
// read once for Br queries. Tiles of hidden keys alone are left out.
// What limits it: two loads from shared memory for a multiply-add,
// as in GEMM's shared-memory tile.
//
// Launch: grid (ceil(N / Br), B*H), block Br * Bc, shared memory
// 4 * ((Br + Bc) * DP + Bc * (DP + 1) + Br * Bc) bytes. Br, Bc, a
// power of 2 up to 32, and DP, a multiple of Bc that is d or more,
// are defines.

#include "attention.cuh"

constexpr int THREADS = Br * Bc;
constexpr int COLS = DP / Bc;  // of O, for a thread

extern "C" __global__ void __launch_bounds__(THREADS) flash(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H, N, d]
    const float* __restrict__ V,  // [B*H, N, d]
    float* __restrict__ O,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ float shared[];
  auto Qs = (float (*)[DP])shared;       // [Br]
  auto Ks = (float (*)[DP + 1])&Qs[Br];  // [Bc]
  auto Vs = (float (*)[DP])&Ks[Bc];      // [Bc]
  auto Ps = (float (*)[Bc])&Vs[Bc];      // [Br]
  int y = threadIdx.x / Bc, x = threadIdx.x % Bc;  // its score
  int q0 = blockIdx.x * Br;
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head, K += head, V += head, O += head;

  for (int e = threadIdx.x; e < Br * DP; e += THREADS) {
    int i = q0 + e / DP, c = e % DP;
    bool inside = i < N && c < d;
    Qs[e / DP][c] = inside ? scale * Q[(size_t)i * d + c] : 0.0f;
  }
  float o[COLS] = {}, m = -INFINITE, l = 0.0f;
  int end = seen(q0 + Br - 1, N, causal);
  for (int j0 = 0; j0 < end; j0 += Bc) {
    for (int e = threadIdx.x; e < Bc * DP; e += THREADS) {
      int j = j0 + e / DP, c = e % DP;
      bool inside = j < N && c < d;
      Ks[e / DP][c] = inside ? K[(size_t)j * d + c] : 0.0f;
      Vs[e / DP][c] = inside ? V[(size_t)j * d + c] : 0.0f;
    }
    __syncthreads();

    float s = 0.0f;
    for (int c = 0; c < DP; ++c) s += Qs[y][c] * Ks[x][c];
    if (j0 + x >= seen(q0 + y, N, causal)) s = -INFINITE;

    float most = s;  // Bc lanes side by side have the row
    for (int other = Bc / 2; other; other /= 2)
      most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
    most = fmaxf(most, m);
    // No score yet but -infinity: any finite base gives zeros.
    float base = most == -INFINITE ? 0.0f : most;
    float shrink = expf(m - base), p = expf(s - base);
    m = most;
    l = l * shrink + p;  // of the keys that this thread has seen
    Ps[y][x] = p;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < COLS; ++n) o[n] *= shrink;
    for (int j = 0; j < Bc; ++j)
#pragma unroll
      for (int n = 0; n < COLS; ++n)
        o[n] += Ps[y][j] * Vs[j][x + Bc * n];
    __syncthreads();
  }

  for (int other = Bc / 2; other; other /= 2)
    l += __shfl_xor_sync(~0u, l, other);
#pragma unroll
  for (int n = 0; n < COLS; ++n) {
    int i = q0 + y, c = x + Bc * n;
    if (i < N && c < d) O[(size_t)i * d + c] = o[n] / l;
  }
}
