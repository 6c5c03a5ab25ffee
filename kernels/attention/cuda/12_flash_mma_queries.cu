// dQ of flash attention backward on tensor cores.
//
// Idea: mma.sync computes all three products. A block owns Br queries,
// and tiles of Bc keys pass by, as in the forward pass. A warp computes
// S and dP for its WM queries. dS is in registers as the next product
// needs its left factor: dQ += dS K. It is rounded to 16 bits and is
// never in memory. L is known, so nothing is rescaled.
// What limits it: shared memory. Each fragment of K and V that a warp
// loads is used for WM / 16 mma.sync.
//
// Launch: grid (ceil(N / Br), B*H), block 32 lanes for each WM rows of
// Br, shared memory 4 * (Br + STAGES * Bc) * (DP + 8) bytes. Br, Bc,
// WM, STAGES, BF16 and DP are defines. DP is a multiple of 16, d or
// more.

#define OWNED 1  // dQ
#include "attention.cuh"
#include "flash_backward_mma.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, BLOCKS) flash_mma_queries(
    const Half* __restrict__ Q,   // [B*H, N, d]
    const Half* __restrict__ K,   // [B*H, N, d]
    const Half* __restrict__ V,   // [B*H, N, d]
    const Half* __restrict__ dO,  // [B*H, N, d]
    const float* __restrict__ L,  // [B*H, N]
    const float* __restrict__ D,  // [B*H, N]
    Half* __restrict__ dQ,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(16) char shared[];
  auto tile_q = (Half*)shared;         // [Br, PITCH]
  auto tile_do = tile_q + Br * PITCH;  // [Br, PITCH]
  auto tile_k = tile_do + Br * PITCH;  // [Bc, PITCH], STAGES times
  auto tile_v = tile_k + Bc * PITCH;   // [Bc, PITCH], after each tile_k
  int warp_row = threadIdx.x / 32 * WM;  // its first in the tile
  // If causal, the last rows have the most work: they start first.
  int tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int block_query = tile * Br, warp_query = block_query + warp_row;
  size_t head = (size_t)blockIdx.y * N * d;
  size_t own = head + (size_t)block_query * d;
  K += head, V += head;
  L += (size_t)blockIdx.y * N, D += (size_t)blockIdx.y * N;

  int key_end = visible_keys(block_query + Br - 1, N, causal);
  auto load_pass = [&](int stage, int key_tile) {
    if (key_tile < key_end) {
      size_t offset = (size_t)key_tile * d;
      load_tile<Bc>(tile_k + stage * STAGE, K + offset, N - key_tile, d);
      load_tile<Bc>(tile_v + stage * STAGE, V + offset, N - key_tile, d);
    }
    close_group();
  };
  load_tile<Br>(tile_q, Q + own, N - block_query, d);
  load_tile<Br>(tile_do, dO + own, N - block_query, d);
  for (int stage = 0; stage < STAGES - 1; ++stage)
    load_pass(stage, stage * Bc);
  Rows row_l, row_d;
#pragma unroll
  for (int i = 0; i < BANDS; ++i)
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      int query =
          warp_query + i * 16 + lower * 8 + threadIdx.x % 32 / 4;
      row_l[i][lower] = query < N ? L[query] * LOG2E : 0.0f;
      row_d[i][lower] = query < N ? D[query] : 0.0f;
    }
  wait_groups<STAGES - 2>();
  __syncthreads();

  Own q(tile_q + warp_row * PITCH), out(tile_do + warp_row * PITCH);
  Values dq = {};
  float factor = scale * LOG2E;  // for powers of 2
  // Keys that the warp's first query sees, and that its last one sees.
  int min_keys = visible_keys(warp_query, N, causal);
  int max_keys = visible_keys(warp_query + WM - 1, N, causal);
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int key_tile = 0; key_tile < key_end; key_tile += Bc) {
    load_pass(fill_stage, key_tile + (STAGES - 1) * Bc);
    const Half* k = tile_k + read_stage * STAGE;
    const Half* v = tile_v + read_stage * STAGE;
    if (key_tile < max_keys) {
      Scores p, ds;
      q.multiply(p, k);     // S = Q K^T
      out.multiply(ds, v);  // dP = dO V^T
      bool hides = key_tile + Bc > min_keys;
#pragma unroll
      for (int i = 0; i < BANDS; ++i)
#pragma unroll
        for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float weight =
                exp2_(fmaf(p[i][n][e], factor, -row_l[i][e / 2]));
            int row = i * 16 + e / 2 * 8 + threadIdx.x % 32 / 4;
            int key = n * 8 + threadIdx.x % 4 * 2 + e % 2;
            if (hides && key_tile + key >= min_keys + causal * row)
              weight = 0;
            ds[i][n][e] = weight * (ds[i][n][e] - row_d[i][e / 2]);
          }
#pragma unroll
      for (int n = 0; n < Bc / 16; ++n) {
        unsigned left[BANDS][4];
        as_factor(left, ds, 2 * n);
        add_values(dq, left, k + n * 16 * PITCH);  // dS K
      }
    }
    wait_groups<STAGES - 2>();
    __syncthreads();  // the next tile is loaded; all have used this one
    fill_stage = read_stage;
    read_stage = read_stage + 1 < STAGES ? read_stage + 1 : 0;
  }

  store_rows(dQ + own + (size_t)warp_row * d, dq, N - warp_query, d,
             scale);
}
