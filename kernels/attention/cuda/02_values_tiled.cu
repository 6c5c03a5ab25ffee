// O = P V, tiled through shared memory.
//
// Idea: a block owns TILE x TILE of O, a thread one element. It walks
// along the keys, TILE at a time: a tile of P and one of V come into
// shared memory, and each float is used TILE times. If causal, it
// ends at the last key that one of its queries sees.
// What limits it: two loads from shared memory for a multiply-add,
// and P, which comes back from HBM.
//
// Launch: grid (ceil(d / TILE), ceil(N / TILE), B*H), block
// TILE * TILE. TILE is a define.

#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(TILE * TILE)
values_tiled(
    const float* __restrict__ P,  // [B*H, N, N]
    const float* __restrict__ V,  // [B*H, N, d]
    float* __restrict__ O,        // [B*H, N, d]
    int N, int d, int causal) {
  __shared__ float Ps[TILE][TILE];
  __shared__ float Vs[TILE][TILE];
  int y = threadIdx.x / TILE, x = threadIdx.x % TILE;
  int i = blockIdx.y * TILE + y, c = blockIdx.x * TILE + x;
  P += (size_t)blockIdx.z * N * N;
  V += (size_t)blockIdx.z * N * d;

  float sum = 0.0f;
  int keys = seen(blockIdx.y * TILE + TILE - 1, N, causal);
  for (int j0 = 0; j0 < keys; j0 += TILE) {
    int across = j0 + x, down = j0 + y;  // what it fetches
    bool inside = i < N && across < N;
    Ps[y][x] = inside ? P[(size_t)i * N + across] : 0.0f;
    inside = down < N && c < d;
    Vs[y][x] = inside ? V[(size_t)down * d + c] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += Ps[y][k] * Vs[k][x];
    __syncthreads();
  }

  if (i < N && c < d)
    O[((size_t)blockIdx.z * N + i) * d + c] = sum;
}
