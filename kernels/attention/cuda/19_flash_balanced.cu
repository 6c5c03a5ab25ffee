// One block on each multiprocessor computes many tiles of queries, and
// all blocks get equal work.
//
// Idea: BLOCKS blocks are launched. The producer loads the next tile of
// queries and its first keys while the consumers finish the last one.
// If causal, a later tile of queries sees more keys. So a block
// computes two tiles of a head, the last and the first, or the second
// last and the second: each pair sees equally many keys. A consumer
// skips tiles of keys that are hidden from all of its own queries.
// What limits it: exponentials. A multiprocessor computes 16 of them in
// a cycle, or 2,048 multiply-adds of products. At d = 64 both need
// equally many cycles, at d = 128 exponentials need half as many.
//
// Launch: grid (at most BLOCKS), block 128 threads for each 64 rows of
// Br, and 128 for the producer. Dynamic shared memory: tile_q, STAGES
// times tile_k and tile_v, 4 * STAGES + 2 barriers. Br, Bc, STAGES,
// BF16 and DP are defines. DP is 64 or 128, d or more. d is a multiple
// of 8.

#include "attention.cuh"
#include "flash_wgmma.cuh"

constexpr int THREADS = 128 * (CONSUMERS + 1);

// A tile of queries of one head, and how many tiles of keys it sees.
struct Work {
  int query, head, tiles;
};

// Returns the work of a block in a round. `tiles` is 0 if a tile of
// queries in the middle has no other one, and -1 after the last round.
__device__ inline Work work_of(int round, int N, int heads,
                               int causal) {
  int rows = (N + Br - 1) / Br;  // tiles of queries of a head
  int items = causal ? (rows + 1) / 2 : rows;  // pairs, or tiles
  int i = (causal ? round / 2 : round) * gridDim.x + blockIdx.x;
  if (i >= items * heads) return {0, 0, -1};
  int row = i % items, other = rows - 1 - row;
  if (causal && round % 2 == 0) row = other;
  else if (causal && row == other) return {0, 0, 0};
  int key_end = visible_keys(row * Br + Br - 1, N, causal);
  return {row * Br, i / items, (key_end + Bc - 1) / Bc};
}

extern "C" __global__ void
__launch_bounds__(THREADS, 1) flash_balanced(
    const __grid_constant__ TensorMap Q,  // [B*H, N, d], boxes [Br, 64]
    const __grid_constant__ TensorMap K,  // [B*H, N, d], boxes [Bc, 64]
    const __grid_constant__ TensorMap V,  // [B*H, N, d], boxes [Bc, 64]
    Half* __restrict__ O,                 // [B*H, N, d]
    int N, int d, float scale, int causal, int heads) {
  extern __shared__ __align__(1024) char shared[];
  auto tile_q = (Half*)shared;             // [Br, DP]
  auto tile_k = tile_q + TILE_Q;           // [Bc, DP], STAGES times
  auto tile_v = tile_k + STAGES * TILE_K;  // [Bc, DP], STAGES times
  auto full_q = (Barrier*)(tile_v + STAGES * TILE_K);
  auto full_k = full_q + 1, full_v = full_k + STAGES;  // [STAGES]
  auto empty_k = full_v + STAGES, empty_v = empty_k + STAGES;
  auto empty_q = empty_v + STAGES;
  int warpgroup = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    for (int i = 0; i < 1 + 2 * STAGES; ++i)
      init_barrier(full_q + i, 1);
    for (int i = 0; i < 2 * STAGES + 1; ++i)
      init_barrier(empty_k + i, CONSUMERS);
    publish_barriers();
  }
  __syncthreads();

  int stage = 0, parity = 0;
  if (warpgroup == CONSUMERS) {  // the producer
    release_registers<FOR_PRODUCER>();
    if (threadIdx.x % 128 != 0) return;
    for (int round = 0;; ++round) {
      Work work = work_of(round, N, heads, causal);
      if (work.tiles < 0) return;
      wait(empty_q, round % 2 ^ 1);
      load_tile<Br>(tile_q, &Q, work.query, work.head, full_q);
      for (int tile = 0; tile < work.tiles; ++tile) {
        wait(empty_k + stage, parity ^ 1);  // at first all are empty
        load_tile<Bc>(tile_k + stage * TILE_K, &K, tile * Bc, work.head,
                      full_k + stage);
        wait(empty_v + stage, parity ^ 1);
        load_tile<Bc>(tile_v + stage * TILE_K, &V, tile * Bc, work.head,
                      full_v + stage);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
  }

  take_registers<FOR_CONSUMER>();
  if (warpgroup == CONSUMERS - 1) pass_turn(warpgroup);  // to 0
  float factor = fabsf(scale) * LOG2E;  // for powers of 2
  bool signals = threadIdx.x % 128 == 0;
  for (unsigned round = 0;; ++round) {
    Work work = work_of(round, N, heads, causal);
    if (work.tiles < 0) break;
    wait(full_q, round % 2);
    if (work.tiles == 0) {
      if (signals) arrive(empty_q);
      continue;
    }
    int first_query = work.query + warpgroup * WM;
    int query = first_query + lane_row();
    int last_query = first_query + WM - 1;
    int tiles = (visible_keys(last_query, N, causal) + Bc - 1) / Bc;
    if (scale < 0) negate_queries(tile_q, warpgroup);
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
      wait(full_k + stage, parity);
      wait_turn(warpgroup);
      begin_scores(s, tile_q, tile_k + stage * TILE_K, warpgroup);
      pass_turn(warpgroup);
      wait_sums<0>(s);
      if (signals) arrive(empty_k + stage);
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
    if (signals) arrive(empty_q);
    wait(full_v + stage, parity);
    wait_turn(warpgroup);
    begin_values(o, p, tile_v + stage * TILE_K);
    pass_turn(warpgroup);
    wait_sums<0>(o);
    if (signals) arrive(empty_v + stage);
    if (++stage == STAGES) stage = 0, parity ^= 1;
    for (int tile = tiles; tile < work.tiles; ++tile) {  // hidden ones
      wait(full_k + stage, parity);
      wait_turn(warpgroup);
      pass_turn(warpgroup);
      if (signals) arrive(empty_k + stage);
      wait(full_v + stage, parity);
      if (signals) arrive(empty_v + stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    pin(round);  // work is computed again, not kept in registers
    work = work_of(round, N, heads, causal);
    query = work.query + warpgroup * WM + lane_row();
    Half* O_head = O + (size_t)work.head * N * d;
    store_values(O_head, o, l, query, N, d);
  }
  if (warpgroup == 0) wait_turn(0);  // all turns have been passed
}
