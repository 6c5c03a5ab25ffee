// dK and dV of flash attention backward with Hopper's instructions.
//
// Idea: a producer warp lets the copy engine (TMA) fill a ring of tiles of Q
// and dO. Its lanes copy L and D of the same queries. Each consumer warpgroup
// owns 64 keys. wgmma computes S^T = K Q^T and dP^T = V dO^T, so each row is a
// key. P^T and dS^T are in registers as left factors of dV += P^T dO and dK +=
// dS^T Q. The lanes compute P while dP is computed, and dS while dV is.
// What limits it: four products and an exponential for each element
// of S. The kernel of dQ computes two of the products again.
//
// Launch: grid (ceil(N / 128), B*H), block 384 threads: two consumer
// warpgroups and the producer. Shared memory: 16384 * (2 + STAGES) +
// 528 * STAGES + 8 bytes. STAGES and BF16 are defines. d is at most 64
// and a multiple of 8.

#include "flash_backward_wgmma.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, 1) flash_wgmma_keys(
    const __grid_constant__ TensorMap Q,   // [B*H, N, d], 64 rows
    const __grid_constant__ TensorMap K,   // [B*H, N, d], 64 rows
    const __grid_constant__ TensorMap V,   // [B*H, N, d], 64 rows
    const __grid_constant__ TensorMap dO,  // [B*H, N, d], 64 rows
    const float* __restrict__ L,           // [B*H, N]
    const float* __restrict__ D,           // [B*H, N]
    Half* __restrict__ dK,                 // [B*H, N, d]
    Half* __restrict__ dV,                 // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(1024) char shared[];
  auto tile_k = (Half*)shared;               // [OWN, DP]
  auto tile_v = tile_k + CONSUMERS * TILE;   // [OWN, DP]
  auto tiles = tile_v + CONSUMERS * TILE;  // [STAGES] of Q, then dO
  auto tile_l = (float*)(tiles + STAGES * 2 * TILE);  // [STAGES, ROWS]
  auto tile_d = tile_l + STAGES * ROWS;               // [STAGES, ROWS]
  Ring ring((Barrier*)(tile_d + STAGES * ROWS), 32);
  int warpgroup = threadIdx.x / 128, head = blockIdx.y;
  int block_key = blockIdx.x * OWN;
  // If causal, earlier queries see no key of this block.
  int first_query = causal ? block_key / ROWS * ROWS : 0;

  if (warpgroup == CONSUMERS) {  // the producer
    release_registers<FOR_PRODUCER>();
    int lane = threadIdx.x % 128;
    if (lane >= 32) return;
    if (lane == 0) {
      arrive_expecting(ring.own(), CONSUMERS * 2 * TILE * 2);
      for (int i = 0; i < CONSUMERS; ++i) {
        int row = block_key + i * ROWS;
        load_rows(tile_k + i * TILE, &K, row, head, ring.own());
        load_rows(tile_v + i * TILE, &V, row, head, ring.own());
      }
    }
    L += (size_t)head * N, D += (size_t)head * N;
    for (int query_tile = first_query; query_tile < N;
         query_tile += ROWS) {
      Half* q = tiles + ring.stage * 2 * TILE;
      Barrier* full = ring.full + ring.stage;
      float l[2], rowdot[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int query = query_tile + lane + i * 32;
        // The weight of a query that does not exist is 2^-infinity.
        l[i] = query < N ? L[query] * LOG2E : INFINITE;
        rowdot[i] = query < N ? D[query] : 0.0f;
      }
      wait(ring.empty + ring.stage, ring.parity ^ 1);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        int at = ring.stage * ROWS + lane + i * 32;
        tile_l[at] = l[i], tile_d[at] = rowdot[i];
      }
      if (lane == 0) {
        arrive_expecting(full, 2 * TILE * 2);
        load_rows(q, &Q, query_tile, head, full);
        load_rows(q + TILE, &dO, query_tile, head, full);
      } else {
        arrive(full);
      }
      ring.next();
    }
    return;
  }

  take_registers<FOR_CONSUMER>();
  int group_key = block_key + warpgroup * ROWS;
  int warp_row = threadIdx.x / 32 * 16;  // in the tile
  int lane_key = block_key + warp_row + threadIdx.x % 32 / 4;
  int lane_col = threadIdx.x % 4 * 2;  // the first of the lane's queries
  const Half* k = tile_k + warpgroup * TILE;  // [64, DP]
  const Half* v = tile_v + warpgroup * TILE;  // [64, DP]
  wait(ring.own(), 0);

  Sums dk, dv;
  float factor = scale * LOG2E;  // for powers of 2
  int query_tile = first_query;
  for (; causal && query_tile + ROWS <= group_key && query_tile < N;
       query_tile += ROWS) {  // these queries see none of the keys
    wait(ring.full + ring.stage, ring.parity);
    ring.release(ring.stage);
    ring.next();
  }
  int last = -1;  // the stage that is still multiplied
#pragma unroll 1
  for (; query_tile < N; query_tile += ROWS) {
    const Half* q = tiles + ring.stage * 2 * TILE;
    const float* l = tile_l + ring.stage * ROWS + lane_col;
    const float* rowdot = tile_d + ring.stage * ROWS + lane_col;
    wait(ring.full + ring.stage, ring.parity);
    Sums s, dp, p, ds;
    Factor left_p, left_ds;
    begin_scores(s, k, q);          // S^T = K Q^T
    begin_scores(dp, v, q + TILE);  // dP^T = V dO^T
    wait_sums<1>(s);  // S, and all of the tile before
    if (last >= 0) ring.release(last);
#pragma unroll
    for (int n = 0; n < ROWS / 8; ++n) {
      float2 both = *(const float2*)(l + n * 8);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        p[n][e] =
            exp2_(fmaf(s[n][e], factor, e % 2 ? -both.y : -both.x));
    }
    if (causal && query_tile < group_key + ROWS - 1)  // some are hidden
#pragma unroll
      for (int n = 0; n < ROWS / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          int query = query_tile + n * 8 + lane_col + e % 2;
          if (query < lane_key + e / 2 * 8) p[n][e] = 0;
        }
    round_sums(left_p, p);
    begin_sums(dv, left_p, q + TILE, last >= 0);  // P^T dO
    wait_sums<1>(dp);  // dP
#pragma unroll
    for (int n = 0; n < ROWS / 8; ++n) {
      float2 both = *(const float2*)(rowdot + n * 8);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        ds[n][e] = p[n][e] * (dp[n][e] - (e % 2 ? both.y : both.x));
    }
    round_sums(left_ds, ds);
    begin_sums(dk, left_ds, q, last >= 0);  // dS^T Q
    last = ring.stage;
    ring.next();
  }
  wait_sums<0>(dk);
  pin(dv);
  size_t rows = ((size_t)head * N + block_key + warp_row) * d;
  int rows_left = N - block_key - warp_row;
  store_rows(dK + rows, dk, rows_left, d, scale);
  store_rows(dV + rows, dv, rows_left, d, 1.0f);
}
