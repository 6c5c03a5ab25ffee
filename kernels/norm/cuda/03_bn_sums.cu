// Batch norm in training, with sums of x and of x * x in one pass.
//
// Idea: variance = mean of x^2 - (mean of x)^2. Both sums are computed
// in one pass, with three operations a number.
// What limits it: x is read twice. And it loses digits. With a mean of
// 1000 and a variance of 1, both terms are near 1,000,000, where FP32
// numbers are 1/16 apart. Their difference keeps one digit. It can
// even be below 0. Then the variance is set to 0.
//
// Launch: grid C, block BLOCK, a power of two. BLOCK and NHWC (the
// layout of x and y) are defines.

#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bn_sums(
    const float* __restrict__ x,      // [N, C, HW], NHWC: [N, HW, C]
    const float* __restrict__ gamma,  // [C]
    const float* __restrict__ beta,   // [C]
    float* __restrict__ y,            // as x
    float* __restrict__ mean,         // [C], kept for the backward pass
    float* __restrict__ invstd,       // [C], kept for the backward pass
    int count, int C, int HW, float eps) {
  __shared__ float partial_sum[BLOCK], partial_squares[BLOCK];
  int thread = threadIdx.x, channel = blockIdx.x;

  float sum = 0.0f, squares = 0.0f;
  for (int i = thread; i < count; i += BLOCK) {
    float value = x[offset<NHWC>(i, channel, C, HW)];
    sum += value, squares += value * value;
  }
  partial_sum[thread] = sum, partial_squares[thread] = squares;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) {
      partial_sum[thread] += partial_sum[thread + stride];
      partial_squares[thread] += partial_squares[thread + stride];
    }
  }
  __syncthreads();
  float m = partial_sum[0] / count;
  float variance = fmaxf(partial_squares[0] / count - m * m, 0.0f);
  float s = inverse_std(variance, eps);
  if (thread == 0) mean[channel] = m, invstd[channel] = s;

  float scale = gamma[channel] * s, shift = beta[channel];
  for (int i = thread; i < count; i += BLOCK) {
    size_t at = offset<NHWC>(i, channel, C, HW);
    y[at] = (x[at] - m) * scale + shift;
  }
}
