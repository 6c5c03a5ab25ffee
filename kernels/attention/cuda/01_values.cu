// O = P V by the definition: one thread per element of O.
//
// Idea: a row of O is a weighted mean of the rows of V. Its weights are
// a row of P. Neighbouring lanes compute neighbouring columns: they
// read V along a row, and all of them read the same float of P.
// What limits it: two loads for each multiply-add. P is as large as S.
//
// Launch: grid (ceil(d / BLOCK), ceil(N / BLOCK), B*H), block
// (BLOCK, BLOCK). BLOCK is a define.

#include "attention.cuh"

extern "C" __global__ void values(
    const float* __restrict__ P,  // [B*H, N, N]
    const float* __restrict__ V,  // [B*H, N, d]
    float* __restrict__ O,        // [B*H, N, d]
    int N, int d, int causal) {
  int query = blockIdx.y * BLOCK + threadIdx.y;
  int dim = blockIdx.x * BLOCK + threadIdx.x;
  if (query >= N || dim >= d) return;
  const float* weights = P + ((size_t)blockIdx.z * N + query) * N;
  const float* value_column = V + (size_t)blockIdx.z * N * d + dim;

  float sum = 0.0f;
  int keys = visible_keys(query, N, causal);
  for (int key = 0; key < keys; ++key)
    sum += weights[key] * value_column[(size_t)key * d];

  O[((size_t)blockIdx.z * N + query) * d + dim] = sum;
}
