// One block on each multiprocessor computes many tiles of queries, and
// all blocks get equal work.
//
// Idea: BLOCKS blocks are launched. The producer loads the next tile of
// queries and its first keys while the consumers finish the last one.
// If causal, a later tile of queries sees more keys. So the tiles of
// GROUP heads are sorted, the heaviest first, and dealt to the blocks
// forth and back: the block with the heaviest tile of one round gets
// the lightest of the next. The keys and values of GROUP heads stay in
// the L2 cache.
// What limits it: exponentials at d = 64, and the power of the tensor
// cores at d = 128.
//
// Launch: grid (at most BLOCKS), block 128 threads for each 64 rows of
// Br, and 128 for the producer. Dynamic shared memory: tile_q, STAGES
// times tile_k and tile_v, 4 * STAGES + 2 barriers. Br, Bc, STAGES,
// GROUP, BF16 and DP are defines. DP is 64 or 128, d or more. d is a
// multiple of 8.

#include "attention.cuh"
#include "flash_wgmma.cuh"

constexpr int CONSUMERS = Br / WM;  // warpgroups
constexpr int THREADS = 128 * (CONSUMERS + 1);
// Registers of a thread, instead of 168 for each of 384 or 128 of 512:
constexpr int FOR_PRODUCER = CONSUMERS == 2 ? 40 : 32;
constexpr int FOR_CONSUMER = CONSUMERS == 2 ? 232 : 160;

// A tile of queries of one head, and how many tiles of keys it sees.
struct Work {
  int query, head, tiles;
};

// Returns the work of a block in a round. Its tiles are -1 if there is
// none left.
__device__ inline Work work_of(int round, int N, int heads,
                               int causal) {
  int rows = (N + Br - 1) / Br;  // tiles of queries of a head
  int from_left = round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int i = round * gridDim.x + from_left;
  if (i >= rows * heads) return {0, 0, -1};
  int first_head = i / (GROUP * rows) * GROUP;
  int group = min(GROUP, heads - first_head);
  i -= first_head * rows;
  int row = causal ? rows - 1 - i / group : i / group;
  int key_end = visible_keys(row * Br + Br - 1, N, causal);
  return {row * Br, first_head + i % group, (key_end + Bc - 1) / Bc};
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
  int next = (warpgroup + 1) % CONSUMERS;
  if (next == 0) pass_turn(0);  // consumer 0 begins
  float factor = fabsf(scale) * LOG2E;  // for powers of 2
  bool signals = threadIdx.x % 128 == 0;
  for (int round = 0;; ++round) {
    Work work = work_of(round, N, heads, causal);
    if (work.tiles < 0) break;
    int first_query = work.query + warpgroup * WM;
    int query = first_query + lane_row();
    wait(full_q, round % 2);
    if (scale < 0) negate_queries(tile_q, warpgroup);
    Values o = {};
    Weights p;
    Rows l = {}, m = {-INFINITE, -INFINITE}, rescale;
    bool grows;  // whether O must be rescaled
    auto weigh = [&](Scores& s, int tile) {  // S becomes weights
      int key_tile = tile * Bc;
      if (key_tile + Bc > visible_keys(first_query, N, causal))
        hide_keys(s, visible_keys(query, N, causal) - key_tile,
                  visible_keys(query + 8, N, causal) - key_tile);
      Rows base;
      grows = raise_bases(s, factor, m, base, rescale);
      exponentiate(s, factor, base, rescale, l);
    };

    {  // the first tile of keys
      Scores s;
      wait(full_k + stage, parity);
      wait_turn(warpgroup);
      begin_scores(s, tile_q, tile_k + stage * TILE_K, warpgroup);
      pass_turn(next);
      wait_sums<0>(s);
      if (signals) arrive(empty_k + stage);
      weigh(s, 0);
      round_weights(p, s);
    }
#pragma unroll 1
    for (int tile = 1; tile < work.tiles; ++tile) {
      int last = stage, last_parity = parity;  // of V
      if (++stage == STAGES) stage = 0, parity ^= 1;
      Scores s;
      wait(full_k + stage, parity);
      wait(full_v + last, last_parity);
      wait_turn(warpgroup);
      begin_scores(s, tile_q, tile_k + stage * TILE_K, warpgroup);
      begin_values(o, p, tile_v + last * TILE_K);
      pass_turn(next);
      wait_sums<1>(s);
      if (signals) arrive(empty_k + stage);
      weigh(s, tile);
      wait_sums<0>(o);
      if (signals) arrive(empty_v + last);
      if (grows) rescale_values(o, rescale);
      round_weights(p, s);
    }
    if (signals) arrive(empty_q);
    wait(full_v + stage, parity);
    wait_turn(warpgroup);
    begin_values(o, p, tile_v + stage * TILE_K);
    pass_turn(next);
    wait_sums<0>(o);
    if (signals) arrive(empty_v + stage);
    if (++stage == STAGES) stage = 0, parity ^= 1;
    Half* O_head = O + (size_t)work.head * N * d;
    store_values(O_head, o, l, query, N, d);
  }
  if (warpgroup == 0) wait_turn(0);  // all turns have been passed
}
