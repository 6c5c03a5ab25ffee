// Addition alone: y = x + z, one block of a chain, one launch.
//
// Idea: z are maps of the same size, the other branch of a residual
// block. A thread takes four values of each that lie side by side, as
// one float4. What limits it: HBM. 12 bytes move for one addition.
//
// Launch: grid ceil(N*C*H*W / (4 * FOURS * block)), block BLOCK: a
// thread has FOURS turns.

#include "fusion.cuh"

extern "C" __global__ void add(
    const float* __restrict__ x,  // [N, C, H, W]
    const float* __restrict__ z,  // [N, C, H, W]
    float* __restrict__ y,        // [N, C, H, W]
    Maps s) {
  int n = values(s), step = 4 * gridDim.x * blockDim.x;
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  for (; i < n; i += step) {
    float v[4], other[4];
    load(v, x, i, n);
    load(other, z, i, n);
    for (int k = 0; k < 4; ++k) v[k] += other[k];
    store(y, v, i, n);
  }
}
