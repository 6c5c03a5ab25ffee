// Layer norm with mean and variance in one pass.
//
// Idea (Welford 1962): a thread keeps n, the mean of the n numbers that
// it has read, and M2, the sum of their squared distances from that
// mean. Chan's rule (1983) merges two parts of a row, so one tree
// combines all threads.
// What limits it: x is read twice. Each number costs a division.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.

#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) ln_welford(
    const float* __restrict__ x,      // [M, N]
    const float* __restrict__ gamma,  // [N]
    const float* __restrict__ beta,   // [N]
    float* __restrict__ y,            // [M, N]
    float* __restrict__ mean,         // [M], kept for the backward pass
    float* __restrict__ invstd,       // [M], kept for the backward pass
    int N, float eps) {
  __shared__ Moments partial[BLOCK];  // of each thread
  int thread = threadIdx.x, row = blockIdx.x;
  x += (size_t)row * N, y += (size_t)row * N;  // [N]

  Moments own = {0.0f, 0.0f, 0.0f};
  for (int col = thread; col < N; col += BLOCK) own = add(own, x[col]);
  partial[thread] = own;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride)
      partial[thread] = merge(partial[thread], partial[thread + stride]);
  }
  __syncthreads();
  float m = partial[0].mean;
  float s = inverse_std(partial[0].M2 / N, eps);
  if (thread == 0) mean[row] = m, invstd[row] = s;

  for (int col = thread; col < N; col += BLOCK)
    y[col] = (x[col] - m) * s * gamma[col] + beta[col];
}
