// The variants of attention on tensor cores. Q, K, V and O are 16-bit
// numbers, sums are FP32.
//
// Idea: three places change, the rest stays. (1) The loop over tiles
// of keys begins at the first key that a query of the block sees, and
// ends after the last. A sliding window thus loads only its own tiles.
// (2) Several heads of queries may read the same head of K and V
// (grouped-query attention). (3) A score is capped by tanh, gets a
// bias or is hidden before the softmax. The queries may be fewer or
// more than the keys: the last query is aligned to the last key.
// What limits it: exponentials, as without variants. A mask adds a
// load for each pair, tanh an exponential and a division.
//
// Launch: grid (ceil(N / Br), B*H), block 32 lanes for each WM rows
// of Br, shared memory 2 * (Br + 2 * STAGES * Bc) * (DP + 8) bytes.
// Br, Bc, WM, STAGES, BF16, DP and MASK (see variants.cuh) are defines.
// DP is a multiple of 16, d or more.

#include "attention.cuh"
#include "flash_mma.cuh"
#include "variants.cuh"

// Calls change(score, query, key) for each of the lane's scores, the
// first of the warp's being that of (query, key).
template <class Change>
__device__ inline void each_score(Scores& s, int query, int key,
                                  Change change) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        change(s[i][n][e], query + i * 16 + e / 2 * 8 + lane / 4,
               key + n * 8 + lane % 4 * 2 + e % 2);
}

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) flash_mma_variants(
    const Half* __restrict__ Q,  // [B*H, N, d]
    const Half* __restrict__ K,  // [B*H / sharing, M, d]
    const Half* __restrict__ V,  // [B*H / sharing, M, d]
#if MASK == 1
    const unsigned char* __restrict__ mask,  // [N, M]
#elif MASK == 2
    const Half* __restrict__ mask,  // [N, M]
#endif
    Half* __restrict__ O,  // [B*H, N, d]
    int N, int M, int d, int sharing, float scale, int causal,
    int window, float cap) {
  extern __shared__ __align__(16) char shared[];
  auto tile_q = (Half*)shared;        // [Br, PITCH]
  auto tile_k = tile_q + Br * PITCH;  // [Bc, PITCH], STAGES times
  auto tile_v = tile_k + Bc * PITCH;  // [Bc, PITCH], after each tile_k
  int warp_row = threadIdx.x / 32 * WM;  // its first in the tile
  // If causal, the last rows have the most work: they start first.
  int query_tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int block_query = query_tile * Br;
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head, O += head;
  size_t kv_head = (size_t)shared_head(blockIdx.y, sharing) * M * d;
  K += kv_head, V += kv_head;
  Keys keys = {N, M, causal, window};

  // Only tiles with a key that some query of the block sees.
  int key_begin = keys.begin(block_query) / Bc * Bc;
  int key_end = keys.end(min(block_query + Br, N) - 1);
  auto load_keys = [&](int stage, int key_tile) {
    if (key_tile < key_end) {
      size_t offset = (size_t)key_tile * d;
      load_tile<Bc>(tile_k + stage * STAGE, K + offset, M - key_tile, d);
      load_tile<Bc>(tile_v + stage * STAGE, V + offset, M - key_tile, d);
    }
    close_group();
  };
  load_tile<Br>(tile_q, Q + (size_t)block_query * d, N - block_query, d);
  for (int stage = 0; stage < STAGES - 1; ++stage)
    load_keys(stage, key_begin + stage * Bc);
  wait_groups<STAGES - 2>();
  __syncthreads();

  // The factor is positive, so that the largest score remains the
  // largest. The sign of a negative scale is applied to Q, exactly.
  float to_cap = cap ? fabsf(scale) / cap : 0.0f;
  float to_exponent = cap ? 1.0f : fabsf(scale) * LOG2E;
  float factor = MASK == 2 ? 1.0f : to_exponent;
  unsigned sign = scale < 0 ? 0x80008000 : 0;
  tile_q += warp_row * PITCH;
  Queries q[HELD ? DP / 16 : 1];
  if (HELD)
#pragma unroll
    for (int k = 0; k < DP / 16; ++k)
      load_queries(q[k], tile_q + k * 16, sign);

  Values o = {};
  Rows l = {}, m;
#pragma unroll
  for (int i = 0; i < BANDS; ++i) m[i][0] = m[i][1] = -INFINITE;
  int first_query = block_query + warp_row;
  int last_query = first_query + WM - 1;
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int key_tile = key_begin; key_tile < key_end; key_tile += Bc) {
    load_keys(fill_stage, key_tile + (STAGES - 1) * Bc);
    // A tile may be hidden from all queries of the warp.
    if (key_tile < keys.end(last_query) &&
        key_tile + Bc > keys.begin(first_query)) {
      Scores s = {};
#pragma unroll
      for (int k = 0; k < DP / 16; ++k) {
        if (!HELD) load_queries(q[0], tile_q + k * 16, sign);
        add_scores(s, q[HELD ? k : 0],
                   tile_k + read_stage * STAGE + k * 16);
      }
      if (cap)
        each_score(s, 0, 0, [=](float& score, int, int) {
          score = cap * LOG2E * tanh_(score * to_cap);
        });
      if (MASK == 2)  // the scores become exponents of 2
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
      Rows base, rescale;
      update_maxima(s, factor, m, base, rescale);
      scale_rows(o, rescale);
#pragma unroll
      for (int i = 0; i < BANDS; ++i)
        l[i][0] *= rescale[i][0], l[i][1] *= rescale[i][1];
#pragma unroll
      for (int n = 0; n < Bc / 16; ++n) {
        unsigned p[BANDS][4];
        compute_weights(p, s, 2 * n, factor, base, l);
        add_values(o, p, tile_v + read_stage * STAGE + n * 16 * PITCH);
      }
    }
    wait_groups<STAGES - 2>();
    __syncthreads();  // the next tile is loaded; all have used this one
    fill_stage = read_stage;
    read_stage = read_stage + 1 < STAGES ? read_stage + 1 : 0;
  }

#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      float sum = l[i][lower];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      int query = block_query + warp_row + i * 16 + lower * 8 +
                  threadIdx.x % 32 / 4;
      // A query that sees no key has l = 0 and the result 0.
      if (query < N)
        store_row(O + (size_t)query * d, o[i], lower,
                  sum == 0 ? 1.0f : sum, d);
    }
}
