// S = scale * Q K^T by the definition: one thread per score.
//
// Idea: query i and key j are two rows of d floats, and their product
// says how much of value j query i wants. Lanes side by side own
// neighbouring keys. If causal, the keys after i are hidden, and
// nothing is written for them.
// What limits it: two loads for every multiply-add, and S, which is
// N x N for each head: at N = 8192 a head writes 268 MB.
//
// Launch: grid (ceil(N / BLOCK), ceil(N / BLOCK), B*H), block
// (BLOCK, BLOCK). BLOCK is a define.

#include "attention.cuh"

extern "C" __global__ void scores(
    const float* __restrict__ Q,  // [B*H, N, d]
    const float* __restrict__ K,  // [B*H, N, d]
    float* __restrict__ S,        // [B*H, N, N]
    int N, int d, float scale, int causal) {
  int i = blockIdx.y * BLOCK + threadIdx.y;
  int j = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= N || j >= seen(i, N, causal)) return;
  const float* q = Q + ((size_t)blockIdx.z * N + i) * d;
  const float* k = K + ((size_t)blockIdx.z * N + j) * d;

  float sum = 0.0f;
  for (int c = 0; c < d; ++c) sum += q[c] * k[c];

  S[((size_t)blockIdx.z * N + i) * N + j] = scale * sum;
}
