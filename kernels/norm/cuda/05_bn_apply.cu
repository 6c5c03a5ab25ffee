// Batch norm in training by several blocks a channel: the second launch.
//
// Idea: a launch is a barrier for the whole grid: all parts of 04 are
// complete. Each thread merges the moments of the channel's parts, a
// few numbers. Then the block writes its part of y. The blocks run in
// the opposite order of 04: what 04 read last may still be in L2.
// Threads beyond the end load the last numbers again, so that no load
// waits for a condition. They store nothing.
// What limits it: HBM.
//
// Launch: grid C * parts, block BLOCK. BLOCK and WIDTH are defines.

#include "../../cuda/magic.cuh"
#include "norm.cuh"
#include "vector.cuh"

constexpr int LOADS = WIDTH == 4 ? 4 : 8;  // of a thread at once

extern "C" __global__ void __launch_bounds__(BLOCK) bn_apply(
    const float* __restrict__ x,        // [N, C, HW]
    const float* __restrict__ gamma,    // [C]
    const float* __restrict__ beta,     // [C]
    const float* __restrict__ partial,  // [C, parts, 2]: mean, M2
    float* __restrict__ y,              // [N, C, HW]
    float* __restrict__ mean,           // [C]
    float* __restrict__ invstd,         // [C]
    int vectors, int per_part, int parts, int C, int HW,
    Magic per_map,  // divides by HW / WIDTH
    float eps) {
  int thread = threadIdx.x, block = gridDim.x - 1 - blockIdx.x;
  int channel = block / parts, part = block % parts;
  int begin = part * per_part, end = min(begin + per_part, vectors);

  Moments all = {0.0f, 0.0f, 0.0f};
  for (int p = 0; p < parts; ++p) {
    const float* of_part = partial + 2 * ((size_t)channel * parts + p);
    int n = min(per_part, vectors - p * per_part) * WIDTH;
    all = merge(all, {(float)n, of_part[0], of_part[1]});
  }
  float m = all.mean, s = inverse_std(all.M2 / all.n, eps);
  if (part == 0 && thread == 0) mean[channel] = m, invstd[channel] = s;

  float scale = gamma[channel] * s, shift = beta[channel];
  for (int first = begin + thread; first < end; first += LOADS * BLOCK) {
    float values[LOADS][WIDTH];
    size_t at[LOADS];
    for (int k = 0; k < LOADS; ++k) {
      int i = min(first + k * BLOCK, end - 1);
      int image = divide(i, per_map);
      size_t map = (size_t)image * C + channel;
      at[k] = map * HW + (i - image * (HW / WIDTH)) * WIDTH;
      load(values[k], x + at[k]);
    }
    for (int k = 0; k < LOADS; ++k) {
      for (float& value : values[k]) value = (value - m) * scale + shift;
      if (first + k * BLOCK < end) store(y + at[k], values[k]);
    }
  }
}
