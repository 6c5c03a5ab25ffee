// Bias alone: y = x + b[k], one block of a chain, one launch.
//
// Idea: a thread takes four values that lie side by side, as one
// float4. What limits it: HBM. 8 bytes move for one addition.
//
// Launch: grid ceil(N*C*H*W / (4 * FOURS * block)), block BLOCK: a
// thread has FOURS turns.

#include "fusion.cuh"

extern "C" __global__ void bias(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ b,  // [C]
    float* __restrict__ y,        // [N, C, H, W]
    Maps s) {
  int n = values(s), step = 4 * gridDim.x * blockDim.x;
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  for (; i < n; i += step) {
    float v[4], offset;
    load(v, x, i, n);
    for (int k = 0; k < 4; ++k) {
      if (k == 0 || s.P * s.Q % 4 != 0)  // else all are of one map
        offset = b[map_of(i + k, s)];
      v[k] += offset;
    }
    store(y, v, i, n);
  }
}
