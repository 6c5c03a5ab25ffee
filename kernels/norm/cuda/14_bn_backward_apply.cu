// The gradients of batch norm by several blocks a channel: launch 2.
//
// Idea: each thread adds up the two sums of the channel's parts, a few
// numbers. Then the block writes its part of dx. The blocks run in the
// opposite order of 13: what 13 read last may still be in L2. Threads
// beyond the end load the last numbers again, so that no load waits for
// a condition. They store nothing.
// What limits it: HBM.
//
// Launch: grid C * parts, block BLOCK. BLOCK and WIDTH are defines.

#include "../../cuda/magic.cuh"
#include "norm.cuh"
#include "vector.cuh"

constexpr int LOADS = WIDTH == 4 ? 2 : 4;  // of a thread at once

extern "C" __global__ void __launch_bounds__(BLOCK) bn_backward_apply(
    const float* __restrict__ dy,       // [N, C, HW]
    const float* __restrict__ x,        // [N, C, HW]
    const float* __restrict__ gamma,    // [C]
    const float* __restrict__ mean,     // [C]
    const float* __restrict__ invstd,   // [C]
    const float* __restrict__ partial,  // [C, parts, 2]
    float* __restrict__ dx,             // [N, C, HW]
    float* __restrict__ dgamma,         // [C]
    float* __restrict__ dbeta,          // [C]
    int count,  // numbers of a channel
    int vectors, int per_part, int parts, int C, int HW,
    Magic per_map) {  // divides by HW / WIDTH
  int thread = threadIdx.x, block = gridDim.x - 1 - blockIdx.x;
  int channel = block / parts, part = block % parts;
  int begin = part * per_part, end = min(begin + per_part, vectors);
  float m = mean[channel], s = invstd[channel];

  float sum_beta = 0.0f, sum_gamma = 0.0f;
  for (int p = 0; p < parts; ++p) {
    const float* of_part = partial + 2 * ((size_t)channel * parts + p);
    sum_beta += of_part[0], sum_gamma += of_part[1];
  }
  if (part == 0 && thread == 0)
    dgamma[channel] = sum_gamma, dbeta[channel] = sum_beta;

  float scale = gamma[channel] * s;
  float mean_beta = sum_beta / count, mean_gamma = sum_gamma / count;
  for (int first = begin + thread; first < end; first += LOADS * BLOCK) {
    float dys[LOADS][WIDTH], xs[LOADS][WIDTH];
    size_t at[LOADS];
    for (int k = 0; k < LOADS; ++k) {
      int i = min(first + k * BLOCK, end - 1);
      int image = divide(i, per_map);
      size_t map = (size_t)image * C + channel;
      at[k] = map * HW + (i - image * (HW / WIDTH)) * WIDTH;
      load(dys[k], dy + at[k]), load(xs[k], x + at[k]);
    }
    for (int k = 0; k < LOADS; ++k) {
      for (int w = 0; w < WIDTH; ++w) {
        float xhat = (xs[k][w] - m) * s;
        dys[k][w] = scale * (dys[k][w] - mean_beta - xhat * mean_gamma);
      }
      if (first + k * BLOCK < end) store(dx + at[k], dys[k]);
    }
  }
}
