// Multiplies and adds: y = scale * x + shift, by channel.
//
// Idea: one multiply-add a number. A thread loads 16 numbers of x
// before it stores the first result, four at a time. In NCHW four
// neighbours share a channel. In NHWC they have four channels. `divide`
// replaces the division of an index by three instructions. Threads
// beyond the end load the last numbers again, so that no load waits for
// a condition. They store nothing.
// What limits it: HBM alone: x is read once, y is written once.
//
// Launch: grid ceil(vectors / (LOADS * BLOCK)), block BLOCK. BLOCK,
// WIDTH and NHWC (the layout of x and y) are defines.

#include "../../cuda/magic.cuh"
#include "vector.cuh"

constexpr int LOADS = 16 / WIDTH;

extern "C" __global__ void __launch_bounds__(BLOCK) bn_scale_shift(
    const float* __restrict__ x,       // [N, C, HW], NHWC: [N, HW, C]
    const float* __restrict__ folded,  // [2, C]: scale, shift
    float* __restrict__ y,             // as x
    int vectors,                       // of WIDTH numbers in x
    int C,
    Magic per_map,     // NCHW: divides by HW / WIDTH
    Magic channels) {  // divides by C, NHWC: by C / WIDTH
  int first = blockIdx.x * (LOADS * BLOCK) + threadIdx.x;
  float values[LOADS][WIDTH];
  for (int k = 0; k < LOADS; ++k) {
    int i = min(first + k * BLOCK, vectors - 1);
    load(values[k], x + (size_t)i * WIDTH);
  }
  for (int k = 0; k < LOADS; ++k) {
    int i = min(first + k * BLOCK, vectors - 1);
    int map = NHWC ? i : divide(i, per_map);
    int channel = map - divide(map, channels) * (NHWC ? C / WIDTH : C);
    if (NHWC) channel *= WIDTH;
    for (int w = 0; w < WIDTH; ++w) {
      int own = NHWC ? channel + w : channel;
      values[k][w] = folded[own] * values[k][w] + folded[C + own];
    }
    if (first + k * BLOCK < vectors)
      store(y + (size_t)i * WIDTH, values[k]);
  }
}
