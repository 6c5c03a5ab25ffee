// S = scale * Q K^T, tiled through shared memory.
//
// Idea: a block owns TILE x TILE of S, a thread one score. TILE rows
// of Q and of K come into shared memory TILE columns at a time; each
// float fetched is used TILE times. K needs no turning: a lane walks
// along its own row of it, and one float of padding puts the rows in
// different banks. If causal, blocks of hidden keys alone end at once.
// What limits it: two loads from shared memory for a multiply-add,
// and S, which still goes to HBM.
//
// Launch: grid (ceil(N / TILE), ceil(N / TILE), B*H), block
// TILE * TILE. TILE is a define.

#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(TILE * TILE)
scores_tiled(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H, N, d]
    float* __restrict__ S,        // [B*H, N, N]
    int N, int d, float scale, int causal) {
  __shared__ float Qs[TILE][TILE];
  __shared__ float Ks[TILE][TILE + 1];
  int y = threadIdx.x / TILE, x = threadIdx.x % TILE;
  int i0 = blockIdx.y * TILE, j0 = blockIdx.x * TILE;
  if (j0 >= seen(i0 + TILE - 1, N, causal)) return;
  Q += (size_t)blockIdx.z * N * d;
  K += (size_t)blockIdx.z * N * d;

  float sum = 0.0f;
  for (int c0 = 0; c0 < d; c0 += TILE) {
    int i = i0 + y, j = j0 + y, c = c0 + x;  // what it fetches
    Qs[y][x] = i < N && c < d ? Q[(size_t)i * d + c] : 0.0f;
    Ks[y][x] = j < N && c < d ? K[(size_t)j * d + c] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += Qs[y][k] * Ks[x][k];
    __syncthreads();
  }

  int i = i0 + y, j = j0 + x;
  if (i < N && j < N)
    S[((size_t)blockIdx.z * N + i) * N + j] = scale * sum;
}
