// Max pooling alone: one block of a chain, one launch.
//
// Idea: pooling is a reduction, many of them and small: one thread
// per output value takes the largest of the R x R values under its
// window. What lies beyond the map is left out. What limits it: HBM;
// where windows overlap, the caches hold what is read again.
//
// Launch: grid ceil(N*C*P*Q / block), block BLOCK.

#include "fusion.cuh"

extern "C" __global__ void maxpool(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, P, Q]
    Maps s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= values(s)) return;
  int plane = divide(i, s.by_PQ), row = divide(i, s.by_Q);
  int q = i - row * s.Q, p = row - plane * s.P;  // output pixel

  float v = -INFINITE;
  for (int r = 0; r < s.R; ++r)
    for (int t = 0; t < s.R; ++t) {
      int h = p * s.stride - s.pad + r;
      int col = q * s.stride - s.pad + t;
      if (h < 0 || h >= s.H || col < 0 || col >= s.W) continue;
      v = larger(v, x[(plane * s.H + h) * s.W + col]);
    }
  y[i] = v;
}
