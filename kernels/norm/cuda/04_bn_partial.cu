// Batch norm in training by several blocks a channel: the first launch.
//
// Idea: a channel is cut into `parts`, and each has a block of its own.
// So a few channels fill the device too. A thread loads up to 16
// numbers before it uses the first. It computes their mean and M2 in
// registers, in two passes that cost no memory traffic. One merge adds
// them to its moments. The block stores mean and M2 of its part.
// What limits it: HBM. x is read once here, and once by 05.
//
// Launch: grid C * parts, block BLOCK. BLOCK and WIDTH are defines.

#include "../../cuda/magic.cuh"
#include "norm.cuh"
#include "vector.cuh"

constexpr int LOADS = WIDTH == 4 ? 4 : 8;  // of a thread at once

extern "C" __global__ void __launch_bounds__(BLOCK) bn_partial(
    const float* __restrict__ x,  // [N, C, HW]
    float* __restrict__ partial,  // [C, parts, 2]: mean, M2
    int vectors,                  // of WIDTH numbers in a channel
    int per_part, int parts, int C, int HW,
    Magic per_map) {  // divides by HW / WIDTH
  __shared__ Moments warp_moments[BLOCK / 32];
  int thread = threadIdx.x, channel = blockIdx.x / parts;
  int begin = blockIdx.x % parts * per_part;
  int end = min(begin + per_part, vectors);

  Moments own = {0.0f, 0.0f, 0.0f};
  for (int first = begin + thread; first < end; first += LOADS * BLOCK) {
    float values[LOADS][WIDTH];
    for (int k = 0; k < LOADS; ++k) {
      int i = first + k * BLOCK, image = divide(i, per_map);
      size_t map = (size_t)image * C + channel;
      int pixel = (i - image * (HW / WIDTH)) * WIDTH;
      if (i < end) load(values[k], x + map * HW + pixel);
      else clear(values[k]);
    }
    float sum = 0.0f, n = 0.0f, M2 = 0.0f;
    for (int k = 0; k < LOADS; ++k) {
      if (first + k * BLOCK < end) n += WIDTH;
      for (float value : values[k]) sum += value;
    }
    float m = sum / n;
    for (int k = 0; k < LOADS; ++k)
      if (first + k * BLOCK < end)
        for (float value : values[k]) M2 += (value - m) * (value - m);
    own = merge(own, {n, m, M2});
  }
  own = merge_block(own, warp_moments);
  if (thread == 0) {
    partial[2 * blockIdx.x] = own.mean;
    partial[2 * blockIdx.x + 1] = own.M2;
  }
}
