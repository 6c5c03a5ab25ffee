// P = softmax(S) and L, row by row: one warp per query.
//
// Idea: as 01_softmax.cu. The backward pass needs every weight again.
// exp(S - L) with L = m + log(l) gives it from one number per row, so
// P need not be kept (FlashAttention, arXiv 2205.14135). After the two
// sums of a row are known, one lane stores L.
// What limits it: memory traffic. The warp reads the row three times
// and computes little with each float.
//
// Launch: grid ceil(rows / WARPS), block 32 * WARPS; rows is B*H*N.
// WARPS is a define.

#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS) softmax_lse(
    const float* __restrict__ S,  // [B*H, N, N]
    float* __restrict__ P,        // [B*H, N, N]
    float* __restrict__ L,        // [B*H, N]
    int rows, int N, int causal) {
  int lane = threadIdx.x % 32;
  int row = blockIdx.x * WARPS + threadIdx.x / 32;  // of all heads
  if (row >= rows) return;
  int keys = visible_keys(row % N, N, causal);
  S += (size_t)row * N;
  P += (size_t)row * N;

  float m = -INFINITE;
  for (int key = lane; key < keys; key += 32) m = fmaxf(m, S[key]);
  for (int lane_mask = 16; lane_mask; lane_mask /= 2)
    m = fmaxf(m, __shfl_xor_sync(~0u, m, lane_mask));

  float l = 0.0f;
  for (int key = lane; key < keys; key += 32) l += expf(S[key] - m);
  for (int lane_mask = 16; lane_mask; lane_mask /= 2)
    l += __shfl_xor_sync(~0u, l, lane_mask);

  for (int key = lane; key < N; key += 32)
    P[key] = key < keys ? expf(S[key] - m) / l : 0.0f;
  if (lane == 0) L[row] = m + logf(l);
}
