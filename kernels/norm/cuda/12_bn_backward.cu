// The gradients of batch norm: a block a channel.
//
// Idea: every y of a channel depends on every x through mean and
// standard deviation. With xhat = (x - mean) * invstd, two sums say all
// of that: dbeta = sum of dy, dgamma = sum of dy * xhat. The second
// pass takes their means from each dy:
// dx = gamma * invstd * (dy - dbeta / count - xhat * dgamma / count).
// What limits it: dy and x are read twice. There is one block a
// channel: a few channels leave most of the device empty.
//
// Launch: grid C, block BLOCK, a power of two. BLOCK and NHWC (the
// layout of dy, x and dx) are defines.

#include "norm.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bn_backward(
    const float* __restrict__ dy,      // [N, C, HW], NHWC: [N, HW, C]
    const float* __restrict__ x,       // as dy
    const float* __restrict__ gamma,   // [C]
    const float* __restrict__ mean,    // [C], from the forward pass
    const float* __restrict__ invstd,  // [C], from the forward pass
    float* __restrict__ dx,            // as dy
    float* __restrict__ dgamma,        // [C]
    float* __restrict__ dbeta,         // [C]
    int count, int C, int HW) {
  __shared__ float partial_beta[BLOCK], partial_gamma[BLOCK];
  int thread = threadIdx.x, channel = blockIdx.x;
  float m = mean[channel], s = invstd[channel];

  float sum_beta = 0.0f, sum_gamma = 0.0f;
  for (int i = thread; i < count; i += BLOCK) {
    size_t at = offset<NHWC>(i, channel, C, HW);
    sum_beta += dy[at], sum_gamma += dy[at] * ((x[at] - m) * s);
  }
  partial_beta[thread] = sum_beta, partial_gamma[thread] = sum_gamma;
  for (int stride = BLOCK / 2; stride; stride /= 2) {
    __syncthreads();
    if (thread < stride) {
      partial_beta[thread] += partial_beta[thread + stride];
      partial_gamma[thread] += partial_gamma[thread + stride];
    }
  }
  __syncthreads();
  sum_beta = partial_beta[0], sum_gamma = partial_gamma[0];
  if (thread == 0) dgamma[channel] = sum_gamma, dbeta[channel] = sum_beta;

  float scale = gamma[channel] * s;
  float mean_beta = sum_beta / count, mean_gamma = sum_gamma / count;
  for (int i = thread; i < count; i += BLOCK) {
    size_t at = offset<NHWC>(i, channel, C, HW);
    float xhat = (x[at] - m) * s;
    dx[at] = scale * (dy[at] - mean_beta - xhat * mean_gamma);
  }
}
