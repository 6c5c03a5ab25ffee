// Overlap inside a warpgroup: it computes a softmax while its own
// products still run.
//
// Idea: S of this tile and O += P V of the tile before are two groups
// of products. A consumer waits only for the first group: one may still
// run. Meanwhile it computes the weights of this tile. Then it waits
// for O, rescales it, and rounds the weights into the registers of P
// that are now free.
// What limits it: blocks begin and end. Nothing is multiplied while a
// block loads its first tiles, and no copy runs while it stores O.
//
// Launch: grid (ceil(N / Br), B*H), block 128 threads for each 64 rows
// of Br, and 128 for the producer. Dynamic shared memory: tile_q,
// STAGES times tile_k and tile_v, 4 * STAGES + 1 barriers. Br, Bc,
// STAGES, BF16 and DP are defines. DP is 64 or 128, d or more. d is a
// multiple of 8.

#include "attention.cuh"
#include "flash_wgmma.cuh"

constexpr int THREADS = 128 * (CONSUMERS + 1);

extern "C" __global__ void
__launch_bounds__(THREADS, 1) flash_overlap(
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
  auto empty_k = full_v + STAGES, empty_v = empty_k + STAGES;
  // If causal, the last rows have the most work: they start first.
  int query_tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int block_query = query_tile * Br, head = blockIdx.y;
  int key_end = visible_keys(block_query + Br - 1, N, causal);
  int tiles = (key_end + Bc - 1) / Bc;  // of keys
  int warpgroup = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    for (int i = 0; i < 1 + 2 * STAGES; ++i)
      init_barrier(full_q + i, 1);
    for (int i = 0; i < 2 * STAGES; ++i)
      init_barrier(empty_k + i, CONSUMERS);
    publish_barriers();
  }
  __syncthreads();

  int stage = 0, parity = 0;
  if (warpgroup == CONSUMERS) {  // the producer
    release_registers<FOR_PRODUCER>();
    if (threadIdx.x % 128 != 0) return;
    load_tile<Br>(tile_q, &Q, block_query, head, full_q);
    for (int tile = 0; tile < tiles; ++tile) {
      wait(empty_k + stage, parity ^ 1);  // at first all are empty
      load_tile<Bc>(tile_k + stage * TILE_K, &K, tile * Bc, head,
                    full_k + stage);
      wait(empty_v + stage, parity ^ 1);
      load_tile<Bc>(tile_v + stage * TILE_K, &V, tile * Bc, head,
                    full_v + stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    return;
  }

  take_registers<FOR_CONSUMER>();
  if (warpgroup == CONSUMERS - 1) pass_turn(warpgroup);  // to 0
  wait(full_q, 0);
  if (scale < 0) negate_queries(tile_q, warpgroup);
  float factor = fabsf(scale) * LOG2E;  // for powers of 2
  int first_query = block_query + warpgroup * WM;
  int query = first_query + lane_row();
  bool signals = threadIdx.x % 128 == 0;
  Values o = {};
  Weights p;
  Rows l = {}, m = {-INFINITE, -INFINITE}, rescale;
  auto weigh = [&](Scores& s, int tile) {  // S becomes weights
    int key_tile = tile * Bc;
    if (key_tile + Bc > visible_keys(first_query, N, causal))
      hide_keys(s, visible_keys(query, N, causal) - key_tile,
                visible_keys(query + 8, N, causal) - key_tile);
    Rows base;
    update_maxima(s, factor, m, base, rescale);
    exponentiate(s, factor, base, rescale, l);
  };

  {  // the first tile of keys
    Scores s;
    wait(full_k, 0);
    wait_turn(warpgroup);
    begin_scores(s, tile_q, tile_k, warpgroup);
    pass_turn(warpgroup);
    wait_sums<0>(s);
    if (signals) arrive(empty_k);
    weigh(s, 0);
    round_weights(p, s);
  }
#pragma unroll 1
  for (int tile = 1; tile < tiles; ++tile) {
    int last = stage, last_parity = parity;  // of V
    if (++stage == STAGES) stage = 0, parity ^= 1;
    Scores s;
    wait(full_k + stage, parity);
    wait(full_v + last, last_parity);
    wait_turn(warpgroup);
    begin_scores(s, tile_q, tile_k + stage * TILE_K, warpgroup);
    begin_values(o, p, tile_v + last * TILE_K);
    pass_turn(warpgroup);
    wait_sums<1>(s);
    if (signals) arrive(empty_k + stage);
    weigh(s, tile);
    // This wait also keeps the compiler from moving exponentials
    // behind the wait for O.
    int ahead = stage + 1 == STAGES ? 0 : stage + 1;
    if (tile + 1 < tiles)
      wait(full_k + ahead, ahead == 0 ? parity ^ 1 : parity);
    wait_sums<0>(o);
    if (signals) arrive(empty_v + last);
    rescale_values(o, rescale);
    round_weights(p, s);
  }
  wait(full_v + stage, parity);
  wait_turn(warpgroup);
  begin_values(o, p, tile_v + stage * TILE_K);
  pass_turn(warpgroup);
  wait_sums<0>(o);
  if (warpgroup == 0) wait_turn(0);  // all turns have been passed
  store_values(O + (size_t)head * N * d, o, l, query, N, d);
}
