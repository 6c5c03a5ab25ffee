// Flash attention (arXiv 2205.14135): tiles of keys, and a softmax
// that begins before all scores are known.
//
// Idea: a block has Br queries and iterates over the keys, Bc at a
// time. For each row it stores the maximum so far, m, and the sum of
// exponentials so far, l. A new tile can have a larger maximum. The
// older sums were then made with a maximum that was too small. l and O
// are multiplied by exp(old m - new m), which corrects them. No row of
// S is ever complete, so N has no limit. K and V are read once for Br
// queries. Tiles with hidden keys only are skipped.
// What limits it: two loads from shared memory for each multiply-add,
// as in GEMM's shared-memory tile.
//
// Launch: grid (ceil(N / Br), B*H), block Br * Bc, shared memory
// 4 * ((Br + Bc) * DP + Bc * (DP + 1) + Br * Bc) bytes. Br, Bc and DP
// are defines. Bc is a power of 2 up to 32. DP is a multiple of Bc, d
// or more.

#include "attention.cuh"

constexpr int THREADS = Br * Bc;
constexpr int COLS = DP / Bc;  // of O, for one thread

extern "C" __global__ void __launch_bounds__(THREADS) flash(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H, N, d]
    const float* __restrict__ V,  // [B*H, N, d]
    float* __restrict__ O,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ float shared[];
  auto tile_q = (float (*)[DP])shared;           // [Br]
  auto tile_k = (float (*)[DP + 1])&tile_q[Br];  // [Bc]
  auto tile_v = (float (*)[DP])&tile_k[Bc];      // [Bc]
  auto tile_p = (float (*)[Bc])&tile_v[Bc];      // [Br]
  // The thread computes this score of the tile.
  int thread_row = threadIdx.x / Bc, thread_col = threadIdx.x % Bc;
  int block_query = blockIdx.x * Br;
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head, K += head, V += head, O += head;

  for (int i = threadIdx.x; i < Br * DP; i += THREADS) {
    int query = block_query + i / DP, dim = i % DP;
    bool inside = query < N && dim < d;
    tile_q[i / DP][dim] =
        inside ? scale * Q[(size_t)query * d + dim] : 0.0f;
  }
  float o[COLS] = {}, m = -INFINITE, l = 0.0f;
  int key_end = visible_keys(block_query + Br - 1, N, causal);
  for (int key_tile = 0; key_tile < key_end; key_tile += Bc) {
    for (int i = threadIdx.x; i < Bc * DP; i += THREADS) {
      int key = key_tile + i / DP, dim = i % DP;
      bool inside = key < N && dim < d;
      tile_k[i / DP][dim] = inside ? K[(size_t)key * d + dim] : 0.0f;
      tile_v[i / DP][dim] = inside ? V[(size_t)key * d + dim] : 0.0f;
    }
    __syncthreads();

    float s = 0.0f;  // the score
    for (int dim = 0; dim < DP; ++dim)
      s += tile_q[thread_row][dim] * tile_k[thread_col][dim];
    if (key_tile + thread_col >=
        visible_keys(block_query + thread_row, N, causal))
      s = -INFINITE;

    float new_m = s;  // Bc neighbouring lanes have one row
    for (int lane_mask = Bc / 2; lane_mask; lane_mask /= 2)
      new_m = fmaxf(new_m, __shfl_xor_sync(~0u, new_m, lane_mask));
    new_m = fmaxf(new_m, m);
    // If all scores so far are -infinity, any finite base gives zeros.
    float base = new_m == -INFINITE ? 0.0f : new_m;
    float rescale = expf(m - base), p = expf(s - base);
    m = new_m;
    l = l * rescale + p;  // over this thread's keys
    tile_p[thread_row][thread_col] = p;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < COLS; ++n) o[n] *= rescale;
    for (int key = 0; key < Bc; ++key)
#pragma unroll
      for (int n = 0; n < COLS; ++n)
        o[n] += tile_p[thread_row][key] * tile_v[key][thread_col + Bc * n];
    __syncthreads();
  }

  for (int lane_mask = Bc / 2; lane_mask; lane_mask /= 2)
    l += __shfl_xor_sync(~0u, l, lane_mask);
#pragma unroll
  for (int n = 0; n < COLS; ++n) {
    int query = block_query + thread_row, dim = thread_col + Bc * n;
    if (query < N && dim < d) O[(size_t)query * d + dim] = o[n] / l;
  }
}
