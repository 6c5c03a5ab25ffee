// dK and dV of flash attention backward on tensor cores.
//
// Idea: mma.sync computes all four products. A block owns Br keys, and
// tiles of Bc queries pass by. A warp computes S^T = K Q^T and
// dP^T = V dO^T for its WM keys, so each row is a key. P^T and dS^T
// then are in registers as the next products need their left factors:
// dV += P^T dO, dK += dS^T Q. They are rounded to 16 bits and are never
// in memory. cp.async copies Q, dO, L and D STAGES - 1 tiles ahead. No
// atomics: a second kernel computes dQ.
// What limits it: shared memory. Each fragment of Q and dO that a warp
// loads is used for WM / 16 mma.sync.
//
// Launch: grid (ceil(N / Br), B*H), block 32 lanes for each WM rows of
// Br, shared memory 4 * (Br + STAGES * Bc) * (DP + 8) + 8 * STAGES * Bc
// bytes. Br, Bc, WM, STAGES, BF16 and DP are defines. DP is a multiple
// of 16, d or more.

#define OWNED 2  // dK and dV
#include "attention.cuh"
#include "flash_backward_mma.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, BLOCKS) flash_mma_keys(
    const Half* __restrict__ Q,   // [B*H, N, d]
    const Half* __restrict__ K,   // [B*H, N, d]
    const Half* __restrict__ V,   // [B*H, N, d]
    const Half* __restrict__ dO,  // [B*H, N, d]
    const float* __restrict__ L,  // [B*H, N]
    const float* __restrict__ D,  // [B*H, N]
    Half* __restrict__ dK,        // [B*H, N, d]
    Half* __restrict__ dV,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(16) char shared[];
  auto tile_k = (Half*)shared;         // [Br, PITCH]
  auto tile_v = tile_k + Br * PITCH;   // [Br, PITCH]
  auto tile_q = tile_v + Br * PITCH;   // [Bc, PITCH], STAGES times
  auto tile_do = tile_q + Bc * PITCH;  // [Bc, PITCH], after each tile_q
  auto tile_l = (float*)(tile_q + STAGES * STAGE);  // [STAGES, Bc]
  auto tile_d = tile_l + STAGES * Bc;               // [STAGES, Bc]
  int warp_row = threadIdx.x / 32 * WM;  // its first in the tile
  int lane = threadIdx.x % 32;
  int block_key = blockIdx.x * Br, warp_key = block_key + warp_row;
  size_t head = (size_t)blockIdx.y * N * d;
  size_t own = head + (size_t)block_key * d;
  Q += head, dO += head;
  L += (size_t)blockIdx.y * N, D += (size_t)blockIdx.y * N;

  auto load_pass = [&](int stage, int query_tile) {
    int left = N - query_tile;
    if (left > 0) {
      size_t offset = (size_t)query_tile * d;
      load_tile<Bc>(tile_q + stage * STAGE, Q + offset, left, d);
      load_tile<Bc>(tile_do + stage * STAGE, dO + offset, left, d);
      for (int i = threadIdx.x; i < 2 * Bc; i += THREADS) {
        int query = i % Bc;
        copy_async<4>(
            (i < Bc ? tile_l : tile_d) + stage * Bc + query,
            (i < Bc ? L : D) + query_tile + query, query < left);
      }
    }
    close_group();
  };
  load_tile<Br>(tile_k, K + own, N - block_key, d);
  load_tile<Br>(tile_v, V + own, N - block_key, d);
  // If causal, earlier queries see no key of this block.
  int first_query = causal ? block_key / Bc * Bc : 0;
  for (int stage = 0; stage < STAGES - 1; ++stage)
    load_pass(stage, first_query + stage * Bc);
  wait_groups<STAGES - 2>();
  __syncthreads();

  Own k(tile_k + warp_row * PITCH), v(tile_v + warp_row * PITCH);
  Values dk = {}, dv = {};
  float factor = scale * LOG2E;  // for powers of 2
  int read_stage = 0, fill_stage = STAGES - 1;
#pragma unroll 1
  for (int query_tile = first_query; query_tile < N; query_tile += Bc) {
    load_pass(fill_stage, query_tile + (STAGES - 1) * Bc);
    const Half* q = tile_q + read_stage * STAGE;
    const Half* out = tile_do + read_stage * STAGE;
    if (!causal || query_tile + Bc > warp_key) {
      Scores p, ds;
      k.multiply(p, q);     // S^T = K Q^T
      v.multiply(ds, out);  // dP^T = V dO^T
      bool hides = causal && query_tile < warp_key + WM - 1;
#pragma unroll
      for (int n = 0; n < Bc / 8; ++n) {
        int query = n * 8 + lane % 4 * 2;
        float2 l = *(float2*)&tile_l[read_stage * Bc + query];
        float2 rowdot = *(float2*)&tile_d[read_stage * Bc + query];
        l.x *= LOG2E, l.y *= LOG2E;
#pragma unroll
        for (int i = 0; i < BANDS; ++i)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& weight = p[i][n][e];
            weight = exp2_(fmaf(weight, factor, e % 2 ? -l.y : -l.x));
            int key = warp_key + i * 16 + e / 2 * 8 + lane / 4;
            if (hides && query_tile + query + e % 2 < key) weight = 0;
            ds[i][n][e] =
                weight * (ds[i][n][e] - (e % 2 ? rowdot.y : rowdot.x));
          }
      }
#pragma unroll
      for (int n = 0; n < Bc / 16; ++n) {
        unsigned left[BANDS][4];
        as_factor(left, p, 2 * n);
        add_values(dv, left, out + n * 16 * PITCH);  // P^T dO
        as_factor(left, ds, 2 * n);
        add_values(dk, left, q + n * 16 * PITCH);  // dS^T Q
      }
    }
    wait_groups<STAGES - 2>();
    __syncthreads();  // the next tile is loaded; all have used this one
    fill_stage = read_stage;
    read_stage = read_stage + 1 < STAGES ? read_stage + 1 : 0;
  }

  size_t rows = own + (size_t)warp_row * d;
  store_rows(dK + rows, dk, N - warp_key, d, scale);
  store_rows(dV + rows, dv, N - warp_key, d, 1.0f);
}
