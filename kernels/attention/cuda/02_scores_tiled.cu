// S = scale * Q K^T, tiled through shared memory.
//
// Idea: a block computes TILE x TILE scores, each thread one. It loads
// TILE rows of Q and of K into shared memory, TILE columns at a time.
// Each float loaded is used TILE times. K is not transposed: each lane
// reads its own row of tile_k. One float of padding puts these rows in
// different banks. If causal, blocks with hidden keys only end at once.
// What limits it: two loads from shared memory for each multiply-add,
// and S, which is still written to HBM.
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
  __shared__ float tile_q[TILE][TILE];
  __shared__ float tile_k[TILE][TILE + 1];
  int thread_row = threadIdx.x / TILE, thread_col = threadIdx.x % TILE;
  int block_query = blockIdx.y * TILE, block_key = blockIdx.x * TILE;
  if (block_key >= visible_keys(block_query + TILE - 1, N, causal))
    return;
  Q += (size_t)blockIdx.z * N * d;
  K += (size_t)blockIdx.z * N * d;

  float sum = 0.0f;
  for (int dim_tile = 0; dim_tile < d; dim_tile += TILE) {
    int load_query = block_query + thread_row;
    int load_key = block_key + thread_row;
    int load_dim = dim_tile + thread_col;
    tile_q[thread_row][thread_col] =
        load_query < N && load_dim < d
            ? Q[(size_t)load_query * d + load_dim] : 0.0f;
    tile_k[thread_row][thread_col] =
        load_key < N && load_dim < d
            ? K[(size_t)load_key * d + load_dim] : 0.0f;
    __syncthreads();
    for (int dim = 0; dim < TILE; ++dim)
      sum += tile_q[thread_row][dim] * tile_k[thread_col][dim];
    __syncthreads();
  }

  int query = block_query + thread_row, key = block_key + thread_col;
  if (query < N && key < N)
    S[((size_t)blockIdx.z * N + query) * N + key] = scale * sum;
}
