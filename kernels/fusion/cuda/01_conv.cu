// Convolution alone: one block of a chain, one launch.
//
// Idea: one thread per output value walks the window under it in all
// C maps: the definition. Maps are the innermost loop: whether a tap
// lies beyond the map is asked once for all of them, and eight maps are
// loaded before the first is waited for. What limits it: the
// multiply-adds, C*R*R of them for every value that is written, each
// with two loads. Little is left to gain by fusing what follows.
//
// Launch: grid ceil(N*K*P*Q / block), block BLOCK.

#include "fusion.cuh"

extern "C" __global__ void conv(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ w,  // [K, C, R, R]
    float* __restrict__ y,        // [N, K, P, Q]
    Maps s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= values(s)) return;
  int plane = divide(i, s.by_PQ), row = divide(i, s.by_Q);
  int q = i - row * s.Q, p = row - plane * s.P;  // output pixel
  int n = divide(plane, s.by_K), k = plane - n * s.K;

  float v = 0.0f;
  for (int r = 0; r < s.R; ++r)
    for (int t = 0; t < s.R; ++t) {
      int h = p * s.stride - s.pad + r;
      int col = q * s.stride - s.pad + t;
      if (h < 0 || h >= s.H || col < 0 || col >= s.W) continue;
      const float* map = x + (n * s.C * s.H + h) * s.W + col;  // map 0
      const float* tap = w + (k * s.C * s.R + r) * s.R + t;    // map 0
#pragma unroll 8
      for (int c = 0; c < s.C; ++c)
        v += map[c * s.H * s.W] * tap[c * s.R * s.R];
    }
  y[i] = v;
}
