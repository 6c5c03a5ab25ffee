// Flash attention with Hopper's own instructions: wgmma multiplies, and
// the copy engine (TMA) loads. Q, K, V and O are 16-bit numbers, sums
// are FP32.
//
// Idea: a warpgroup, 128 threads, owns Br = 64 queries. wgmma computes
// 64 rows of S from tiles in shared memory: no thread loads fragments.
// P stays in registers, where the next wgmma reads its left factor. V
// [keys, d] is used as it is: wgmma reads its right factor along either
// side. One thread starts copies of K and V, STAGES tiles ahead.
// What limits it: each step waits for the one before. While a warpgroup
// computes exponentials, only other blocks use the tensor cores.
//
// Launch: grid (ceil(N / 64), B*H), block 128 threads. Dynamic shared
// memory: tile_q, STAGES times tile_k and tile_v, 2 * STAGES + 1
// barriers. Br, Bc, STAGES, BF16 and DP are defines. DP is 64 or 128, d
// or more. d is a multiple of 8.

#include "attention.cuh"
#include "flash_wgmma.cuh"

extern "C" __global__ void __launch_bounds__(128) flash_wgmma(
    const __grid_constant__ TensorMap Q,  // [B*H, N, d], boxes [Br, 64]
    const __grid_constant__ TensorMap K,  // [B*H, N, d], boxes [Bc, 64]
    const __grid_constant__ TensorMap V,  // [B*H, N, d], boxes [Bc, 64]
    Half* __restrict__ O,                 // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(1024) char shared[];
  auto tile_q = (Half*)shared;             // [Br, DP]
  auto tile_k = tile_q + TILE_Q;           // [Bc, DP], STAGES times
  auto tile_v = tile_k + STAGES * TILE_K;  // [Bc, DP], STAGES times
  auto full_q = (Barrier*)(tile_v + STAGES * TILE_K);
  auto full_k = full_q + 1, full_v = full_k + STAGES;  // [STAGES]
  // If causal, the last rows have the most work: they start first.
  int query_tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int block_query = query_tile * Br, head = blockIdx.y;
  int key_end = visible_keys(block_query + Br - 1, N, causal);
  int tiles = (key_end + Bc - 1) / Bc;  // of keys

  if (threadIdx.x == 0) {
    for (int i = 0; i < 1 + 2 * STAGES; ++i)
      init_barrier(full_q + i, 1);
    publish_barriers();
  }
  __syncthreads();
  auto load_keys = [&](int stage, int tile) {
    load_tile<Bc>(tile_k + stage * TILE_K, &K, tile * Bc, head,
                  full_k + stage);
    load_tile<Bc>(tile_v + stage * TILE_K, &V, tile * Bc, head,
                  full_v + stage);
  };
  if (threadIdx.x == 0) {
    load_tile<Br>(tile_q, &Q, block_query, head, full_q);
    for (int i = 0; i < STAGES && i < tiles; ++i)
      load_keys(i, i);
  }
  wait(full_q, 0);
  if (scale < 0) negate_queries(tile_q, 0);

  float factor = fabsf(scale) * LOG2E;  // for powers of 2
  int query = block_query + lane_row();
  Values o = {};
  Rows l = {}, m = {-INFINITE, -INFINITE};
  int stage = 0, parity = 0;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    Scores s;
    wait(full_k + stage, parity);
    begin_scores(s, tile_q, tile_k + stage * TILE_K, 0);
    wait_sums<0>(s);
    int key_tile = tile * Bc;
    if (key_tile + Bc > visible_keys(block_query, N, causal))
      hide_keys(s, visible_keys(query, N, causal) - key_tile,
                visible_keys(query + 8, N, causal) - key_tile);
    Rows base, rescale;
    update_maxima(s, factor, m, base, rescale);
    rescale_values(o, rescale);
    exponentiate(s, factor, base, rescale, l);
    Weights p;
    round_weights(p, s);
    wait(full_v + stage, parity);
    begin_values(o, p, tile_v + stage * TILE_K);
    wait_sums<0>(o);
    __syncthreads();  // all warps have read the stage
    if (threadIdx.x == 0 && tile + STAGES < tiles)
      load_keys(stage, tile + STAGES);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  store_values(O + (size_t)head * N * d, o, l, query, N, d);
}
