// Attention in one kernel: a block per query, its scores in shared
// memory.
//
// Idea: a query needs its own row of S alone. The block computes the
// row (a warp per key, lanes along d), turns it into weights where it
// lies, and sums the values with them. S and P never exist in HBM.
// What limits it: K and V are read anew for every query, out of the
// caches if they fit; a row of S must fit shared memory, which ends
// at some 57,000 keys; and a warp adds up a score by passing it from
// lane to lane, five times for d / 32 multiply-adds.
//
// Launch: grid (N, B*H), block BLOCK, shared memory 4 * (N + d +
// BLOCK) bytes; d <= BLOCK. BLOCK is a define.

#include "attention.cuh"

constexpr int WARPS = BLOCK / 32;

__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline float sum(float a, float b) { return a + b; }

// One value for the whole block of what its threads hold; `parts` has
// WARPS floats.
template <float (*WITH)(float, float)>
__device__ inline float together(float value, float* parts) {
  for (int other = 16; other; other /= 2)
    value = WITH(value, __shfl_xor_sync(~0u, value, other));
  __syncthreads();  // nobody reads what was there before
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
  for (int w = 1; w < WARPS; ++w) value = WITH(value, parts[w]);
  return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK) fused(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H, N, d]
    const float* __restrict__ V,  // [B*H, N, d]
    float* __restrict__ O,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ float shared[];
  float* s = shared;     // [N]: scores, then weights
  float* q = s + N;      // [d]
  float* parts = q + d;  // [BLOCK]
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int i = blockIdx.x, keys = seen(i, N, causal);
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head + (size_t)i * d, O += head + (size_t)i * d;
  K += head, V += head;

  if (threadIdx.x < d) q[threadIdx.x] = scale * Q[threadIdx.x];
  __syncthreads();
  for (int j = warp; j < keys; j += WARPS) {
    float score = 0.0f;
    for (int c = lane; c < d; c += 32)
      score += q[c] * K[(size_t)j * d + c];
    for (int other = 16; other; other /= 2)
      score += __shfl_xor_sync(~0u, score, other);
    if (lane == 0) s[j] = score;
  }
  __syncthreads();

  float m = -INFINITE;
  for (int j = threadIdx.x; j < keys; j += BLOCK) m = fmaxf(m, s[j]);
  m = together<larger>(m, parts);
  float l = 0.0f;
  for (int j = threadIdx.x; j < keys; j += BLOCK)
    l += s[j] = expf(s[j] - m);
  l = together<sum>(l, parts);
  __syncthreads();

  // d threads take every GROUPS-th key each; their sums are added up.
  int groups = BLOCK / d, c = threadIdx.x % d;
  float o = 0.0f;
  if (threadIdx.x < groups * d)
    for (int j = threadIdx.x / d; j < keys; j += groups)
      o += s[j] * V[(size_t)j * d + c];
  parts[threadIdx.x] = o;
  __syncthreads();
  if (threadIdx.x >= d) return;
  for (int g = 1; g < groups; ++g) o += parts[g * d + threadIdx.x];
  O[threadIdx.x] = o / l;
}
