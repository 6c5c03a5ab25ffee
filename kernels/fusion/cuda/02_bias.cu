// Bias alone: y = x + b[k], one block of a chain, one launch.
//
// Idea: a thread computes four neighbouring values at a time, loaded
// and stored as one float4.
// What limits it: HBM. 8 bytes are moved for one addition.
//
// Launch: grid ceil(N*C*H*W / (4 * FOURS * block)), block BLOCK. A
// thread computes FOURS times four values.

#include "fusion.cuh"

extern "C" __global__ void bias(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ b,  // [C]
    float* __restrict__ y,        // [N, C, H, W]
    Maps shape) {
  int count = output_count(shape);
  int stride = 4 * gridDim.x * blockDim.x;
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  for (; i < count; i += stride) {
    float v[4], map_bias;
    load(v, x, i, count);
    for (int j = 0; j < 4; ++j) {
      if (j == 0 || shape.P * shape.Q % 4 != 0)  // else the same map
        map_bias = b[map_of(i + j, shape)];
      v[j] += map_bias;
    }
    store(y, v, i, count);
  }
}
