// S = scale * Q K^T by the definition: one thread per score.
//
// Idea: a query and a key are rows of d floats. Their product, the
// score, decides the weight of the key's value. Neighbouring lanes
// compute scores of neighbouring keys. If causal, keys after the query
// are hidden, and their scores are not written.
// What limits it: two loads for each multiply-add. S is N x N for each
// head: at N = 8192 that is 268 MB to write.
//
// Launch: grid (ceil(N / BLOCK), ceil(N / BLOCK), B*H), block
// (BLOCK, BLOCK). BLOCK is a define.

#include "attention.cuh"

extern "C" __global__ void scores(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H, N, d]
    float* __restrict__ S,        // [B*H, N, N]
    int N, int d, float scale, int causal) {
  int query = blockIdx.y * BLOCK + threadIdx.y;
  int key = blockIdx.x * BLOCK + threadIdx.x;
  if (query >= N || key >= visible_keys(query, N, causal)) return;
  const float* query_row = Q + ((size_t)blockIdx.z * N + query) * d;
  const float* key_row = K + ((size_t)blockIdx.z * N + key) * d;

  float sum = 0.0f;
  for (int dim = 0; dim < d; ++dim)
    sum += query_row[dim] * key_row[dim];

  S[((size_t)blockIdx.z * N + query) * N + key] = scale * sum;
}
