// dQ of flash attention backward with Hopper's instructions, and the
// row sums D.
//
// Idea: a producer warp lets the copy engine (TMA) fill a ring of
// tiles of K and V. Each consumer warpgroup owns 64 queries. wgmma
// computes S = Q K^T and dP = dO V^T: while dP is computed, the lanes
// compute P from S. dS is in registers as the left factor of dQ += dS
// K. The rows of dO are in shared memory, so D = rowsum(dO * O) costs
// one read of O and no kernel of its own. D is stored for the kernel of
// dK and dV.
// What limits it: exponentials and products alternate in a warpgroup.
// Only the other warpgroups fill the gaps.
//
// Launch: grid (ceil(N / 128), B*H), block 384 threads: two consumer
// warpgroups and the producer. Shared memory: 16384 * (2 + STAGES) +
// 16 * STAGES + 8 bytes. STAGES and BF16 are defines. d is at most 64
// and a multiple of 8.

#include "flash_backward_wgmma.cuh"

// Returns both numbers of a pair as FP32.
__device__ inline float2 numbers(unsigned both) {
  float2 result;
#if BF16
  result.x = __uint_as_float(both << 16);
  result.y = __uint_as_float(both & 0xFFFF0000u);
#else
  asm("{\n.reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\n"
      "cvt.f32.f16 %1, high;\n}"
      : "=f"(result.x), "=f"(result.y) : "r"(both));
#endif
  return result;
}

// Returns the lane's rows of D: [0] of row l / 4, [1] of the row 8
// below. `out` is the warp's 16 rows of the tile of dO, swizzled as the
// map says. O is the same rows, of which `rows_left` exist.
__device__ inline float2 row_dots(const Half* out, const Half* O,
                                  int rows_left, int d) {
  int lane = threadIdx.x % 32;
  float dots[2] = {};
#pragma unroll
  for (int k = 0; k < DP / 16; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      int row = e % 2 * 8 + lane / 4;
      int col = k * 16 + e / 2 * 8 + lane % 4 * 2;
      if (row >= rows_left || col >= d) continue;
      int place = row * DP + (col ^ row % 8 * 8);
      float2 a = numbers(*(const unsigned*)&out[place]);
      float2 b = numbers(*(const unsigned*)&O[(size_t)row * d + col]);
      dots[e % 2] += a.x * b.x + a.y * b.y;
    }
  // Four lanes share a row.
#pragma unroll
  for (int lane_mask = 1; lane_mask < 4; lane_mask *= 2)
#pragma unroll
    for (int lower = 0; lower < 2; ++lower)
      dots[lower] += __shfl_xor_sync(~0u, dots[lower], lane_mask);
  return make_float2(dots[0], dots[1]);
}

