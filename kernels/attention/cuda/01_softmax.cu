// P = softmax(S), row by row: one warp per query.
//
// Idea: P = exp(S - m) / l. m is the maximum of the row, so that no
// exponent is above 0 and exp cannot overflow. l is the sum of the
// exponentials. The lanes read neighbouring elements of the row.
// Shuffles combine their maxima and sums. If causal, keys after the
// query are hidden: their weight is 0, and their score is not read.
// What limits it: memory traffic. The warp reads the row three times
// and computes little with each float.
//
// Launch: grid ceil(rows / WARPS), block 32 * WARPS; rows is B*H*N.
// WARPS is a define. So is BF16 if P is stored as 16-bit numbers.

#include "attention.cuh"
#ifdef BF16
#include "halves.cuh"
typedef Half Weight;
__device__ inline Weight weight(float p) { return pair(p, 0.0f); }
#else
typedef float Weight;
__device__ inline Weight weight(float p) { return p; }
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS) softmax(
    const float* __restrict__ S,  // [B*H, N, N]
    Weight* __restrict__ P,       // [B*H, N, N]
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
    P[key] = weight(key < keys ? expf(S[key] - m) / l : 0.0f);
}
