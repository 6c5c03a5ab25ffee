// Attention in one kernel: one block per query, its scores in shared
// memory.
//
// Idea: a query needs only its own row of S. The block computes this
// row, one warp per key, with the lanes along d. It replaces the
// scores by weights in place and adds the values with these weights.
// S and P are never in HBM.
// What limits it: K and V are read again for every query, from the
// caches if they fit. A row of S must fit in shared memory, which ends
// at about 57,000 keys. A warp adds up a score by five shuffles, for
// d / 32 multiply-adds per lane.
//
// Launch: grid (N, B*H), block BLOCK, shared memory 4 * (N + d +
// BLOCK) bytes; d <= BLOCK. BLOCK is a define.

#include "attention.cuh"

constexpr int WARPS = BLOCK / 32;

__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline float sum(float a, float b) { return a + b; }

// Returns all threads' values combined by COMBINE, to every thread of
// the block. `partial` holds WARPS floats.
template <float (*COMBINE)(float, float)>
__device__ inline float block_reduce(float value, float* partial) {
  for (int lane_mask = 16; lane_mask; lane_mask /= 2)
    value = COMBINE(value, __shfl_xor_sync(~0u, value, lane_mask));
  __syncthreads();  // all threads have read the old content
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = partial[0];
  for (int warp = 1; warp < WARPS; ++warp)
    value = COMBINE(value, partial[warp]);
  return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK) fused(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H, N, d]
    const float* __restrict__ V,  // [B*H, N, d]
    float* __restrict__ O,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ float shared[];
  float* scores = shared;         // [N], later the weights
  float* query_row = scores + N;  // [d]
  float* partial = query_row + d;  // [BLOCK]
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int query = blockIdx.x, keys = visible_keys(query, N, causal);
  size_t head = (size_t)blockIdx.y * N * d;
  Q += head + (size_t)query * d, O += head + (size_t)query * d;
  K += head, V += head;

  if (threadIdx.x < d) query_row[threadIdx.x] = scale * Q[threadIdx.x];
  __syncthreads();
  for (int key = warp; key < keys; key += WARPS) {
    float score = 0.0f;
    for (int dim = lane; dim < d; dim += 32)
      score += query_row[dim] * K[(size_t)key * d + dim];
    for (int lane_mask = 16; lane_mask; lane_mask /= 2)
      score += __shfl_xor_sync(~0u, score, lane_mask);
    if (lane == 0) scores[key] = score;
  }
  __syncthreads();

  float m = -INFINITE;
  for (int key = threadIdx.x; key < keys; key += BLOCK)
    m = fmaxf(m, scores[key]);
  m = block_reduce<larger>(m, partial);
  float l = 0.0f;
  for (int key = threadIdx.x; key < keys; key += BLOCK)
    l += scores[key] = expf(scores[key] - m);
  l = block_reduce<sum>(l, partial);
  __syncthreads();

  // The threads form groups of d, one thread per column. Group g adds
  // keys g, g + groups, g + 2 * groups ...
  int groups = BLOCK / d, dim = threadIdx.x % d;
  float o = 0.0f;
  if (threadIdx.x < groups * d)
    for (int key = threadIdx.x / d; key < keys; key += groups)
      o += scores[key] * V[(size_t)key * d + dim];
  partial[threadIdx.x] = o;
  __syncthreads();
  if (threadIdx.x >= d) return;
  for (int group = 1; group < groups; ++group)
    o += partial[group * d + threadIdx.x];
  O[threadIdx.x] = o / l;
}