extern "C" __global__ void
__launch_bounds__(THREADS, 1) flash_wgmma_queries(
    const __grid_constant__ TensorMap Q,   // [B*H, N, d], 64 rows
    const __grid_constant__ TensorMap K,   // [B*H, N, d], 64 rows
    const __grid_constant__ TensorMap V,   // [B*H, N, d], 64 rows
    const __grid_constant__ TensorMap dO,  // [B*H, N, d], 64 rows
    const Half* __restrict__ O,            // [B*H, N, d]
    const float* __restrict__ L,           // [B*H, N]
    float* __restrict__ D,                 // [B*H, N]
    Half* __restrict__ dQ,                 // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(1024) char shared[];
  auto tile_q = (Half*)shared;                 // [OWN, DP]
  auto tile_do = tile_q + CONSUMERS * TILE;    // [OWN, DP]
  auto tiles = tile_do + CONSUMERS * TILE;  // [STAGES] of K, then V
  Ring ring((Barrier*)(tiles + STAGES * 2 * TILE), 1);
  int warpgroup = threadIdx.x / 128, head = blockIdx.y;
  // If causal, the last rows have the most work: they start first.
  int tile = causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  int block_query = tile * OWN;
  int key_end = visible_keys(block_query + OWN - 1, N, causal);

  if (warpgroup == CONSUMERS) {  // the producer
    release_registers<FOR_PRODUCER>();
    if (threadIdx.x % 128 != 0) return;
    arrive_expecting(ring.own(), CONSUMERS * 2 * TILE * 2);
    for (int i = 0; i < CONSUMERS; ++i) {
      int row = block_query + i * ROWS;
      load_rows(tile_q + i * TILE, &Q, row, head, ring.own());
      load_rows(tile_do + i * TILE, &dO, row, head, ring.own());
    }
    for (int key_tile = 0; key_tile < key_end; key_tile += ROWS) {
      Half* k = tiles + ring.stage * 2 * TILE;
      Barrier* full = ring.full + ring.stage;
      wait(ring.empty + ring.stage, ring.parity ^ 1);
      arrive_expecting(full, 2 * TILE * 2);
      load_rows(k, &K, key_tile, head, full);
      load_rows(k + TILE, &V, key_tile, head, full);
      ring.next();
    }
    return;
  }

  take_registers<FOR_CONSUMER>();
  int group_query = block_query + warpgroup * ROWS;
  int warp_row = threadIdx.x / 32 * 16;  // in the tile
  int warp_query = block_query + warp_row;
  int lane_query = warp_query + threadIdx.x % 32 / 4;
  size_t rows = ((size_t)head * N + warp_query) * d;
  wait(ring.own(), 0);
  float2 row_d = row_dots(tile_do + warp_row * DP, O + rows,
                          N - warp_query, d);
  float row_l[2];
#pragma unroll
  for (int lower = 0; lower < 2; ++lower) {
    int query = lane_query + lower * 8;
    size_t at = (size_t)head * N + query;
    row_l[lower] = query < N ? L[at] * LOG2E : 0.0f;
    if (query < N && threadIdx.x % 4 == 0)
      D[at] = lower ? row_d.y : row_d.x;
  }

  const Half* q = tile_q + warpgroup * TILE;     // [64, DP]
  const Half* out = tile_do + warpgroup * TILE;  // [64, DP]
  Sums dq;
  float factor = scale * LOG2E;  // for powers of 2
  // Keys that the group's first query sees, and that its last one sees.
  int min_keys = visible_keys(group_query, N, causal);
  int max_keys = visible_keys(group_query + ROWS - 1, N, causal);
  int last = -1;  // the stage that is still multiplied
#pragma unroll 1
  for (int key_tile = 0; key_tile < key_end; key_tile += ROWS) {
    const Half* k = tiles + ring.stage * 2 * TILE;
    wait(ring.full + ring.stage, ring.parity);
    if (key_tile >= max_keys) {  // all hidden
      ring.release(ring.stage);
      ring.next();
      continue;
    }
    Sums s, ds;
    Factor left;
    begin_scores(s, q, k);             // S = Q K^T
    begin_scores(ds, out, k + TILE);  // dP = dO V^T
    wait_sums<1>(s);  // S, and the dQ of the tile before
    if (last >= 0) ring.release(last);
#pragma unroll
    for (int n = 0; n < ROWS / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[n][e] = exp2_(fmaf(s[n][e], factor, -row_l[e / 2]));
    if (key_tile + ROWS > min_keys)  // some are hidden
#pragma unroll
      for (int n = 0; n < ROWS / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          int key = key_tile + n * 8 + threadIdx.x % 4 * 2 + e % 2;
          int query = lane_query + e / 2 * 8;
          if (key >= visible_keys(query, N, causal)) s[n][e] = 0;
        }
    wait_sums<0>(ds);  // dP
#pragma unroll
    for (int n = 0; n < ROWS / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        ds[n][e] = s[n][e] * (ds[n][e] - (e / 2 ? row_d.y : row_d.x));
    round_sums(left, ds);
    begin_sums(dq, left, k, last >= 0);  // dS K
    last = ring.stage;
    ring.next();
  }
  wait_sums<0>(dq);
  store_rows(dQ + rows, dq, N - warp_query, d, scale);
}
