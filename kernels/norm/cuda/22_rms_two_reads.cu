// RMS norm as it is defined: mean square, result.
//
// Idea (Zhang and Sennrich, arXiv 1910.07467): as layer norm, without
// a mean and without beta. A row is divided by its root mean square.
// All squares are positive, so one pass adds them without loss. A tree
// in shared memory adds the sums of the threads.
// What limits it: x is read twice. Each level of the tree has a barrier.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.

#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) rms_two_reads(
    const float* __restrict__ x,      // [M, N]
    const float* __restrict__ gamma,  // [N]
    float* __restrict__ y,            // [M, N]
    float* __restrict__ invrms,       // [M], kept for the backward pass
    int N, float eps) {
  __shared__ float partial[BLOCK];  // a sum per thread
  int thread = threadIdx.x, row = blockIdx.x;
  x += (size_t)row * N, y += (size_t)row * N;  // [N]

  float squares = 0.0f;
  for (int col = thread; col < N; col += BLOCK)
    squares += x[col] * x[col];
  partial[thread] = squares;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) partial[thread] += partial[thread + stride];
  }
  __syncthreads();
  float s = inverse_std(partial[0] / N, eps);
  if (thread == 0) invrms[row] = s;

  for (int col = thread; col < N; col += BLOCK)
    y[col] = x[col] * s * gamma[col];
}
