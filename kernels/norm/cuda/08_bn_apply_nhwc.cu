// Batch norm in training for NHWC: the last launch of three.
//
// Idea: mean and 1 / standard deviation of all channels are known. A
// thread owns WIDTH channels as in 06 and goes down the pixels of its
// part. The blocks run in the opposite order of 06: what 06 read last
// may still be in L2. Threads beyond the end load the last pixel again,
// so that no load waits for a condition. They store nothing.
// What limits it: HBM.
//
// Launch: grid (ceil(C / (TX * WIDTH)), parts), block (TX, TY). TX, TY
// and WIDTH are defines.

#include "norm.cuh"
#include "vector.cuh"

constexpr int LOADS = 8;

extern "C" __global__ void __launch_bounds__(TX* TY) bn_apply_nhwc(
    const float* __restrict__ x,       // [pixels, C]
    const float* __restrict__ gamma,   // [C]
    const float* __restrict__ beta,    // [C]
    const float* __restrict__ mean,    // [C]
    const float* __restrict__ invstd,  // [C]
    float* __restrict__ y,             // [pixels, C]
    int pixels, int per_part, int C) {
  int part = gridDim.y - 1 - blockIdx.y, ty = threadIdx.y;
  int channel = (blockIdx.x * TX + threadIdx.x) * WIDTH;
  int begin = part * per_part, end = min(begin + per_part, pixels);
  if (channel >= C) return;

  float m[WIDTH], scale[WIDTH], shift[WIDTH];
  for (int w = 0; w < WIDTH; ++w) {
    m[w] = mean[channel + w], shift[w] = beta[channel + w];
    scale[w] = gamma[channel + w] * invstd[channel + w];
  }
  for (int first = begin + ty; first < end; first += LOADS * TY) {
    float values[LOADS][WIDTH];
    for (int k = 0; k < LOADS; ++k) {
      int pixel = min(first + k * TY, end - 1);
      load(values[k], x + (size_t)pixel * C + channel);
    }
    for (int k = 0; k < LOADS; ++k) {
      for (int w = 0; w < WIDTH; ++w)
        values[k][w] = (values[k][w] - m[w]) * scale[w] + shift[w];
      if (first + k * TY < end)
        store(y + (size_t)(first + k * TY) * C + channel, values[k]);
    }
  }
}
