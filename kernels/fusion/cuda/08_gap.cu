// Global average pooling alone: one block of a chain, one launch.
//
// Idea: a warp per map. Each lane adds every 32nd value; neighbouring
// lanes load neighbouring values. Then lanes exchange their sums, 16,
// 8, 4, 2 and 1 apart, without memory.
// What limits it: HBM. 4 bytes are read for one addition, and almost
// nothing is written.
//
// Launch: grid ceil(N*C / warps of a block), block BLOCK.

#include "fusion.cuh"

extern "C" __global__ void gap(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, 1, 1]
    Maps shape) {
  int lane = threadIdx.x % 32;
  int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;  // map
  if (i >= output_count(shape)) return;
  int area = shape.H * shape.W;

  float v = 0.0f;
#pragma unroll 4
  for (int pixel = lane; pixel < area; pixel += 32)
    v += x[i * area + pixel];
  for (int lane_mask = 16; lane_mask; lane_mask /= 2)
    v += __shfl_xor_sync(~0u, v, lane_mask);
  if (lane == 0) y[i] = v / area;
}
