// O = P V, tiled through shared memory.
//
// Idea: a block computes TILE x TILE elements of O, each thread one. It
// iterates over the keys, TILE at a time. It loads a tile of P and a
// tile of V into shared memory. Each float loaded is used TILE times.
// If causal, it ends at the last key that one of its queries sees.
// What limits it: two loads from shared memory for each multiply-add,
// and P, which is read back from HBM.
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
  __shared__ float tile_p[TILE][TILE];
  __shared__ float tile_v[TILE][TILE];
  int thread_row = threadIdx.x / TILE, thread_col = threadIdx.x % TILE;
  int query = blockIdx.y * TILE + thread_row;
  int dim = blockIdx.x * TILE + thread_col;
  P += (size_t)blockIdx.z * N * N;
  V += (size_t)blockIdx.z * N * d;

  float sum = 0.0f;
  int keys = visible_keys(blockIdx.y * TILE + TILE - 1, N, causal);
  for (int key_tile = 0; key_tile < keys; key_tile += TILE) {
    int load_p_col = key_tile + thread_col;  // both are keys
    int load_v_row = key_tile + thread_row;
    bool inside = query < N && load_p_col < N;
    tile_p[thread_row][thread_col] =
        inside ? P[(size_t)query * N + load_p_col] : 0.0f;
    inside = load_v_row < N && dim < d;
    tile_v[thread_row][thread_col] =
        inside ? V[(size_t)load_v_row * d + dim] : 0.0f;
    __syncthreads();
    for (int key = 0; key < TILE; ++key)
      sum += tile_p[thread_row][key] * tile_v[key][thread_col];
    __syncthreads();
  }

  if (query < N && dim < d)
    O[((size_t)blockIdx.z * N + query) * d + dim] = sum;
}
