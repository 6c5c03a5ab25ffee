// Flash attention on tensor cores, as in FlashAttention-2 (arXiv
// 2307.08691). Q, K, V and O are 16-bit numbers, sums are FP32.
//
// Idea: mma.sync computes both products. A warp has WM complete rows
// of S and of O in registers. Four lanes share a row, so its maximum
// needs two shuffles. P is never in memory. A lane has the sums of one
// mma.sync where the next one reads its left factor: it rounds them to
// 16 bits and uses them. cp.async copies K and V STAGES - 1 tiles
// ahead, so that a tile needs one barrier.
// What limits it: exponentials. An SM computes 16 of them per cycle.
// While a warp computes exponentials, only other warps can use the
// tensor cores.
//
// Launch: grid (ceil(N / Br), B*H), block 32 lanes for each WM rows
// of Br, shared memory 2 * (Br + 2 * STAGES * Bc) * (DP + 8) bytes.
// Br, Bc, WM, STAGES, BF16 and DP are defines. DP is a multiple of 16,
// d or more.

#include "attention.cuh"
#include "flash_mma.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) flash_mma(
    const Half* __restrict__ Q,  // [B*H, N, d]
    const Half* __restrict__ K,  // [B*H, N, d]
    const Half* __restrict__ V,  // [B*H, N, d]
    Half* __restrict__ O,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(16) char shared[];
  auto tile_q = (Half*)shared;        // [Br, PITCH]
  auto tile_k = tile_q + Br * PITCH;  // [Bc, PITCH], STAGES times
  auto tile_v = tile_k + Bc * PITCH;  // [Bc, PITCH], after each tile_k
  int warp_row = threadIdx.x / 32 * WM;  // its first in the tile
  // If causal, the last rows have the most work: they start first.
  int query_tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int block_query = query_tile * Br;
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head, K += head, V += head, O += head;

  int key_end = visible_keys(block_query + Br - 1, N, causal);
  auto load_keys = [&](int stage, int key_tile) {
    if (key_tile < key_end) {
      size_t offset = (size_t)key_tile * d;
      load_tile<Bc>(tile_k + stage * STAGE, K + offset, N - key_tile, d);
      load_tile<Bc>(tile_v + stage * STAGE, V + offset, N - key_tile, d);
    }
    close_group();
  };
  load_tile<Br>(tile_q, Q + (size_t)block_query * d, N - block_query, d);
  for (int stage = 0; stage < STAGES - 1; ++stage)
    load_keys(stage, stage * Bc);
  wait_groups<STAGES - 2>();
  __syncthreads();

  // The factor is positive, so that the largest score remains the
  // largest. The sign of a negative scale is applied to Q, exactly.
  float factor = fabsf(scale) * LOG2E;  // for powers of 2
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
  // Keys that the warp's first query sees, and that its last one sees.
  int min_keys = visible_keys(block_query + warp_row, N, causal);
  int max_keys = visible_keys(block_query + warp_row + WM - 1, N, causal);
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int key_tile = 0; key_tile < key_end; key_tile += Bc) {
    load_keys(fill_stage, key_tile + (STAGES - 1) * Bc);
    if (key_tile < max_keys) {
      Scores s = {};
#pragma unroll
      for (int k = 0; k < DP / 16; ++k) {
        if (!HELD) load_queries(q[0], tile_q + k * 16, sign);
        add_scores(s, q[HELD ? k : 0],
                   tile_k + read_stage * STAGE + k * 16);
      }
      if (key_tile + Bc > min_keys)
        hide_keys(s, min_keys - key_tile, causal);
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
      if (query < N)
        store_row(O + (size_t)query * d, o[i], lower, sum, d);
    }
}
