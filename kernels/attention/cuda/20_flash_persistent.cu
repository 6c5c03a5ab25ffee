// One block on each multiprocessor computes many tiles of queries. It
// rescales O only if a score exceeds the maximum in use by a lot.
//
// Idea: softmax may subtract any number near the maximum. A row keeps
// the number in use until a score exceeds it by more than SLACK powers
// of 2. Then weights are at most 2^SLACK, and FP32 sums and 16-bit
// weights lose no accuracy. Nearly all tiles need no new maximum: then
// O and l are not rescaled, and no lane exchanges a maximum.
// The largest score is found as an integer: the order of floats that
// are not negative is that of their bits, and Hopper finds the largest
// of three integers with one instruction.
// Two tiles of queries are in shared memory: the producer loads the
// next one while the consumers still need this one.
// With two consumers, a consumer computes the softmax during the
// product with V. With more, the products of the others fill that time.
// What limits it: exponentials and the other arithmetic of softmax at
// d = 64, products at d = 128.
//
// Launch: grid (at most BLOCKS), block 128 threads for each 64 rows of
// Br, and 128 for the producer. Dynamic shared memory: two times
// tile_q, STAGES times tile_k and tile_v, 4 * STAGES + 4 barriers. Br,
// Bc, STAGES, BF16 and DP are defines. DP is 64 or 128, d or more. d is
// a multiple of 8. 128 * FOR_PRODUCER + Br * 2 * FOR_CONSUMER registers
// are at most 65,536.

#include "attention.cuh"
#include "flash_wgmma.cuh"
#include "advancing.cuh"

constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr bool OVERLAP = CONSUMERS == 2;
constexpr float SLACK = 8;  // weights are at most 2^SLACK

// Returns the largest score of a lane's row of the tile, or a negative
// number if all are negative: compared as integers.
__device__ inline float largest_score(const Scores& s, int lower) {
  int even = 1 << 31, odd = even;  // two chains of maxima
#pragma unroll
  for (int j = 0; j < Bc / 8; ++j) {
    int& largest = j % 2 ? odd : even;
    largest = max(max(largest, __float_as_int(s[j][2 * lower])),
                  __float_as_int(s[j][2 * lower + 1]));
  }
  return __int_as_float(max(even, odd));
}

// Returns true if the row needs another maximum than m. A very large or
// a negative one is never kept.
__device__ inline bool outgrown(const Scores& s, int lower, float m,
                                float factor) {
  return largest_score(s, lower) * factor > m + SLACK || m < -SLACK ||
         m >= FAR;
}

// Replaces scores by weights and adds them to l. Returns true if m has
// changed. Then O is to be multiplied by `rescale`.
__device__ inline bool soften(Scores& s, float factor, Rows& m,
                              Rows& rescale, Rows& l) {
  Rows base = {m[0], m[1]};
  bool changed = outgrown(s, 0, m[0], factor) ||
                 outgrown(s, 1, m[1], factor);
  changed = __any_sync(~0u, changed);
  if (changed) {
    update_maxima(s, factor, m, base, rescale);
    l[0] *= rescale[0], l[1] *= rescale[1];
  }
  const Rows unchanged = {1, 1};
  exponentiate(s, factor, base, unchanged, l);
  return changed;
}

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
__launch_bounds__(THREADS, 1) flash_persistent(
    const __grid_constant__ TensorMap Q,  // [B*H, N, d], boxes [Br, 64]
    const __grid_constant__ TensorMap K,  // [B*H, N, d], boxes [Bc, 64]
    const __grid_constant__ TensorMap V,  // [B*H, N, d], boxes [Bc, 64]
    Half* __restrict__ O,                 // [B*H, N, d]
    int N, int d, float scale, int causal, int heads) {
  extern __shared__ __align__(1024) char shared[];
  auto tiles_q = (Half*)shared;            // [Br, DP], 2 times
  auto tile_k = tiles_q + 2 * TILE_Q;      // [Bc, DP], STAGES times
  auto tile_v = tile_k + STAGES * TILE_K;  // [Bc, DP], STAGES times
  auto full_q = (Barrier*)(tile_v + STAGES * TILE_K);    // [2]
  auto full_k = full_q + 2, full_v = full_k + STAGES;    // [STAGES]
  auto empty_k = full_v + STAGES, empty_v = empty_k + STAGES;
  auto empty_q = empty_v + STAGES;  // [2]
  int warpgroup = advancing::this_warpgroup();

  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 + 2 * STAGES; ++i)
      init_barrier(full_q + i, 1);
    for (int i = 0; i < 2 * STAGES + 2; ++i)
      init_barrier(empty_k + i, CONSUMERS);
    publish_barriers();
  }
  __syncthreads();

  int stage = 0, parity = 0;
  if (warpgroup == CONSUMERS) {  // the producer
    release_registers<FOR_PRODUCER>();
    if (threadIdx.x % 128 != 0) return;
    for (unsigned round = 0;; ++round) {
      Work work = work_of(round, N, heads, causal);
      if (work.tiles < 0) return;
      int place = round % 2;  // of the tile of queries
      wait(empty_q + place, round / 2 % 2 ^ 1);
      load_tile<Br>(tiles_q + place * TILE_Q, &Q, work.query, work.head,
                    full_q + place);
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
    wait(full_q + round % 2, round / 2 % 2);
    if (work.tiles == 0) {
      if (signals) arrive(empty_q + round % 2);
      continue;
    }
    auto tile_q = tiles_q + round % 2 * TILE_Q;
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
      return soften(s, factor, m, rescale, l);
    };

    {  // the first tile of keys
      Scores s;
      wait(full_k + stage, parity);
      wait_turn(warpgroup);
      advancing::begin_scores(s, tile_q, tile_k + stage * TILE_K,
                              warpgroup);
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
      bool changed;
      wait(full_k + stage, parity);
      wait(full_v + last, last_parity);
      wait_turn(warpgroup);
      advancing::begin_scores(s, tile_q, tile_k + stage * TILE_K,
                              warpgroup);
      advancing::begin_values(o, p, tile_v + last * TILE_K);
      pass_turn(warpgroup);
      if constexpr (OVERLAP) {
        wait_sums<1>(s);
        if (signals) arrive(empty_k + stage);
        changed = weigh(s, tile);
        // This wait also keeps the compiler from moving exponentials
        // behind the wait for O.
        int ahead = stage + 1 == STAGES ? 0 : stage + 1;
        if (tile + 1 < tiles)
          wait(full_k + ahead, ahead == 0 ? parity ^ 1 : parity);
        wait_sums<0>(o);
        if (signals) arrive(empty_v + last);
      } else {
        wait_sums<0>(s);
        pin(o);
        if (signals) arrive(empty_k + stage), arrive(empty_v + last);
        changed = weigh(s, tile);
      }
      if (changed) rescale_values(o, rescale);
      round_weights(p, s);
    }
    if (signals) arrive(empty_q + round % 2);
    wait(full_v + stage, parity);
    wait_turn(warpgroup);
    advancing::begin_values(o, p, tile_v + stage * TILE_K);
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
