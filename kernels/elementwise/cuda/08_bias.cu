// Bias: y = x + b, one number b[c] for all elements of channel c.
//
// Idea: one thread per element. Its index gives the channel by two
// divisions, which are multiplications here (magic.cuh). In NCHW the
// lanes of a warp mostly read the same b[c]. In NHWC they read
// neighbouring ones. b stays in the cache.
// What limits it: HBM. 8 bytes are moved for one addition.
//
// Launch: grid ceil(count / BLOCK), block BLOCK.

#include "channels.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bias(
    const float* __restrict__ x,  // [outer, C, inner]
    const float* __restrict__ b,  // [C]
    float* __restrict__ y,        // [outer, C, inner]
    Channels shape, int count) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  int c = channel_of(i, shape);
  y[i] = x[i] + b[c];
}
