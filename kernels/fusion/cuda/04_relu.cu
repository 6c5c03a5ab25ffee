// ReLU alone: y = max(x, 0), one block of a chain, one launch.
//
// Idea: a thread computes four neighbouring values at a time, loaded
// and stored as one float4.
// What limits it: HBM. 8 bytes are moved for one comparison.
//
// Launch: grid ceil(N*C*H*W / (4 * FOURS * block)), block BLOCK. A
// thread computes FOURS times four values.

#include "fusion.cuh"

extern "C" __global__ void relu(
    const float* __restrict__ x,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, H, W]
    Maps shape) {
  int count = output_count(shape);
  int stride = 4 * gridDim.x * blockDim.x;
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  for (; i < count; i += stride) {
    float v[4];
    load(v, x, i, count);
    for (int j = 0; j < 4; ++j) v[j] = positive(v[j]);
    store(y, v, i, count);
  }
}
