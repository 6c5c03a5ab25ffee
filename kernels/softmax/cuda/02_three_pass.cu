// Softmax that cannot overflow: maximum, sum, result.
//
// Idea: y = exp(x - m) / l gives the same result, m the maximum of the
// row. No exponent is above 0. The largest term is exp(0) = 1, so l is
// finite and at least 1. The block computes m with a tree in shared
// memory, then l with another tree. Then it writes y.
// What limits it: three passes over x and two trees. Each level of a
// tree has a barrier. From level to level fewer threads have work.
//
// Launch: grid M, block BLOCK, a power of two. BLOCK is a define.

#include "softmax.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) three_pass(
    const float* __restrict__ x,  // [M, N]
    float* __restrict__ y,        // [M, N]
    int N) {
  __shared__ float partial[BLOCK];  // a maximum or sum per thread
  int thread = threadIdx.x;
  x += (size_t)blockIdx.x * N, y += (size_t)blockIdx.x * N;  // [N]

  float m = -INFINITE;
  for (int col = thread; col < N; col += BLOCK) m = fmaxf(m, x[col]);
  partial[thread] = m;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride)
      partial[thread] =
          fmaxf(partial[thread], partial[thread + stride]);
  }
  __syncthreads();
  m = partial[0];
  __syncthreads();  // all threads read it before it is overwritten

  float l = 0.0f;
  for (int col = thread; col < N; col += BLOCK) l += expf(x[col] - m);
  partial[thread] = l;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) partial[thread] += partial[thread + stride];
  }
  __syncthreads();
  l = partial[0];

  for (int col = thread; col < N; col += BLOCK)
    y[col] = expf(x[col] - m) / l;
}
