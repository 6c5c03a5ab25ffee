// Addition alone: y = x + z, one block of a chain, one launch.
//
// Idea: z are maps of the same size, the other branch of a residual
// block. A thread adds four neighbouring values at a time, loaded and
// stored as one float4.
// What limits it: HBM. 12 bytes are moved for one addition.
//
// Launch: grid ceil(N*C*H*W / (4 * FOURS * block)), block BLOCK. A
// thread computes FOURS times four values.

#include "fusion.cuh"

extern "C" __global__ void add(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ z,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, H, W]
    Maps shape) {
  int count = output_count(shape);
  int stride = 4 * gridDim.x * blockDim.x;
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  for (; i < count; i += stride) {
    float v[4], other[4];
    load(v, x, i, count);
    load(other, z, i, count);
    for (int j = 0; j < 4; ++j) v[j] += other[j];
    store(y, v, i, count);
  }
}
