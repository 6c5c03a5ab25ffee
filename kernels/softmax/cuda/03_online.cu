// Softmax in two passes: maximum and sum in one.
//
// Idea (Milakov and Gimelshein, arXiv 1805.02867): keep a sum that
// belongs to the largest number met so far. When a larger one comes,
// what was summed is multiplied by exp(old m - new m), as if it had
// been summed with the new m from the start. Two parts of a row merge
// by the same rule, so one tree gives both. What limits it: x is still
// read twice, and an element costs three exponentials instead of two.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.

#include "softmax.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) online(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    int N) {
  __shared__ float ms[BLOCK], ls[BLOCK];
  int t = threadIdx.x;
  x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;

  Running r = {-INFINITE, 0.0f};
  for (int j = t; j < N; j += BLOCK) r = merge(r, {x[j], 1.0f});
  ms[t] = r.m, ls[t] = r.l;
  for (int half = BLOCK / 2; half; half /= 2) {
    __syncthreads();
    if (t < half) {
      r = merge(r, {ms[t + half], ls[t + half]});
      ms[t] = r.m, ls[t] = r.l;
    }
  }
  __syncthreads();
  float m = ms[0], l = ls[0];

  for (int j = t; j < N; j += BLOCK) y[j] = expf(x[j] - m) / l;
}
