// O = P V by the definition: one thread per element of O.
//
// Idea: each row of O is a mean of the rows of V, with the weights of
// a row of P. Lanes side by side own neighbouring columns: they read
// V along a row and one float of P together.
// What limits it: two loads for every multiply-add, and P, which is
// as large as S.
//
// Launch: grid (ceil(d / BLOCK), ceil(N / BLOCK), B*H), block
// (BLOCK, BLOCK). BLOCK is a define.

#include "attention.cuh"

extern "C" __global__ void values(
    const float* __restrict__ P,  // [B*H, N, N]
    const float* __restrict__ V,  // [B*H, N, d]
    float* __restrict__ O,        // [B*H, N, d]
    int N, int d, int causal) {
  int i = blockIdx.y * BLOCK + threadIdx.y;
  int c = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= N || c >= d) return;
  const float* p = P + ((size_t)blockIdx.z * N + i) * N;
  const float* v = V + (size_t)blockIdx.z * N * d + c;

  float sum = 0.0f;
  int keys = seen(i, N, causal);
  for (int j = 0; j < keys; ++j) sum += p[j] * v[(size_t)j * d];

  O[((size_t)blockIdx.z * N + i) * d + c] = sum;
}
