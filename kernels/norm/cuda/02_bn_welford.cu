// Batch norm in training, with mean and variance in one pass.
//
// Idea (Welford 1962): a thread keeps n, the mean of the n numbers that
// it has read, and M2, the sum of their squared distances from that
// mean. A new number moves the mean and adds to M2. Two parts of a
// channel are merged by Chan's rule (1983), so one tree combines all
// threads. No large numbers are subtracted: no digits are lost.
// What limits it: x is read twice. Each number costs a division.
//
// Launch: grid C, block BLOCK, a power of two. BLOCK and NHWC (the
// layout of x and y) are defines.

#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bn_welford(
    const float* __restrict__ x,      // [N, C, HW], NHWC: [N, HW, C]
    const float* __restrict__ gamma,  // [C]
    const float* __restrict__ beta,   // [C]
    float* __restrict__ y,            // as x
    float* __restrict__ mean,         // [C], kept for the backward pass
    float* __restrict__ invstd,       // [C], kept for the backward pass
    int count, int C, int HW, float eps) {
  __shared__ Moments partial[BLOCK];  // of each thread
  int thread = threadIdx.x, channel = blockIdx.x;

  Moments own = {0.0f, 0.0f, 0.0f};
  for (int i = thread; i < count; i += BLOCK)
    own = add(own, x[offset<NHWC>(i, channel, C, HW)]);
  partial[thread] = own;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride)
      partial[thread] = merge(partial[thread], partial[thread + stride]);
  }
  __syncthreads();
  float m = partial[0].mean;
  float s = inverse_std(partial[0].M2 / count, eps);
  if (thread == 0) mean[channel] = m, invstd[channel] = s;

  float scale = gamma[channel] * s, shift = beta[channel];
  for (int i = thread; i < count; i += BLOCK) {
    size_t at = offset<NHWC>(i, channel, C, HW);
    y[at] = (x[at] - m) * scale + shift;
  }
}
