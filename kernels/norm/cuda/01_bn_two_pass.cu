// Batch norm in training, as it is defined: mean, variance, result.
//
// Idea: a block owns a channel, which has `count` = N * H * W numbers.
// The first pass over x adds them up: the sum / count is the mean. The
// second pass adds up squared distances from the mean. The third pass
// writes y. A tree in shared memory adds the sums of the threads.
// What limits it: x is read three times. There is one block a channel:
// a few channels leave most of the device empty.
//
// Launch: grid C, block BLOCK, a power of two. BLOCK and NHWC (the
// layout of x and y) are defines.

#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bn_two_pass(
    const float* __restrict__ x,      // [N, C, HW], NHWC: [N, HW, C]
    const float* __restrict__ gamma,  // [C]
    const float* __restrict__ beta,   // [C]
    float* __restrict__ y,            // as x
    float* __restrict__ mean,         // [C], kept for the backward pass
    float* __restrict__ invstd,       // [C], kept for the backward pass
    int count, int C, int HW, float eps) {
  __shared__ float partial[BLOCK];  // a sum per thread
  int thread = threadIdx.x, channel = blockIdx.x;

  float sum = 0.0f;
  for (int i = thread; i < count; i += BLOCK)
    sum += x[offset<NHWC>(i, channel, C, HW)];
  partial[thread] = sum;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) partial[thread] += partial[thread + stride];
  }
  __syncthreads();
  float m = partial[0] / count;
  __syncthreads();  // all threads read it before it is overwritten

  float squares = 0.0f;
  for (int i = thread; i < count; i += BLOCK) {
    float distance = x[offset<NHWC>(i, channel, C, HW)] - m;
    squares += distance * distance;
  }
  partial[thread] = squares;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) partial[thread] += partial[thread + stride];
  }
  __syncthreads();
  float s = inverse_std(partial[0] / count, eps);
  if (thread == 0) mean[channel] = m, invstd[channel] = s;

  float scale = gamma[channel] * s, shift = beta[channel];
  for (int i = thread; i < count; i += BLOCK) {
    size_t at = offset<NHWC>(i, channel, C, HW);
    y[at] = (x[at] - m) * scale + shift;
  }
}
