// The gradients of batch norm for NHWC: dx.
//
// Idea: dgamma and dbeta are complete. A thread owns WIDTH channels and
// goes down the pixels of its part. The blocks run in the opposite
// order of 15: what 15 read last may still be in L2. Threads beyond the
// end load the last pixel again, so that no load waits for a condition.
// They store nothing.
// What limits it: HBM.
//
// Launch: grid (ceil(C / (TX * WIDTH)), parts), block (TX, TY). TX, TY
// and WIDTH are defines.

#include "vector.cuh"

constexpr int LOADS = 4;

extern "C" __global__ void __launch_bounds__(TX* TY)
    bn_backward_apply_nhwc(
        const float* __restrict__ dy,      // [pixels, C]
        const float* __restrict__ x,       // [pixels, C]
        const float* __restrict__ gamma,   // [C]
        const float* __restrict__ mean,    // [C]
        const float* __restrict__ invstd,  // [C]
        const float* __restrict__ dgamma,  // [C]
        const float* __restrict__ dbeta,   // [C]
        float* __restrict__ dx,            // [pixels, C]
        int pixels, int per_part, int C) {
  int part = gridDim.y - 1 - blockIdx.y, ty = threadIdx.y;
  int channel = (blockIdx.x * TX + threadIdx.x) * WIDTH;
  int begin = part * per_part, end = min(begin + per_part, pixels);
  if (channel >= C) return;

  float m[WIDTH], s[WIDTH], scale[WIDTH];
  float mean_beta[WIDTH], mean_gamma[WIDTH];
  for (int w = 0; w < WIDTH; ++w) {
    m[w] = mean[channel + w], s[w] = invstd[channel + w];
    scale[w] = gamma[channel + w] * s[w];
    mean_beta[w] = dbeta[channel + w] / pixels;
    mean_gamma[w] = dgamma[channel + w] / pixels;
  }
  for (int first = begin + ty; first < end; first += LOADS * TY) {
    float dys[LOADS][WIDTH], xs[LOADS][WIDTH];
    for (int k = 0; k < LOADS; ++k) {
      int pixel = min(first + k * TY, end - 1);
      size_t at = (size_t)pixel * C + channel;
      load(dys[k], dy + at), load(xs[k], x + at);
    }
    for (int k = 0; k < LOADS; ++k) {
      for (int w = 0; w < WIDTH; ++w) {
        float xhat = (xs[k][w] - m[w]) * s[w];
        dys[k][w] =
            scale[w] * (dys[k][w] - mean_beta[w] - xhat * mean_gamma[w]);
      }
      size_t at = (size_t)(first + k * TY) * C + channel;
      if (first + k * TY < end) store(dx + at, dys[k]);
    }
  }
}
