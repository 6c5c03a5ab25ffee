// dQ without N x N matrices: one block per query, which computes its
// row of P and dS again.
//
// Idea: dQ needs the rows of dS, where dK needs its columns. So a
// second kernel computes all of P and dS once more, now by rows. No two
// blocks add to the same element: there are no atomics.
// What limits it: K and V are read again for every query, from the
// caches if they fit. A row must fit in shared memory.
//
// Launch: grid (N, B*H), block BLOCK, shared memory 4 * (N + 2 * d +
// BLOCK) bytes; d <= BLOCK. BLOCK is a define.

#include "attention.cuh"
#include "recompute.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) recompute_queries(
    const float* __restrict__ Q,   // [B*H, N, d]
    const float* __restrict__ K,   // [B*H, N, d]
    const float* __restrict__ V,   // [B*H, N, d]
    const float* __restrict__ dO,  // [B*H, N, d]
    const float* __restrict__ L,   // [B*H, N]
    const float* __restrict__ D,   // [B*H, N]
    float* __restrict__ dQ,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ float shared[];
  float* gradients = shared;           // [N], a row of dS
  float* query_row = gradients + N;    // [d]
  float* output_row = query_row + d;   // [d], of dO
  float* partial = output_row + d;     // [BLOCK]
  int warp = threadIdx.x / 32, query = blockIdx.x;
  int keys = visible_keys(query, N, causal);
  size_t head = (size_t)blockIdx.y * N * d;
  size_t row = head + (size_t)query * d;
  K += head, V += head;
  float row_l = L[(size_t)blockIdx.y * N + query];
  float row_d = D[(size_t)blockIdx.y * N + query];

  if (threadIdx.x < d) {
    query_row[threadIdx.x] = Q[row + threadIdx.x];
    output_row[threadIdx.x] = dO[row + threadIdx.x];
  }
  __syncthreads();
  for (int key = warp; key < keys; key += WARPS) {
    float s = warp_dot(K + (size_t)key * d, query_row, d);
    float dp = warp_dot(V + (size_t)key * d, output_row, d);
    float p = expf(scale * s - row_l);
    if (threadIdx.x % 32 == 0) gradients[key] = p * (dp - row_d);
  }
  __syncthreads();

  partial[threadIdx.x] = weighted_sum(gradients, K, 0, keys, d);
  __syncthreads();
  if (threadIdx.x >= d) return;
  dQ[row + threadIdx.x] = scale * add_groups(partial, d);
}
