// Layer norm as it is defined: mean, variance, result.
//
// Idea: a block owns a row of N numbers. The first pass over x adds
// them up: the sum / N is the mean. The second pass adds up squared
// distances from the mean. The third pass writes y. A tree in shared
// memory adds the sums of the threads.
// What limits it: x is read three times. Each level of a tree has a
// barrier.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.

#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) ln_three_reads(
    const float* __restrict__ x,      // [M, N]
    const float* __restrict__ gamma,  // [N]
    const float* __restrict__ beta,   // [N]
    float* __restrict__ y,            // [M, N]
    float* __restrict__ mean,         // [M], kept for the backward pass
    float* __restrict__ invstd,       // [M], kept for the backward pass
    int N, float eps) {
  __shared__ float partial[BLOCK];  // a sum per thread
  int thread = threadIdx.x, row = blockIdx.x;
  x += (size_t)row * N, y += (size_t)row * N;  // [N]

  float sum = 0.0f;
  for (int col = thread; col < N; col += BLOCK) sum += x[col];
  partial[thread] = sum;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) partial[thread] += partial[thread + stride];
  }
  __syncthreads();
  float m = partial[0] / N;
  __syncthreads();  // all threads read it before it is overwritten

  float squares = 0.0f;
  for (int col = thread; col < N; col += BLOCK) {
    float distance = x[col] - m;
    squares += distance * distance;
  }
  partial[thread] = squares;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) partial[thread] += partial[thread + stride];
  }
  __syncthreads();
  float s = inverse_std(partial[0] / N, eps);
  if (thread == 0) mean[row] = m, invstd[row] = s;

  for (int col = thread; col < N; col += BLOCK)
    y[col] = (x[col] - m) * s * gamma[col] + beta[col];
}
