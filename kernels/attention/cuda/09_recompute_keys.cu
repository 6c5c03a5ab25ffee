// dK and dV without N x N matrices: one block per key, which computes
// its column of P and dS again.
//
// Idea: the gradients of a key and its value need only one column of P
// and dS. L and D are saved for each query. So each element of the
// column is computed again from a row of Q and a row of dO, one warp
// per query. The column stays in shared memory. The block then adds the
// rows of dO and Q with these weights.
// What limits it: Q and dO are read again for every key, from the
// caches if they fit. Two columns must fit in shared memory, which ends
// at about 28,000 queries.
//
// Launch: grid (N, B*H), block BLOCK, shared memory 4 * (2 * N + 2 * d
// + 2 * BLOCK) bytes; d <= BLOCK. BLOCK is a define.

#include "attention.cuh"
#include "recompute.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) recompute_keys(
    const float* __restrict__ Q,   // [B*H, N, d]
    const float* __restrict__ K,   // [B*H, N, d]
    const float* __restrict__ V,   // [B*H, N, d]
    const float* __restrict__ dO,  // [B*H, N, d]
    const float* __restrict__ L,   // [B*H, N]
    const float* __restrict__ D,   // [B*H, N]
    float* __restrict__ dK,        // [B*H, N, d]
    float* __restrict__ dV,        // [B*H, N, d]
    int N, int d, float scale, int causal) {
  extern __shared__ float shared[];
  float* weights = shared;           // [N], a column of P
  float* gradients = weights + N;    // [N], a column of dS
  float* key_row = gradients + N;    // [d]
  float* value_row = key_row + d;    // [d]
  float* partial = value_row + d;    // [2 * BLOCK]
  int warp = threadIdx.x / 32, key = blockIdx.x;
  size_t head = (size_t)blockIdx.y * N * d;
  size_t row = head + (size_t)key * d;
  Q += head, dO += head;
  L += (size_t)blockIdx.y * N, D += (size_t)blockIdx.y * N;

  if (threadIdx.x < d) {
    key_row[threadIdx.x] = K[row + threadIdx.x];
    value_row[threadIdx.x] = V[row + threadIdx.x];
  }
  __syncthreads();
  int first_query = causal ? key : 0;  // the first that sees the key
  for (int query = first_query + warp; query < N; query += WARPS) {
    float s = warp_dot(Q + (size_t)query * d, key_row, d);
    float dp = warp_dot(dO + (size_t)query * d, value_row, d);
    float p = expf(scale * s - L[query]);
    if (threadIdx.x % 32 == 0) {
      weights[query] = p;
      gradients[query] = p * (dp - D[query]);
    }
  }
  __syncthreads();

  float dv = weighted_sum(weights, dO, first_query, N, d);
  float dk = weighted_sum(gradients, Q, first_query, N, d);
  partial[threadIdx.x] = dv;
  partial[BLOCK + threadIdx.x] = dk;
  __syncthreads();
  if (threadIdx.x >= d) return;
  dV[row + threadIdx.x] = add_groups(partial, d);
  dK[row + threadIdx.x] = scale * add_groups(partial + BLOCK, d);
}
