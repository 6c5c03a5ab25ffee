// Flash attention backward in one kernel: a block owns a tile of keys.
//
// Idea: K and V of Bc keys stay in shared memory, dK and dV in
// registers. Br queries after the other pass by. P is computed again
// from L, the logarithm of the sum of each row. So neither P nor dS is
// in memory. Half of the warps compute P and add to dV. The others
// compute dP and dS and add to dK. Then all multiply dS with K. That is
// this tile's part of dQ. Every block has a part of every dQ, so it is
// added atomically to dQ, which begins as 0.
// What limits it: the FP32 multiply-adds, five products. The atomics
// arrive in any order, so the last digits of dQ differ from run to run.
//
// Launch: grid (ceil(N / Bc), B*H), block 64 lanes for each WK keys of
// Bc, shared memory 4 * (2 * (Br + Bc) * (DP + 4) + 2 * Br * (Bc + 4))
// bytes. Br, Bc, WK and DP are defines. DP is a multiple of 32, d or
// more.

#include "flash_backward.cuh"

extern "C" __global__ void
__launch_bounds__(THREADS, RESIDENT) flash_backward(
    const float* __restrict__ Q,   // [B*H, N, d]
    const float* __restrict__ K,   // [B*H, N, d]
    const float* __restrict__ V,   // [B*H, N, d]
    const float* __restrict__ dO,  // [B*H, N, d]
    const float* __restrict__ L,   // [B*H, N]
    const float* __restrict__ D,   // [B*H, N]
    float* __restrict__ dQ,        // [B*H, N, d], 0 before
    float* __restrict__ dK,        // [B*H, N, d]
    float* __restrict__ dV,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ __align__(16) float shared[];
  float* tile_q = shared;                 // [Br, PITCH]
  float* tile_do = tile_q + Br * PITCH;   // [Br, PITCH]
  float* tile_k = tile_do + Br * PITCH;   // [Bc, PITCH]
  float* tile_v = tile_k + Bc * PITCH;    // [Bc, PITCH]
  float* tile_p = tile_v + Bc * PITCH;    // [Br, PITCH_P]
  float* tile_ds = tile_p + Br * PITCH_P;  // [Br, PITCH_P]
  int warp = threadIdx.x / 32, role = warp / PAIRS;
  int warp_key = warp % PAIRS * WK;  // its first in the tile
  int block_key = blockIdx.x * Bc;
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head, K += head, V += head, dO += head, dQ += head;
  const float* rows = (role ? D : L) + (size_t)blockIdx.y * N;
  const float* left = role ? tile_do : tile_q;
  const float* right = (role ? tile_v : tile_k) + warp_key * PITCH;
  const float* weights = (role ? tile_ds : tile_p) + warp_key;
  const float* values = role ? tile_q : tile_do;

  auto load_queries = [&](int query_tile) {
    size_t offset = (size_t)query_tile * d;
    load_tile<Br>(tile_q, Q + offset, N - query_tile, d);
    load_tile<Br>(tile_do, dO + offset, N - query_tile, d);
    close_group();
  };
  size_t offset = (size_t)block_key * d;
  load_tile<Bc>(tile_k, K + offset, N - block_key, d);
  load_tile<Bc>(tile_v, V + offset, N - block_key, d);
  // If causal, earlier queries see no key of this tile.
  int first_query = causal ? block_key / Br * Br : 0;
  load_queries(first_query);

  float factor = scale * LOG2E;  // for powers of 2
  float sums[TK][TD] = {};  // of dV (role 0) or dK (role 1)
#pragma unroll 1
  for (int query_tile = first_query; query_tile < N; query_tile += Br) {
    float row[TQ];  // L or D of the lane's queries
#pragma unroll
    for (int i = 0; i < TQ; ++i) {
      int query = query_tile + lane_of_8() + 8 * i;
      row[i] = query < N ? rows[query] : 0.0f;
    }
    wait_groups<0>();
    __syncthreads();  // the tiles are loaded
    float s[TQ][TK];
    multiply_rows(s, left, right);  // Q K^T, or dP = dO V^T

    if (role == 0) {
#pragma unroll
      for (int i = 0; i < TQ; ++i)
#pragma unroll
        for (int n = 0; n < TK; ++n) {
          int query = lane_of_8() + 8 * i;
          int key = warp_key + lane_of_4() + 4 * n;
          bool visible = block_key + key <
                         visible_keys(query_tile + query, N, causal);
          float p = exp2_(fmaf(s[i][n], factor, -row[i] * LOG2E));
          tile_p[query * PITCH_P + key] = visible ? p : 0.0f;
        }
    }
    __syncthreads();  // P is there
    if (role == 1) {
#pragma unroll
      for (int i = 0; i < TQ; ++i)
#pragma unroll
        for (int n = 0; n < TK; ++n) {
          int place = (lane_of_8() + 8 * i) * PITCH_P + warp_key +
                      lane_of_4() + 4 * n;
          tile_ds[place] = tile_p[place] * (s[i][n] - row[i]);
        }
    }
    __syncwarp();  // a warp needs only its own columns of P or dS
    add_columns(sums, weights, values);  // dV += P^T dO, dK += dS^T Q
    __syncthreads();  // dS is there; all have used Q and dO
    if (query_tile + Br < N) load_queries(query_tile + Br);

    // dQ += dS K: a warp has Br / (2 PAIRS) queries.
    float dq[TR][TD] = {};
    int warp_query = warp * TR * 4 + lane_of_4();
#pragma unroll 2
    for (int key = 0; key < Bc; key += 4) {
      __align__(16) float ds[TR][4];
#pragma unroll
      for (int i = 0; i < TR; ++i)
        *(float4*)ds[i] =
            *(float4*)&tile_ds[(warp_query + 4 * i) * PITCH_P + key];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        __align__(16) float x[TD];
#pragma unroll
        for (int n = 0; n < TD; n += 4)
          *(float4*)&x[n] = *(float4*)&tile_k[(key + k) * PITCH +
                                             4 * lane_of_8() + 8 * n];
#pragma unroll
        for (int i = 0; i < TR; ++i)
#pragma unroll
          for (int n = 0; n < TD; ++n) dq[i][n] += ds[i][k] * x[n];
      }
    }
#pragma unroll
    for (int i = 0; i < TR; ++i)
#pragma unroll
      for (int n = 0; n < TD; ++n) {
        int query = query_tile + warp_query + 4 * i;
        int dim = 4 * lane_of_8() + n / 4 * 32 + n % 4;
        if (query < N && dim < d)
          atomicAdd(&dQ[(size_t)query * d + dim], scale * dq[i][n]);
      }
  }

  float* Y = (role ? dK : dV) + head + (size_t)(block_key + warp_key) * d;
  store_sums(Y, sums, N - block_key - warp_key, d, role ? scale : 1.0f);
}
