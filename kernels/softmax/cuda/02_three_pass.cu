// Softmax that cannot overflow: maximum, sum, result.
//
// Idea: y = exp(x - m) / l with m the row's maximum is the same number
// and has no exponent above 0: the largest term is exp(0) = 1, so l is
// at least 1 and finite. The block finds m by a tree in shared memory,
// then l by another, then writes. What limits it: three passes over x
// and two trees, each with a barrier for every level, in which ever
// fewer threads have something to do.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.

#include "softmax.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) three_pass(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    int N) {
  __shared__ float s[BLOCK];
  int t = threadIdx.x;
  x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;

  float m = -INFINITE;
  for (int j = t; j < N; j += BLOCK) m = fmaxf(m, x[j]);
  s[t] = m;
  for (int half = BLOCK / 2; half; half /= 2) {
    __syncthreads();
    if (t < half) s[t] = fmaxf(s[t], s[t + half]);
  }
  __syncthreads();
  m = s[0];
  __syncthreads();  // all have read s[0] before it is overwritten

  float l = 0.0f;
  for (int j = t; j < N; j += BLOCK) l += expf(x[j] - m);
  s[t] = l;
  for (int half = BLOCK / 2; half; half /= 2) {
    __syncthreads();
    if (t < half) s[t] += s[t + half];
  }
  __syncthreads();
  l = s[0];

  for (int j = t; j < N; j += BLOCK) y[j] = expf(x[j] - m) / l;
}
