// Direct convolution: the definition, one thread per output pixel.
//
// Idea: each thread walks the C*R*S taps under its window, a sum for
// each channel (of thousands of floats in one running sum the last
// bits are lost). No workspace at all. What limits it: every
// multiply-add waits for two loads, and each input pixel is read
// again by up to R*S*K threads; only the caches stand between that
// and HBM.
//
// Launch: grid (ceil(K*P*Q / BLOCK), N), block BLOCK.

#include "conv.cuh"

extern "C" __global__ void direct(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ w,  // [K, C, R, S]
    float* __restrict__ y,        // [N, K, P, Q]
    Conv s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int n = blockIdx.y;  // image
  if (i >= s.K * s.P * s.Q) return;
  int q = i % s.Q;  // output pixel (p, q) of filter k
  int p = i / s.Q % s.P;
  int k = i / (s.P * s.Q);

  float sum = 0.0f;
  for (int c = 0; c < s.C; ++c) {
    const float* map =  // [H, W]
        x + ((size_t)n * s.C + c) * s.H * s.W;
    const float* filter =  // [R, S]
        w + ((size_t)k * s.C + c) * s.R * s.S;
    float channel = 0.0f;
    for (int r = 0; r < s.R; ++r)
      for (int t = 0; t < s.S; ++t)
        channel += tap(map, s, p, q, r, t) * filter[r * s.S + t];
    sum += channel;
  }
  y[(size_t)n * s.K * s.P * s.Q + i] = sum;
}
