// The gradients of batch norm by several blocks a channel: launch 1.
//
// Idea: as 12, but a channel is cut into `parts`, and each has a block
// of its own. A thread loads up to 8 numbers of dy and 8 of x before it
// uses the first. The block stores its two sums.
// What limits it: HBM. dy and x are read once here, and once by 14.
//
// Launch: grid C * parts, block BLOCK. BLOCK and WIDTH are defines.

#include "../../cuda/magic.cuh"
#include "norm.cuh"
#include "vector.cuh"

constexpr int LOADS = WIDTH == 4 ? 2 : 4;  // of a thread at once

extern "C" __global__ void __launch_bounds__(BLOCK) bn_backward_partial(
    const float* __restrict__ dy,      // [N, C, HW]
    const float* __restrict__ x,       // [N, C, HW]
    const float* __restrict__ mean,    // [C]
    const float* __restrict__ invstd,  // [C]
    float* __restrict__ partial,  // [C, parts, 2]: of dbeta, of dgamma
    int vectors,                  // of WIDTH numbers in a channel
    int per_part, int parts, int C, int HW,
    Magic per_map) {  // divides by HW / WIDTH
  __shared__ float warp_beta[BLOCK / 32], warp_gamma[BLOCK / 32];
  int thread = threadIdx.x, channel = blockIdx.x / parts;
  int begin = blockIdx.x % parts * per_part;
  int end = min(begin + per_part, vectors);
  float m = mean[channel], s = invstd[channel];

  float sum_beta = 0.0f, sum_gamma = 0.0f;
  for (int first = begin + thread; first < end; first += LOADS * BLOCK) {
    float dys[LOADS][WIDTH], xs[LOADS][WIDTH];
    for (int k = 0; k < LOADS; ++k) {
      int i = first + k * BLOCK, image = divide(i, per_map);
      size_t map = (size_t)image * C + channel;
      size_t at = map * HW + (i - image * (HW / WIDTH)) * WIDTH;
      if (i < end) load(dys[k], dy + at), load(xs[k], x + at);
      else clear(dys[k]), clear(xs[k]);
    }
    for (int k = 0; k < LOADS; ++k)
      for (int w = 0; w < WIDTH; ++w) {
        sum_beta += dys[k][w];
        sum_gamma += dys[k][w] * ((xs[k][w] - m) * s);
      }
  }
  sum_beta = sum_of_block(sum_beta, warp_beta);
  sum_gamma = sum_of_block(sum_gamma, warp_gamma);
  if (thread == 0) {
    partial[2 * blockIdx.x] = sum_beta;
    partial[2 * blockIdx.x + 1] = sum_gamma;
  }
}
