// Global average pooling alone: one block of a chain, one launch.
//
// Idea: a warp per map. Its lanes add up every 32nd value, side by
// side; then lanes hand their sums to each other, 16, 8, 4, 2 and 1
// apart, without any memory. What limits it: HBM; 4 bytes for one
// addition, and nearly nothing is written.
//
// Launch: grid ceil(N*C / warps of a block), block BLOCK.

#include "fusion.cuh"

extern "C" __global__ void gap(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, 1, 1]
    Maps s) {
  int lane = threadIdx.x % 32;
  int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;  // map
  if (i >= values(s)) return;
  int area = s.H * s.W;

  float v = 0.0f;
#pragma unroll 4
  for (int j = lane; j < area; j += 32) v += x[i * area + j];
  for (int other = 16; other; other /= 2)
    v += __shfl_xor_sync(~0u, v, other);
  if (lane == 0) y[i] = v / area;
}
