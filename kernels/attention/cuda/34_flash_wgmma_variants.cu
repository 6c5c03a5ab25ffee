// The variants of attention by wgmma and the copy engine (TMA). Q, K, V
// and O are 16-bit numbers, sums are FP32.
//
// Idea: the producer loads only tiles with a key that some query of the
// block sees, of the head of K and V that the block's head shares. Then
// it is flash attention with overlap: consumers take turns, and compute
// the softmax of a tile while the product of the tile before with V
// still runs. Between the product and the softmax a score is capped by
// tanh, gets a bias, or is hidden.
// What limits it: as without variants, exponentials and products. A cap
// adds two more instructions of the exponential's unit for each score,
// a mask adds a load.
//
// Launch: grid (ceil(N / Br), B*H), block 128 threads for each 64 rows
// of Br, and 128 for the producer. Dynamic shared memory: tile_q,
// STAGES times tile_k and tile_v, 4 * STAGES + 1 barriers. Br, Bc,
// STAGES, BF16, DP and MASK (see variants.cuh) are defines. DP is 64 or
// 128, d or more. d is a multiple of 8.

#include "attention.cuh"
#include "flash_wgmma.cuh"
#include "variants.cuh"

constexpr int THREADS = 128 * (CONSUMERS + 1);

// Calls change(score, query, key) for each of the lane's scores, the
// first of the warpgroup's being that of (query, key).
template <class Change>
__device__ inline void each_score(Scores& s, int query, int key,
                                  Change change) {
  query += lane_row(), key += threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < Bc / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      change(s[j][e], query + e / 2 * 8, key + j * 8 + e % 2);
}

extern "C" __global__ void
__launch_bounds__(THREADS, 1) flash_wgmma_variants(
    const __grid_constant__ TensorMap Q,  // [B*H, N, d], boxes [Br, 64]
    // [B*H / sharing, M, d], boxes [Bc, 64]
    const __grid_constant__ TensorMap K,
    const __grid_constant__ TensorMap V,
#if MASK == 1
    const unsigned char* __restrict__ mask,  // [N, M]
#elif MASK == 2
    const Half* __restrict__ mask,  // [N, M]
#endif
    Half* __restrict__ O,  // [B*H, N, d]
    int N, int M, int d, int sharing, float scale, int causal,
    int window, float cap) {
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
  Keys keys = {N, M, causal, window};
  // Only tiles with a key that some query of the block sees, or one
  // tile of hidden keys.
  int key_begin = keys.begin(block_query) / Bc * Bc;
  int key_end = keys.end(min(block_query + Br, N) - 1);
  int tiles = max((key_end - key_begin + Bc - 1) / Bc, 1);
  // All lanes have the first one's number: one register of the warp.
  int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);

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
    int kv_head = shared_head(head, sharing);
    for (int tile = 0; tile < tiles; ++tile) {
      int key = key_begin + tile * Bc;
      wait(empty_k + stage, parity ^ 1);  // at first all are empty
      load_tile<Bc>(tile_k + stage * TILE_K, &K, key, kv_head,
                    full_k + stage);
      wait(empty_v + stage, parity ^ 1);
      load_tile<Bc>(tile_v + stage * TILE_K, &V, key, kv_head,
                    full_v + stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    return;
  }

  take_registers<FOR_CONSUMER>();
  if (warpgroup == CONSUMERS - 1) pass_turn(warpgroup);  // to 0
  wait(full_q, 0);
  if (scale < 0) negate_queries(tile_q, warpgroup);
  // For powers of 2. Scores with a cap or a bias are exponents before
  // the softmax.
  float to_cap = cap ? fabsf(scale) / cap : 0.0f;
  float to_exponent = cap ? cap * LOG2E : fabsf(scale) * LOG2E;
  float factor = MASK == 2 || cap ? 1.0f : to_exponent;
  int first_query = block_query + warpgroup * WM;
  int last_query = first_query + WM - 1;
  bool signals = threadIdx.x % 128 == 0;
  Values o = {};
  Weights p;
  Rows l = {}, m = {-INFINITE, -INFINITE}, rescale;
  auto weigh = [&](Scores& s, int tile) {  // S becomes weights
    int key_tile = key_begin + tile * Bc;
    if (cap)
      each_score(s, 0, 0, [=](float& score, int, int) {
        score = to_exponent * tanh_(score * to_cap);
      });
    else if (MASK == 2)
      each_score(s, 0, 0, [=](float& score, int, int) {
        score *= to_exponent;
      });
    // Some keys of the tile may be hidden from some queries.
    if (MASK || key_tile + Bc > keys.end(first_query) ||
        key_tile < keys.begin(last_query))
      each_score(s, first_query, key_tile,
                 [=](float& score, int query, int key) {
        if (key < keys.begin(query) || key >= keys.end(query))
          score = -INFINITE;
#if MASK
        else if (query < N)
          score = masked(score, mask[(size_t)query * M + key]);
#endif
      });
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
  // A query that sees no key has l = 0. Its result is 0 / 1.
#pragma unroll
  for (int lower = 0; lower < 2; ++lower) {
    float sum = l[lower];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (sum == 0) l[lower] = 0.25f;
  }
  store_values(O + (size_t)head * N * d, o, l, first_query + lane_row(),
               N, d);
}
